"""Inputs on their way to a worker: cached, fetched, damaged, held up, stopped."""

import asyncio
import logging

import pytest

from codefyui_core.agent.carrying import progress
from codefyui_core.agent.carrying.progress import size_text
from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Expired
from codefyui_core.files import Family
from codefyui_core.testing.clock import ManualClock
from codefyui_core.testing.doubles.faulty_backends import (
    BusyBackend,
    CorruptBackend,
    CrashingBackend,
    ExpiringBackend,
    RefusingBackend,
    SlowBackend,
)
from codefyui_core.testing.doubles.folder_backend import FolderBackend, Step
from codefyui_core.wire.messages import GrantMessage


async def ended(carried, stored):
    await carried.ended(stored)
    return stored.items[-1].payload


def details(carried, stored):
    return [one["detail"] for one in carried.warnings(stored, "transfer_progress")]


@pytest.mark.spec(
    "transfer/cached-input-not-downloaded-again",
    "transfer/progress-says-cached",
    "s3/inputs-share-agent-cache",
)
async def test_the_same_content_is_fetched_once_whatever_its_name_run_or_backend(carried):
    item, first = carried.upload("train.csv"), carried.backend
    other = carried.use(SlowBackend(carried.spool, held=()))
    carried.use(first)
    await carried.line.agent()
    stored, process = await carried.begin("r1", item)
    process.end("succeeded")
    await carried.ended(stored)
    for backend in (first, other):
        carried.backend = backend
        run = f"again-{backend.name}"
        stored, process = await carried.begin(run, item.model_copy(update={"name": "other.csv"}))
        assert (carried.data(run) / "files/other.csv").read_bytes() == b"1,2\n"
        process.end("succeeded")
        await carried.ended(stored)
        assert details(carried, stored) == ["fetching inputs 1/1: other.csv (4 B, cached)"]
    assert (first.steps + other.steps).count(Step.FETCH) == 1


async def test_progress_says_where_each_file_is_in_numbers_too(carried):
    await carried.line.agent()
    stored, process = await carried.begin("r1", carried.upload("a.csv"), carried.upload("b.csv", b"12345"))
    process.end("succeeded")
    await carried.ended(stored)
    (_, last) = carried.warnings(stored, "transfer_progress")
    assert (last["direction"], last["index"], last["count"]) == ("in", 2, 2)
    size = (carried.data() / "files" / last["file"]).stat().st_size
    assert (last["bytes_done"], last["bytes_total"]) == (size, size)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_258_291, "1.2 MiB"), (1_048_570, "1.0 MiB"),
     (3_328_599_654, "3.1 GiB"), (1 << 50, "1024.0 TiB")],
)  # fmt: skip
def test_sizes_are_told_with_one_decimal_in_binary_units(size, text):
    assert size_text(size) == text


async def test_runs_that_need_the_same_file_at_once_fetch_it_once(carried):
    backend = carried.use(SlowBackend(carried.spool))
    item = carried.upload("train.csv")
    await carried.line.agent()
    first, second = await carried.assign("r1", item), await carried.assign("r2", item)
    await asyncio.wait_for(backend.waiting.wait(), 10)
    backend.release()
    for number in range(2):
        process = await carried.line.starter.process(number)
        process.end("succeeded")
    await carried.ended(first)
    await carried.ended(second)
    assert backend.steps.count(Step.FETCH) == 1
    assert sorted(details(carried, first) + details(carried, second)) == [
        "fetching inputs 1/1: train.csv (4 B, cached)",
        "fetching inputs 1/1: train.csv (4 B, fetched)",
    ]


@pytest.mark.spec("transfer/downloaded-input-hash-verified")
async def test_wrong_bytes_are_fetched_once_more_and_then_the_run_fails_with_the_inputs_name(carried):
    backend = carried.use(CorruptBackend(carried.spool, times=3))
    item = carried.upload("train.csv")
    await carried.line.agent()
    end = await ended(carried, await carried.assign("r1", item))
    assert (end["outcome"], end["cause"]) == ("failed", "storage")
    assert "the input train.csv can't be fetched" in end["error"]
    assert carried.cached() == []
    assert not (carried.data() / "files/train.csv").exists()
    assert backend.steps.count(Step.FETCH) == 2
    _, process = await carried.begin("r2", item)
    assert (carried.data("r2") / "files/train.csv").read_bytes() == b"1,2\n"
    process.end("succeeded")


@pytest.mark.parametrize(
    ("backend", "says"),
    [
        (lambda spool: RefusingBackend(spool, at={Step.FETCH}), "refused by the test"),
        (lambda spool: CrashingBackend(spool, at={Step.FETCH}), "a bug in the plugin"),
        (FolderBackend, "No such file"),
    ],
)
async def test_an_input_that_can_not_be_had_fails_the_run_without_a_start(carried, backend, says):
    carried.use(backend(carried.spool))
    item = carried.upload("train.csv")
    if says == "No such file":
        (carried.spool / item.sha256).unlink()
    await carried.line.agent()
    stored = await carried.assign("r1", item)
    end = await ended(carried, stored)
    assert (end["outcome"], end["cause"]) == ("failed", "storage")
    assert end["error"].startswith("the input train.csv can't be fetched: ")
    assert says in end["error"]
    assert carried.line.starter.processes == []
    assert stored.kinds[-1] == "end"
    assert "exited" not in stored.kinds


@pytest.mark.parametrize("name", ["../up.csv", "/etc/up.csv", "a/../../up.csv", "c:up.csv"])
async def test_a_hostile_name_fails_the_run_and_writes_nothing(carried, name):
    item = carried.upload("x").model_copy(update={"name": name})
    await carried.line.agent()
    end = await ended(carried, await carried.assign("r1", item))
    assert end["outcome"] == "failed"
    assert not list(carried.line.user_data.rglob("up.csv"))


@pytest.mark.parametrize("sha256", ["../../x", "ABC", "a" * 63, "/etc/passwd"])
async def test_a_hash_that_is_none_fails_the_run_and_names_no_file(carried, sha256):
    item = carried.upload("a.csv").model_copy(update={"sha256": sha256})
    await carried.line.agent()
    end = await ended(carried, await carried.assign("r1", item))
    assert (end["outcome"], end["cause"]) == ("failed", "storage")
    assert "is no SHA-256" in end["error"]


async def test_a_busy_backend_is_tried_again(carried):
    carried.use(BusyBackend(carried.spool, times=3))
    await carried.line.agent()
    stored, process = await carried.begin("r1", carried.upload("train.csv"))
    process.end("succeeded")
    await carried.ended(stored)


@pytest.mark.spec("s3/agent-keeps-credentials-in-memory-only", "s3/run-subprocess-does-not-get-credentials")
async def test_grants_are_renewed_when_they_ran_out_and_are_in_no_file_log_or_process(carried, caplog):
    caplog.set_level(logging.DEBUG)
    backend = carried.use(ExpiringBackend(carried.spool))

    class Strict(type(backend).grant):
        secret: str = ""

    type(backend).grant = Strict
    try:
        carried.grants = lambda: backend.grant_now().model_dump(mode="json") | {"secret": "s3cr3t-grant"}
        await carried.line.agent()
        grant = backend.grant_now().model_dump(mode="json") | {"secret": "s3cr3t-grant"}
        inputs = [carried.upload(f"{n}.csv", str(n).encode()) for n in range(3)]
        stored, process = await carried.begin("r1", *inputs, grant=grant, grant_version=1)
        assert {want.why for want in carried.wants} == {"expired"}
        assert all(want.have_version >= 1 for want in carried.wants)
        files = [path for path in carried.line.user_data.rglob("*") if path.is_file()]
        assert any(path.name == "files.log" for path in files)
        assert not [path for path in files if b"s3cr3t-grant" in path.read_bytes()]
        go, launch = process.went.result(), process.launch
        assert "s3cr3t-grant" not in f"{go.model_dump_json()} {launch}"
        process.end("succeeded")
        await carried.ended(stored)
        assert "s3cr3t-grant" not in caplog.text
    finally:
        del type(backend).grant


async def test_a_grant_that_can_t_be_read_is_told_without_its_values(carried, caplog):
    await carried.line.agent()
    stored = await carried.assign("r1", grant={"expires_in_s": "s3cr3t"}, grant_version=1)
    end = await ended(carried, stored)
    assert "credentials" in end["error"]
    assert "s3cr3t" not in caplog.text + str(end)


async def test_a_grant_that_comes_before_the_session_is_open_is_the_one_it_gets(carried):
    sessions, held = [], asyncio.Event()
    backend = carried.backend

    class Opening(type(backend)):
        def agent(self, host):
            half = super().agent(host)
            opened = half.open

            def slowly(attempt, ticket, grant):
                context = opened(attempt, ticket, grant)
                entered = context.__aenter__

                async def enter():
                    await held.wait()
                    sessions.append((await entered(), grant))
                    return sessions[-1][0]

                context.__aenter__ = enter
                return _Wrapped(context, enter)

            half.open = slowly
            return half

    carried.use(Opening(carried.spool))
    await carried.line.agent()
    stored = await carried.assign("r1", grant={"expires_in_s": 1.0}, grant_version=1)
    link = await carried.line.control.online()
    link.send(GrantMessage(run_id="r1", attempt=1, version=2, grant={"expires_in_s": 2.0}))
    await carried.line.control.ask_stop("none")
    await carried.line.until(lambda: link)  # the stop is read after the grant
    held.set()
    process = await carried.line.starter.process()
    await process.went
    ((session, given),) = sessions
    newest = session.grants[-1] if session.grants else given
    assert newest.expires_in_s == 2.0
    process.end("succeeded")
    await carried.ended(stored)


class _Wrapped:
    def __init__(self, context, enter):
        self._context = context
        self._enter = enter

    async def __aenter__(self):
        return await self._enter()

    async def __aexit__(self, *error):
        return await self._context.__aexit__(*error)


@pytest.mark.spec("transfer/stop-during-fetch-ends-cancelled")
async def test_a_stop_during_the_fetch_ends_the_run_without_a_start(carried, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.carrying.halt.SOON_S", 0.05)
    backend = carried.use(SlowBackend(carried.spool))
    await carried.line.agent()
    stored = await carried.assign("r1", carried.upload("train.csv"))
    await asyncio.wait_for(backend.waiting.wait(), 10)
    await carried.line.control.ask_stop()
    end = await ended(carried, stored)
    assert (end["stop_reason"], end["outcome"], end["error"]) == ("user", None, None)
    assert carried.line.starter.processes == []
    assert carried.cached() == []


async def test_a_stop_of_one_run_leaves_the_other_that_waits_for_the_same_file(carried, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.carrying.halt.SOON_S", 0.05)
    backend = carried.use(SlowBackend(carried.spool))
    item = carried.upload("train.csv")
    await carried.line.agent()
    first = await carried.assign("r1", item)
    await asyncio.wait_for(backend.waiting.wait(), 10)
    second = await carried.assign("r2", item)
    await carried.line.control.ask_stop("r1")
    await carried.ended(first)
    backend.release()
    process = await carried.line.starter.process()
    assert process.launch.run_id == "r2"
    await process.went
    process.end("succeeded")
    await carried.ended(second)


@pytest.mark.spec("transfer/overwritten-input-leaves-cache-intact", "transfer/overwritten-input-is-uploaded")
async def test_a_run_that_writes_over_its_input_changes_its_own_copy_and_delivers_it(carried):
    changed, same = carried.upload("a.csv", b"before"), carried.upload("b.csv", b"same")
    await carried.line.agent()
    stored, process = await carried.begin("r1", changed, same)
    carried.write("files/a.csv", "after")
    process.end("succeeded")
    await carried.ended(stored)
    (row,) = carried.artifacts(stored)
    assert (row["kind"], row["relative_path"], row["state"]) == ("output", "files/a.csv", "stored")
    assert carried.sent(row["artifact_id"]) == "after"
    assert (carried.cache / changed.sha256).read_bytes() == b"before"


async def test_what_is_damaged_in_the_cache_is_fetched_anew(carried):
    item = carried.upload("train.csv")
    await carried.line.agent()
    stored, process = await carried.begin("r1", item)
    process.end("succeeded")
    await carried.ended(stored)
    (carried.cache / item.sha256).write_bytes(b"xxxx")
    stored, process = await carried.begin("r2", item)
    assert (carried.data("r2") / "files/train.csv").read_bytes() == b"1,2\n"
    process.end("succeeded")
    await carried.ended(stored)
    assert details(carried, stored) == ["fetching inputs 1/1: train.csv (4 B, fetched)"]


@pytest.mark.spec("transfer/worker-data-folder-untouched", "transfer/cache-subfolder-shared-between-runs")
@pytest.mark.spec("transfer/dataset-downloads-go-to-worker-cache")
async def test_nothing_of_the_workers_own_folders_is_the_runs_but_what_runs_cache(carried):
    own = carried.line.install.folders()
    await carried.line.agent()
    stored, process = await carried.begin("r1", carried.upload("train.csv"))
    go = process.went.result()
    assert go.folders.moved == {"cache": str(own.of(Family.CACHE))}
    assert go.folders.downloads == str(carried.cache / "downloads")
    assert go.folders.data == str(carried.data())
    process.end("succeeded")
    await carried.ended(stored)


async def test_a_long_fetch_says_every_two_seconds_how_far_it_is(carried, monkeypatch):
    monkeypatch.setattr(progress, "SHOW_EVERY_S", 0.01)
    item = carried.upload("big.bin", b"x" * 3_000_000)
    release = asyncio.Event()
    backend = carried.backend

    class Half(type(backend)):
        def agent(self, host):
            half = super().agent(host)
            half.open = _watched(half.open, release)
            return half

    carried.use(Half(carried.spool))
    await carried.line.agent()
    stored = await carried.assign("r1", item)
    await carried.line.until(lambda: details(carried, stored))
    assert details(carried, stored) == ["fetching inputs 1/1: big.bin (1.0 MiB of 2.9 MiB)"]
    (told,) = carried.warnings(stored, "transfer_progress")
    assert (told["bytes_done"], told["bytes_total"], told["index"]) == (1 << 20, 3_000_000, 1)
    release.set()
    process = await carried.line.starter.process()
    await process.went
    process.end("succeeded")
    await carried.ended(stored)
    assert details(carried, stored)[-1] == "fetching inputs 1/1: big.bin (2.9 MiB, fetched)"


def _watched(opened, release):
    """Sessions that stop at the first mebibyte until they are released."""

    class Context:
        def __init__(self, *known):
            self._context = opened(*known)

        async def __aenter__(self):
            session = await self._context.__aenter__()
            fetch = session.fetch

            async def slowly(item, into, meter):
                meter.advance(1 << 20)
                await release.wait()
                return await fetch(item, into, _Rest(meter))

            session.fetch = slowly
            return session

        async def __aexit__(self, *error):
            return await self._context.__aexit__(*error)

    return Context


class _Rest:
    def __init__(self, meter):
        self._meter = meter

    def advance(self, n_bytes):
        self._meter.advance(n_bytes - (1 << 20))


async def test_an_input_of_a_lost_connection_fails_the_run_when_the_window_is_used_up(carried):
    await carried.grace(30)
    manual = ManualClock()
    carried.use(BusyBackend(carried.spool, times=10**6, at={Step.FETCH}))
    await carried.line.agent(clock=AttentiveClock(manual))
    stored = await carried.assign("r1", carried.upload("train.csv"))
    for _ in range(60):
        if stored.final:
            break
        await manual.advance(1)
        await asyncio.sleep(0.01)
    end = await ended(carried, stored)
    assert (end["outcome"], end["cause"]) == ("failed", "storage")
    assert "train.csv" in end["error"]


async def test_expired_is_what_a_session_says_when_no_grant_comes(carried):
    """The double's own way to say it, which the others here rest on."""
    backend = ExpiringBackend(carried.spool)
    with pytest.raises(Expired):
        await backend.before(Step.FETCH)


@pytest.mark.spec("s3/agent-log-lists-capabilities")
async def test_the_log_lists_what_the_agent_announced(carried, caplog):
    caplog.set_level(logging.INFO)
    await carried.line.agent()
    await carried.line.control.online()
    assert "announced storage: folder; connectors: direct" in caplog.text
