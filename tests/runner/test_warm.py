"""What may be preloaded, and what happens when it may not."""

import asyncio
import os
import signal
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zygotes are Linux's")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "harmless_one.py").write_text("x = 1\n")
    (folder / "starts_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    (folder / "raises_error.py").write_text("raise RuntimeError('not here')\n")
    (folder / "ends_process.py").write_text("import os\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return folder


async def test_a_module_that_cannot_be_preloaded_is_left_out_and_named(bench, modules):
    wanted = ("harmless_one", "starts_thread", "raises_error", "ends_process", "run_behaviors")
    async with bench.supervisor(preload=wanted) as starter:
        await bench.warm(starter)
        assert set(starter.left_out) == {"starts_thread", "raises_error", "ends_process"}
        assert "thread" in starter.left_out["starts_thread"]
        assert "not here" in starter.left_out["raises_error"]
        lines, ending = await bench.run(starter, "report")
        assert "harmless_one" in lines[0]["payload"]["modules"]
        assert "starts_thread" not in lines[0]["payload"]["modules"]
        assert ending.exit_code == 0


async def test_without_any_module_left_runs_use_fresh_interpreters(bench, modules):
    async with bench.supervisor(preload=("starts_thread",)) as starter:
        _, ending = await bench.run(starter, "report")
        assert ending.exit_code == 0
        assert not starter.is_warm
        assert set(starter.left_out) == {"starts_thread"}


async def test_another_catalog_replaces_the_zygote_while_the_old_one_serves(bench, modules):
    async with bench.supervisor() as starter:
        await bench.warm(starter)
        before = starter.zygotes()
        process = await bench.begin(starter, "until_stopped")
        await starter.set_preload(("harmless_one", "run_behaviors"))
        assert starter.is_warm
        await bench.until(lambda: len(starter.zygotes()) == 1 and starter.zygotes() != before)
        lines, _ = await bench.run(starter, "report")
        assert "harmless_one" in lines[0]["payload"]["modules"]
        await process.stop(grace_s=60)
        lines, _ = await bench.finish(process)
        assert lines[-1]["payload"]["outcome"] == "stopped"


async def test_a_launch_during_a_replacement_waits_or_is_fresh_but_never_fails(bench):
    async with bench.supervisor() as starter:
        await bench.warm(starter)
        for _ in range(3):
            for pid in starter.zygotes():
                os.kill(pid, signal.SIGKILL)
            endings = await asyncio.gather(*(bench.run(starter, "report") for _ in range(2)))
            assert [ending.exit_code for _, ending in endings] == [0, 0]


@pytest.mark.spec("fingerprint/changed-checkout-is-recorded")
async def test_code_that_was_edited_after_the_zygote_started_is_what_the_next_run_executes(
    bench, modules, monkeypatch
):
    monkeypatch.setattr("codefyui_core.runner.code_state._packages", lambda points: [modules])
    async with bench.supervisor(preload=("harmless_one", "run_behaviors")) as starter:
        await bench.warm(starter)
        before = starter.zygotes()
        await bench.run(starter, "report")
        assert starter.zygotes() == before
        (modules / "harmless_one.py").write_text("x = 22\n")
        _, ending = await bench.run(starter, "report")
        assert ending.exit_code == 0
        assert starter.zygotes() != before
