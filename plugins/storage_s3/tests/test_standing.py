"""When the backend is on, what it says of itself, and which runs it offers itself for."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from s3_planes import FILES, WORKER, Halves, MakeSite, until

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from codefyui_core.plugin import Because, Busy, Offer, Refusal, RunFiles, StorageKind
from codefyui_storage_s3 import standing
from codefyui_storage_s3.models import S3Facts
from codefyui_storage_s3.offering import offer
from codefyui_storage_s3.plugin import S3Backend
from codefyui_storage_s3.standing import Off, Working

FACTS = S3Facts(boto3="1.40")


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "codefyui.s3"]


def _offers(halves: Halves) -> bool:
    return isinstance(halves.control.offer(FILES, WORKER, FACTS), Offer)


async def _passing(halves: Halves, step_s: float, met: Callable[[], bool]) -> None:
    """Let time pass until it is true."""
    async with asyncio.timeout(20):
        while not met():
            await halves.clock.advance(step_s)
            await asyncio.sleep(0.01)


# ------------------------------------------------------------ on and off


@pytest.mark.spec("s3/log-line-backend-on", "s3/auto-mode-is-default-and-tries-sts-first")
async def test_the_log_says_that_it_is_on(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    halves = await (await site_of(stub_settings)).start()
    assert _lines(caplog) == [f"S3 artifact backend on: bucket codefyui at {stub.url} (credentials: auto)"]
    assert halves.control.condition() == f"on: bucket codefyui at {stub.url} (credentials: auto)"
    assert halves.host.offers_changed_count > 0


async def test_a_tried_bucket_is_left_as_it_was(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    await (await site_of(stub_settings, s3_prefix="p/")).start()
    assert [asked.method for asked in stub.asked] == ["PUT", "GET", "DELETE"]
    assert all(asked.key.startswith("p/probe/") for asked in stub.asked)
    assert stub.objects == {}


@pytest.mark.spec("s3/off-by-default-on-by-setting")
async def test_without_the_switch_no_request_is_made_and_nothing_is_logged(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    halves = await (await site_of(stub_settings | {"s3_enabled": False})).start()
    assert stub.asked == []
    assert _lines(caplog) == []
    answer = halves.control.offer(FILES, WORKER, FACTS)
    assert isinstance(answer, Refusal)
    assert answer.because is Because.OFF
    assert answer.fallback == ""
    with pytest.raises(Busy):
        await halves.staged()


@pytest.mark.spec("s3/log-reason-no-bucket")
async def test_the_log_says_that_there_is_no_bucket(
    site_of: MakeSite, stub_settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    halves = await (await site_of(stub_settings | {"s3_bucket": ""})).start()
    assert _lines(caplog) == ["S3 artifact backend off: no bucket; set CODEFYUI_S3_BUCKET"]
    assert halves.control.condition() == "off: no bucket; set CODEFYUI_S3_BUCKET"
    assert isinstance(halves.control.offer(FILES, WORKER, FACTS), Refusal)


@pytest.mark.spec("s3/log-reason-boto3-missing", "s3/agent-without-boto3-does-not-offer-s3")
async def test_without_boto3_the_log_says_so_and_the_agent_does_not_offer_it(
    site_of: MakeSite,
    stub_settings: dict[str, object],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = standing.boto3_version
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert real() is None
    halves = await (await site_of(stub_settings)).start()
    assert await halves.agent.facts() is None
    (line,) = _lines(caplog)
    assert line.startswith("S3 artifact backend off: boto3 is missing; install it")


async def test_without_keys_the_log_says_which_to_set(
    site_of: MakeSite, stub_settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    del stub_settings["s3_secret_access_key"]
    await (await site_of(stub_settings)).start()
    assert "CODEFYUI_S3_SECRET_ACCESS_KEY" in _lines(caplog)[0]


async def test_a_bucket_that_refuses_is_off_with_its_reason_and_tried_again_until_it_works(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stub.rule = lambda asked: error("NoSuchBucket", 404)
    halves = await (await site_of(stub_settings)).start()
    assert "NoSuchBucket" in halves.control.condition()
    assert "create the bucket" in halves.control.condition()
    await _passing(halves, standing.RETRY_S[-1], lambda: len(stub.asked) > 3)
    assert len(_lines(caplog)) == 1, "the same reason is logged once"
    stub.rule = lambda asked: None
    before = halves.host.offers_changed_count
    await _passing(halves, standing.RETRY_S[-1], lambda: _offers(halves))
    assert halves.host.offers_changed_count > before


async def test_a_bucket_that_gives_other_bytes_back_is_off(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    """A store that keeps a checksum's trailer as the last bytes of the file."""

    def spoil(asked: Asked) -> Says | None:
        return stub._keep(asked.path, asked.body + b"0\r\n", {}) if asked.method == "PUT" else None

    stub.rule = spoil
    halves = await (await site_of(stub_settings)).start()
    assert halves.control.condition().startswith("off: ")
    assert stub.objects == {}


async def test_the_style_that_works_is_picked(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    """``localhost`` with another name in front is none, so the virtual style can't work here."""
    halves = await (await site_of(stub_settings)).start()
    assert (await halves.staged()).ticket.bucket.style == "path"


async def test_a_style_that_does_not_work_is_named_with_the_other(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    stub.rule = lambda asked: error("NoSuchBucket", 404)
    halves = await (await site_of(stub_settings, s3_addressing_style="virtual")).start()
    assert "CODEFYUI_S3_ADDRESSING_STYLE=path" in halves.control.condition()


async def test_a_store_that_cannot_be_reached_does_not_hold_up_the_start(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "FIRST_TRY_S", 0.05)
    release = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(asked: Asked) -> Says | None:
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)
        return None

    stub.rule = hang
    halves = await (await site_of(stub_settings)).start()
    assert halves.control.condition() == "off: bucket codefyui is being tried"
    release.set()
    await until(lambda: halves.control.condition().startswith("on: "))


@pytest.mark.spec("s3/changed-bucket-affects-new-runs-only")
async def test_changed_settings_are_tried_before_a_run_uses_them(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves = await (await site_of(stub_settings)).start()
    first = await halves.staged()
    halves.host.given |= {"s3_bucket": "other", "s3_prefix": "q/"}
    with pytest.raises(Busy):
        await halves.staged()
    await until(lambda: halves.control.condition().startswith("on: "))
    second = await halves.staged()
    assert (first.ticket.bucket.name, first.ticket.prefix) == ("codefyui", "")
    assert (second.ticket.bucket.name, second.ticket.prefix) == ("other", "q/")


async def test_a_bucket_that_is_switched_on_while_the_server_runs_is_tried(
    site_of: MakeSite, stub_settings: dict[str, object]
) -> None:
    halves = await (await site_of(stub_settings | {"s3_enabled": False})).start()
    halves.host.given["s3_enabled"] = True
    await _passing(halves, standing.WATCH_S, lambda: _offers(halves))
    halves.host.given["s3_enabled"] = False
    await _passing(halves, standing.WATCH_S, lambda: not _offers(halves))


# ------------------------------------------------------------ offers


def _working() -> Working:
    from codefyui_storage_s3.models import Bucket, Style
    from codefyui_storage_s3.settings import S3Settings

    bucket = Bucket(
        name="codefyui", endpoint_url="http://minio.lab:9000", region="us-east-1", style=Style.PATH
    )
    return Working(bucket=bucket, settings=S3Settings.model_construct())


@pytest.mark.spec("s3/replaces-transfer-while-on", "s3/mount-worker-still-preferred")
def test_it_is_asked_after_shared_folders_and_before_the_transfer() -> None:
    backend = S3Backend()
    assert backend.kind is StorageKind.CARRIER
    assert backend.preference < 50
    assert isinstance(offer(_working(), FILES, WORKER, FACTS), Offer)


@pytest.mark.spec("s3/serves-same-runs-as-transfer")
def test_a_run_that_cannot_travel_is_refused_with_the_cores_reason() -> None:
    problem = "its inputs add up to 3.10 GiB, over the transfer limit of 2.00 GiB"
    answer = offer(_working(), RunFiles(uses_files=True, carry_problem=problem), WORKER, FACTS)
    assert isinstance(answer, Refusal)
    assert answer.because is Because.RUN
    assert answer.remedy == f"make the run fit the S3 backend: {problem}"
    assert answer.fallback == ""


@pytest.mark.spec("s3/incapable-worker-falls-back-to-transfer", "s3/fallback-warns-storage-fallback")
def test_a_worker_without_boto3_is_left_to_the_transfer_with_a_warning() -> None:
    answer = offer(_working(), FILES, WORKER, None)
    assert isinstance(answer, Refusal)
    assert answer.because is Because.WORKER
    assert "boto3" in answer.fallback
    assert WORKER.name in answer.fallback


def test_a_worker_whose_clock_is_off_signs_by_the_stores_and_is_served() -> None:
    assert isinstance(offer(_working(), FILES, replace(WORKER, clock_skew_s=3600), FACTS), Offer)


@pytest.mark.spec("s3/fallback-warns-storage-fallback")
def test_a_bucket_that_should_work_and_does_not_warns_each_run() -> None:
    answer = offer(Off(reason="it can't be reached", wanted=True), FILES, WORKER, FACTS)
    assert isinstance(answer, Refusal)
    assert "it can't be reached" in answer.fallback
