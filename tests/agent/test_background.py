"""Agents in processes of their own, with the real helper and without a run."""

import asyncio
import os

import psutil
import pytest
from click.testing import CliRunner

from codefyui_core._version import __version__
from codefyui_core.agent.command import (
    background_keys,
    start_background,
    statuses,
    stop_background,
)
from codefyui_core.agent.lock import PidFile
from codefyui_core.agent.places import Places
from codefyui_core.agent.plan import AgentPlan
from codefyui_core.cli.agent import agent_command
from codefyui_core.cli.context import Context
from codefyui_core.errors import LinkProblem, StartProblem


@pytest.fixture
async def here(line, monkeypatch, tmp_path):
    """The process's own environment says where everything is, and that the core's nodes are enough."""
    monkeypatch.setenv("CODEFYUI_USER_DATA_DIR", str(line.user_data))
    monkeypatch.setenv("CODEFYUI_PLUGINS_ONLY", "builtin")
    monkeypatch.setenv("CODEFYUI_RUN_ZYGOTE", "0")
    for name in ("CODEFYUI_DIR", "CODEFYUI_AGENT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    await line.control.crash()
    line.control.version = __version__
    await line.control.start()
    yield line
    for key in background_keys(line.user_data):
        await asyncio.to_thread(stop_background, line.user_data, key)


def listening(pid):
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return [
        one for each in family for one in each.net_connections("inet") if one.status == psutil.CONN_LISTEN
    ]


@pytest.mark.service
@pytest.mark.spec("service/default-start-backgrounds", "service/agent-stop-stops-background")
@pytest.mark.spec("overview/worker-listens-on-no-port", "overview/agent-always-dials-out")
@pytest.mark.spec("catalog/helper-process-at-start", "overview/worker-never-opens-database")
async def test_a_background_agent_from_start_to_stop(here):
    control = here.control
    plan = AgentPlan(url=control.url, name="bg", token=await control.token())
    name = await asyncio.to_thread(start_background, plan, here.install)
    assert name == "bg"
    link = await control.online()
    key = f"127.0.0.1-{control.port}"
    pid = PidFile.read(Places(user_data=here.user_data, key=key).pid)
    assert pid.lives
    assert link.hello.pid == pid.pid
    assert link.node_types is None or "Print" in link.node_types
    assert link.hello.catalog_hash
    assert listening(pid.pid) == []
    opened = [one.path for one in psutil.Process(pid.pid).open_files()]
    assert not [path for path in opened if path.endswith(".db")]
    assert "0123" not in "".join(psutil.Process(pid.pid).cmdline())
    with pytest.raises(StartProblem, match="runs already"):
        await asyncio.to_thread(start_background, plan, here.install)
    assert [(one.key, one.running) for one in statuses(here.user_data)] == [(key, True)]
    assert await asyncio.to_thread(stop_background, here.user_data, key)
    await control.offline()
    assert not pid.lives
    assert here.desk.downs[-1] == "the agent left (stopping)"
    assert [(one.key, one.running) for one in statuses(here.user_data)] == [(key, False)]
    assert not await asyncio.to_thread(stop_background, here.user_data, key)


@pytest.mark.service
async def test_a_background_agent_that_can_not_start_says_why_here(here):
    plan = AgentPlan(url=here.control.url, token="abcdef.0123456789abcdef")
    with pytest.raises(LinkProblem, match=r"^The enrollment was refused: .* that enrollment token") as caught:
        await asyncio.to_thread(start_background, plan, here.install)
    assert caught.value.exit_code == 1
    assert background_keys(here.user_data) == []


def run(here, *words):
    context = Context(environ=os.environ)
    return CliRunner().invoke(agent_command, words, obj=context)


async def test_the_commands_say_what_there_is(here):
    await here.control.crash()
    here.control.version = "1.2.3"
    await here.control.start()
    assert "No agent here" in run(here, "status").output
    assert "No background agent" in run(here, "stop").output
    assert "There was no credential" in run(here, "forget", here.control.url).output
    await here.agent()
    await here.control.online()
    listed = run(here, "status").output
    assert f"127.0.0.1-{here.control.port}" in listed
    assert "running" in listed
    assert '"name":"box"' in run(here, "status", "--json").output


@pytest.mark.spec("catalog/no-plugin-copy-command")
async def test_there_are_four_commands_and_none_copies_plugins(here):
    assert sorted(agent_command.commands) == ["forget", "start", "status", "stop"]


async def test_wrong_flags_are_usage_problems(here):
    from codefyui_core.errors import UsageProblem

    for words in (("--control", "http://"), ("--control", ""), ("--control", "http://a", "--name", "a.b")):
        result = run(here, "start", *words)
        assert isinstance(result.exception, UsageProblem), words
