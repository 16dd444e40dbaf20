"""A machine whose clock is off: what it signs by its own clock the bucket refuses, and a HEAD's answer doesn't say why."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import botocore.auth
import pytest
from pydantic import SecretStr
from s3_planes import MakeSite, output_of, until

from cdui_develop.bucket_stub import Asked, Says, Stub, error, sts_error
from cdui_develop.seaweedfs import SeaweedFS
from codefyui_core.plugin import Busy, Redirect, Refused
from codefyui_core.testing.clock import ManualClock
from codefyui_core.testing.hosts import ProgressDouble
from codefyui_storage_s3 import store_time as store_time_module
from codefyui_storage_s3.client import BucketClient
from codefyui_storage_s3.keys import Keys
from codefyui_storage_s3.models import Bucket, Style
from codefyui_storage_s3.store_time import StoreTime
from codefyui_storage_s3.threads import Threads
from codefyui_storage_s3.uploading import send_whole

KEYS = Keys(access_key_id=SecretStr("OWNKEY"), secret_access_key=SecretStr("own-secret"))
WAYS = pytest.mark.parametrize(("minutes", "way"), [(60, "ahead of"), (-60, "behind")])
NOTHING = Says(403)
"""As to a HEAD: no body, so no reason."""
REFUSALS = pytest.mark.parametrize(
    "answer", [NOTHING, error("RequestTimeTooSkewed", 403), error("AccessDenied", 403)]
)
LIMIT = timedelta(minutes=15)


@pytest.fixture
def client(stub: Stub) -> Iterator[BucketClient]:
    threads = Threads(2, "test")
    bucket = Bucket(name="codefyui", endpoint_url=stub.url, region="us-east-1", style=Style.PATH)
    yield BucketClient(
        bucket, KEYS, threads=threads, clock=ManualClock(), store_time=StoreTime(), machine="server"
    )
    threads.close()


def _clock_ahead_by(stub: Stub, minutes: float) -> None:
    """Of the process's clock, before the store's."""
    stub.clock = lambda: datetime.now(UTC) - timedelta(minutes=minutes)


def _strict(stub: Stub, answer: Says) -> Callable[[Asked], Says | None]:
    """As stores do: an answer of its own to what was signed too long before or after its time."""
    return lambda asked: answer if abs(asked.signed_at - stub.clock()) > LIMIT else None


async def _ask(client: BucketClient, operation: str) -> None:
    body = {"Body": b"weights"} if operation == "put_object" else {}
    answer = await client.call(operation, "runs/1/a", **body)
    if operation == "get_object":
        answer["Body"].close()


@WAYS
@REFUSALS
@pytest.mark.parametrize("operation", ["head_object", "put_object", "get_object", "delete_object"])
async def test_what_is_refused_since_the_clock_is_off_is_signed_again_by_the_stores(
    client: BucketClient, stub: Stub, answer: Says, operation: str, minutes: int, way: str
) -> None:
    _clock_ahead_by(stub, minutes)
    stub.rule = _strict(stub, answer)
    stub.objects["/codefyui/runs/1/a"] = (b"weights", {})
    await _ask(client, operation)
    assert len(stub.asked) == 2
    await _ask(client, operation)
    assert len(stub.asked) == 3, "now it is known"
    assert client.store_time.ahead() == pytest.approx(timedelta(minutes=minutes), abs=timedelta(seconds=10))


@pytest.mark.parametrize("operation", ["head_object", "put_object", "get_object"])
@pytest.mark.parametrize("answer", [NOTHING, error("AccessDenied", 403)])
async def test_a_refusal_while_the_clock_is_right_is_final(
    client: BucketClient, stub: Stub, answer: Says, operation: str
) -> None:
    stub.rule = lambda asked: answer
    with pytest.raises(Refused, match="let the user of the keys read and write the bucket"):
        await _ask(client, operation)
    assert len(stub.asked) == 1


async def test_a_refusal_of_a_clock_that_no_answer_helps_with_is_waited_for(
    client: BucketClient, stub: Stub
) -> None:
    """The answers come from something whose own clock is wrong."""
    stub.rule = lambda asked: error("RequestTimeTooSkewed", 403)
    with pytest.raises(Busy, match="the server's clock is off from the bucket's; correct it"):
        await _ask(client, "get_object")


@WAYS
async def test_a_file_whose_bytes_are_counted_is_sent_again_by_the_next_try_alone(
    client: BucketClient, stub: Stub, minutes: int, way: str
) -> None:
    _clock_ahead_by(stub, minutes)
    stub.rule = _strict(stub, NOTHING)
    data = b"x" * (2 << 20)
    with pytest.raises(Busy, match=f"off by 60 min, {way} the bucket's; correct it"):
        await client.threads.run(send_whole, client, "runs/1/a", data, ProgressDouble())
    progress = ProgressDouble()
    await client.threads.run(send_whole, client, "runs/1/a", data, progress)
    assert progress.n_bytes == len(data)


async def test_a_clock_that_is_set_right_during_the_request_was_off_when_it_signed(
    client: BucketClient, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = _Shift(monkeypatch)
    shift.by = timedelta(hours=1)

    def refuse(asked: Asked) -> Says | None:
        shift.by = timedelta(0)
        return NOTHING if abs(asked.signed_at - stub.clock()) > LIMIT else None

    stub.rule = refuse
    stub.objects["/codefyui/runs/1/a"] = (b"weights", {})
    await _ask(client, "head_object")
    assert len(stub.asked) == 2


@WAYS
@REFUSALS
async def test_a_run_is_staged_and_its_files_are_taken_with_a_wrong_clock(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, answer: Says, minutes: int, way: str
) -> None:
    halves = await (await site_of(stub_settings)).start()
    _clock_ahead_by(stub, minutes)
    stub.rule = _strict(stub, answer)
    staged = await halves.staged()
    assert staged.grant is not None
    assert staged.grant.session_token is not None
    stored = await halves.stored(staged, b"weights")
    assert stored.size_bytes == output_of(b"weights").size_bytes


@WAYS
async def test_a_bucket_works_from_the_start_with_a_wrong_clock_and_its_line_says_so(
    site_of: MakeSite,
    stub_settings: dict[str, object],
    stub: Stub,
    caplog: pytest.LogCaptureFixture,
    minutes: int,
    way: str,
) -> None:
    _clock_ahead_by(stub, minutes)
    stub.rule = _strict(stub, NOTHING)
    halves = await (await site_of(stub_settings)).start()
    said = f"the server's clock is off by 60 min, {way} the bucket's; correct it"
    assert halves.control.condition() == f"on: bucket codefyui at {stub.url} (credentials: auto); {said}"
    for _ in range(3):
        await halves.clock.advance(1)
    assert [record.getMessage() for record in caplog.records].count(said) == 1
    _clock_ahead_by(stub, 0)
    await halves.staged()
    assert "clock" not in halves.control.condition()


@pytest.mark.parametrize("credentials", ["sts", "auto"])
async def test_an_sts_that_refuses_what_a_wrong_clock_signed_is_asked_again(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, credentials: str
) -> None:
    """With ``auto``, too: the server's own keys are for an STS that gives none."""
    halves = await (await site_of(stub_settings, s3_credentials=credentials)).start()
    strict = _strict(stub, sts_error("SignatureDoesNotMatch"))
    stub.rule = lambda asked: strict(asked) if asked.method == "POST" else None
    ticket = (await halves.staged()).ticket
    _clock_ahead_by(stub, 60)
    assert len(stub.assumed) == 1
    grant = await halves.control.renew(halves.given(await halves.staged()))
    assert grant.session_token is not None
    assert ticket.inputs


@WAYS
async def test_an_address_for_a_browser_is_signed_by_the_stores_clock(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, minutes: int, way: str
) -> None:
    halves = await (await site_of(stub_settings, s3_download="presign")).start()
    stored = await halves.stored(await halves.staged())
    _clock_ahead_by(stub, minutes)
    stub.rule = _strict(stub, NOTHING)
    reading = await halves.control.read(stored, None)
    assert isinstance(reading, Redirect)
    (stamp,) = parse_qs(urlsplit(reading.url).query)["X-Amz-Date"]
    signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    assert abs(signed_at - stub.clock()) < timedelta(seconds=10)


class _Shift:
    """Sets this process's clock, as the plugin and botocore see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by = timedelta(0)
        shift = self

        class Shifted(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
                return datetime.now(UTC) + shift.by

        def for_botocore(remove_tzinfo: bool = True) -> datetime:
            return Shifted.now().replace(tzinfo=None)

        monkeypatch.setattr(store_time_module, "datetime", Shifted)
        monkeypatch.setattr(botocore.auth, "get_current_datetime", for_botocore)


@pytest.mark.service
@pytest.mark.spec("s3/download-presign-redirects")
@pytest.mark.parametrize("minutes", [-60, -10, 60])
async def test_a_real_store_serves_a_machine_whose_clock_is_off(
    site_of: MakeSite,
    bucket_settings: dict[str, object],
    seaweedfs: SeaweedFS,
    monkeypatch: pytest.MonkeyPatch,
    minutes: int,
) -> None:
    _Shift(monkeypatch).by = timedelta(minutes=minutes)
    settings = bucket_settings | {"s3_credentials": "sts", "s3_download": "presign", "s3_presign_ttl_s": 300}
    halves = await (await site_of(settings)).start()
    stored = await halves.stored(await halves.staged(), b"weights")
    reading = await halves.control.read(stored, None)
    assert isinstance(reading, Redirect)
    url = reading.url
    found: list[bytes] = []

    def read() -> bool:
        with urlopen(url, timeout=10) as answer:
            found.append(answer.read())
        return True

    await until(read)
    assert found == [b"weights"]
