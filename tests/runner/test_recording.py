"""What a run records is written after its outcome, and can't change it."""

import asyncio
import sys

import pytest

from codefyui_core.runner.api import Launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="keepers are Linux's")

FOREVER_S = 600


class Recorded:
    """One run that writes when it is over."""

    def __init__(self, bench, starter):
        self.bench = bench
        self.starter = starter
        self.folder = bench.folder

    async def begin(self, *, write="at once", writes_for_s=FOREVER_S, **options):
        launch = Launch(run_id="r" * 8, attempt=1, work_dir=self.folder, writes_for_s=writes_for_s)
        process = await self.starter.launch(launch)
        await process.ready()
        await process.go(self.bench.go(write=write, **options))
        return process

    async def begun(self, **options):
        """Its outcome is told, and read here, and its write has begun."""
        process = await self.begin(write="waits", **options)
        await self.writing(process)
        return process

    async def writing(self, process):
        await self.is_there("began")
        await self.bench.until(lambda: process._writing)

    async def is_there(self, name):
        await self.bench.until((self.folder / name).exists)

    def go_on(self):
        (self.folder / "go-on").touch()

    async def outcome(self, process):
        lines, ending = await self.bench.finish(process)
        return lines[-1]["payload"]["outcome"], ending

    @property
    def wrote(self):
        return (self.folder / "written").exists()


@pytest.fixture
async def recorded(bench):
    options = {"entry": "recording_behaviors:execute", "zygote": False}
    async with bench.supervisor(preload=(), **options) as starter:
        yield Recorded(bench, starter)


async def test_what_was_recorded_is_written_after_the_outcome(recorded):
    outcome, ending = await recorded.outcome(await recorded.begin())
    assert (outcome, ending.exit_code, recorded.wrote) == ("succeeded", 0, True)


async def test_a_write_that_fails_leaves_the_outcome_as_it_is(recorded):
    outcome, ending = await recorded.outcome(await recorded.begin(write="fails"))
    assert (outcome, ending.exit_code) == ("succeeded", 0)
    assert "No space left on device" in ending.stderr_tail[-1]


@pytest.mark.spec("setting/worker-outputs-write-timeout")
async def test_a_write_that_takes_too_long_is_ended_and_the_outcome_stands(recorded):
    outcome, ending = await recorded.outcome(await recorded.begin(write="waits", writes_for_s=0.3))
    assert (outcome, ending.signal, ending.stopped_in_time, recorded.wrote) == ("succeeded", 9, True, False)


async def test_a_stop_that_lets_it_write_waits_for_a_write_in_progress(recorded):
    process = await recorded.begun()
    await process.stop(0.0, lets_write=True)
    recorded.go_on()
    outcome, ending = await recorded.outcome(process)
    assert (outcome, ending.exit_code, recorded.wrote) == ("succeeded", 0, True)


async def test_a_stop_before_the_outcome_gives_its_grace_to_user_code_alone(recorded):
    process = await recorded.begin(write="waits", until_stopped=True)
    await process.stop(5.0, lets_write=True)
    await recorded.writing(process)
    assert process._timer.cancelled()
    recorded.go_on()
    outcome, ending = await recorded.outcome(process)
    assert (outcome, ending.exit_code, recorded.wrote) == ("stopped", 0, True)


async def test_any_other_stop_ends_a_write_after_its_grace(recorded):
    process = await recorded.begun()
    await process.stop(0.1)
    outcome, ending = await recorded.outcome(process)
    assert (outcome, ending.signal, ending.stopped_in_time, recorded.wrote) == ("succeeded", 9, True, False)


async def test_its_interpreter_gets_no_more_time_to_end_than_any_other(recorded, monkeypatch):
    monkeypatch.setattr("codefyui_core.runner.handle.LINGER_S", 20.0)
    process = await recorded.begun()
    recorded.go_on()
    outcome, _ = await recorded.outcome(process)
    loop = asyncio.get_running_loop()
    assert outcome == "succeeded"
    assert process._linger.when() - loop.time() < 21
