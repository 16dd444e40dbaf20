"""A machine whose clock is off: the bucket refuses what it signs, and a HEAD's answer doesn't say why."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import SecretStr
from s3_planes import MakeSite, output_of

from cdui_develop.bucket_stub import Asked, Says, Stub, error, sts_error
from codefyui_core.plugin import Busy, Refused
from codefyui_core.testing.clock import ManualClock
from codefyui_storage_s3 import client as client_module
from codefyui_storage_s3.client import BucketClient, Keys
from codefyui_storage_s3.models import Bucket, Style
from codefyui_storage_s3.threads import Threads

KEYS = Keys(access_key_id=SecretStr("OWNKEY"), secret_access_key=SecretStr("own-secret"))
WAYS = pytest.mark.parametrize(("minutes", "way"), [(60, "ahead of"), (-60, "behind")])
NOTHING = Says(403)
"""As to a HEAD: no body, so no reason."""


@pytest.fixture
def client(stub: Stub) -> Iterator[BucketClient]:
    threads = Threads(2, "test")
    bucket = Bucket(name="codefyui", endpoint_url=stub.url, region="us-east-1", style=Style.PATH)
    yield BucketClient(bucket, KEYS, threads=threads, clock=ManualClock(), machine="server")
    threads.close()


def _clock_ahead_by(stub: Stub, minutes: float) -> None:
    """Of the process's clock, before the store's."""
    stub.clock = lambda: datetime.now(UTC) - timedelta(minutes=minutes)


async def _ask(client: BucketClient, operation: str) -> None:
    body = {"Body": b"weights"} if operation == "put_object" else {}
    await client.call(operation, "runs/1/a", **body)


@WAYS
@pytest.mark.parametrize("operation", ["head_object", "put_object", "get_object", "delete_object"])
@pytest.mark.parametrize("answer", [NOTHING, error("RequestTimeTooSkewed", 403), error("AccessDenied", 403)])
async def test_a_refusal_while_the_clock_is_off_is_waited_for(
    client: BucketClient, stub: Stub, answer: Says, operation: str, minutes: int, way: str
) -> None:
    _clock_ahead_by(stub, minutes)
    stub.rule = lambda asked: answer
    with pytest.raises(Busy) as caught:
        await _ask(client, operation)
    assert f"the server's clock is off by 60 min, {way} the bucket's; correct it" in caught.value.message


@pytest.mark.parametrize("operation", ["head_object", "put_object", "get_object"])
@pytest.mark.parametrize("answer", [NOTHING, error("AccessDenied", 403)])
async def test_a_refusal_while_the_clock_is_right_is_final(
    client: BucketClient, stub: Stub, answer: Says, operation: str
) -> None:
    stub.rule = lambda asked: answer
    with pytest.raises(Refused, match="let the user of the keys read and write the bucket"):
        await _ask(client, operation)


async def test_a_clock_that_is_set_right_during_the_request_was_off_when_it_signed(
    client: BucketClient, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stepping(datetime):
        off = timedelta(hours=1)

        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + cls.off

    def refuse(asked: Asked) -> Says:
        Stepping.off = timedelta(0)
        return NOTHING

    monkeypatch.setattr(client_module, "datetime", Stepping)
    stub.rule = refuse
    with pytest.raises(Busy, match="off by 60 min, ahead of"):
        await _ask(client, "head_object")
    with pytest.raises(Refused):
        await _ask(client, "head_object")


@WAYS
async def test_a_run_that_is_staged_meanwhile_waits_until_the_clock_is_right(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, minutes: int, way: str
) -> None:
    halves = await (await site_of(stub_settings)).start()
    _clock_ahead_by(stub, minutes)
    stub.rule = lambda asked: NOTHING
    with pytest.raises(Busy, match=f"off by 60 min, {way}"):
        await halves.staged()
    _clock_ahead_by(stub, 0)
    stub.rule = lambda asked: None
    assert (await halves.staged()).ticket.bucket.name == "codefyui"


@WAYS
async def test_a_file_that_arrives_meanwhile_is_taken_once_the_clock_is_right(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, minutes: int, way: str
) -> None:
    halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    async with halves.session(staged) as session:
        output, receipt = await halves.publish(session, b"weights")
    _clock_ahead_by(stub, minutes)
    stub.rule = lambda asked: NOTHING
    with pytest.raises(Busy, match=f"off by 60 min, {way}"):
        await halves.control.accept(halves.given(staged), output, receipt)
    _clock_ahead_by(stub, 0)
    stub.rule = lambda asked: None
    stored = await halves.control.accept(halves.given(staged), output, receipt)
    assert stored.size_bytes == output_of(b"weights").size_bytes


async def test_a_worker_whose_clock_is_off_keeps_its_file_for_later(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    _clock_ahead_by(stub, 60)
    stub.rule = lambda asked: error("RequestTimeTooSkewed", 403)
    async with halves.session(staged) as session:
        with pytest.raises(Busy, match="the worker's clock is off by 60 min"):
            await halves.publish(session, b"weights")
        stub.rule = lambda asked: None
        await halves.publish(session, b"weights")


@pytest.mark.parametrize("credentials", ["sts", "auto"])
async def test_an_sts_that_refuses_what_a_wrong_clock_signed_is_waited_for_and_asked_again(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, credentials: str
) -> None:
    """With ``auto``, too: the server's own keys are for an STS that gives none."""
    halves = await (await site_of(stub_settings, s3_credentials=credentials)).start()
    _clock_ahead_by(stub, 60)
    stub.rule = lambda asked: sts_error("SignatureDoesNotMatch") if asked.method == "POST" else None
    with pytest.raises(Busy, match="the server's clock is off by 60 min"):
        await halves.staged()
    stub.rule = lambda asked: None
    staged = await halves.staged()
    assert staged.grant is not None
    assert staged.grant.session_token is not None
