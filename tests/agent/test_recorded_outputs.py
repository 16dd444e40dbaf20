"""Recorded outputs of a worker: kept on its disk, read over its line, beside everything else."""

import asyncio
import base64
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from codefyui_core.agent import agent as agent_module
from codefyui_core.agent import command
from codefyui_core.agent.attempts import Batch
from codefyui_core.agent.reads import PIECE_BYTES, Reads
from codefyui_core.agent.session import AgentSession
from codefyui_core.clocks import AttentiveClock
from codefyui_core.engine import Limits, Recorder
from codefyui_core.errors import CodefyError
from codefyui_core.outputs import OutputStore, Question, What
from codefyui_core.wire import codec
from codefyui_core.wire.limits import READ_BYTES, READS
from codefyui_core.wire.messages import AgentBeat, Hello, ReadReply, ReadRequest, Stop, StopReason

VALUE = Question(what=What.VALUE, node="n", port="x", max_elements=1_000_000)


def record(store, run_id, **values):
    """What the process of a run does after its outcome."""
    recorder = Recorder(store, run_id, Limits())
    recorder.node("n", "Test", None, [SimpleNamespace(name=name) for name in values], values)
    recorder.write()


class Recorded:
    """A worker, and a run on it that records."""

    def __init__(self, line):
        self.line = line

    @property
    def folder(self):
        (folder,) = (self.line.user_data / "agent-outputs").iterdir()
        return folder

    async def begin(self, run_id="r1"):
        stored = await self.line.control.assign(run_id, options={"record_outputs": True})
        process = await self.line.starter.process(len(self.line.starter.processes))
        return stored, process, await process.went

    async def run(self, run_id="r1", **values):
        """To its end."""
        stored, process, go = await self.begin(run_id)
        store = OutputStore(
            Path(go.record.folder),
            limit_bytes=go.record.limit_bytes,
            keep_runs=go.record.keep_runs,
        )
        if values:
            record(store, run_id, **values)
        process.end("succeeded")
        await self.line.until(lambda: stored.final, "the end of the run")
        return stored

    async def ask(self, question=VALUE, run_id="r1"):
        link = await self.line.control.online()
        return await link.reads.ask(run_id, question, 60)


@pytest.fixture
async def recorded(line):
    await line.agent()
    return Recorded(line)


@pytest.mark.spec("limits/captures-stay-on-worker")
async def test_what_a_run_records_is_kept_by_its_worker_and_read_over_its_line(recorded):
    stored = await recorded.run(x=torch.arange(6.0).reshape(2, 3))
    assert stored.kinds == ["accepted", "exited", "end"]
    answer = await recorded.ask(Question(what=What.VALUE, node="n", port="x", slice="1,:"))
    assert answer.head["selected"] == [3]
    assert answer.body == torch.tensor([3.0, 4.0, 5.0]).numpy().tobytes()
    assert [path.name for path in recorded.folder.iterdir()] == ["r1"]


async def test_a_large_value_comes_whole(recorded):
    tensor = torch.rand(1000, 1000)
    await recorded.run(x=tensor)
    answer = await recorded.ask()
    assert answer.body == tensor.numpy().tobytes()


async def test_a_run_is_told_where_to_record_and_for_how_long_it_may_write(recorded):
    _, process, go = await recorded.begin()
    assert process.launch.writes_for_s == 300
    assert go.record.limit_bytes == 2048 << 20
    assert Path(go.record.folder).parent == recorded.line.user_data / "agent-outputs"
    process.end("succeeded")


async def test_a_run_that_does_not_record_is_told_nothing(line):
    await line.agent()
    await line.control.assign()
    process = await line.starter.process()
    go = await process.went
    assert (go.record, process.launch.writes_for_s) == (None, None)
    process.end("succeeded")


@pytest.mark.spec("setting/worker-outputs-write-timeout")
async def test_a_write_that_was_cut_short_is_said_in_the_log_and_changes_no_outcome(recorded):
    stored, process, go = await recorded.begin()
    OutputStore(Path(go.record.folder), limit_bytes=0).begin("r1")
    process.say("outcome", payload={"outcome": "succeeded", "error": None, "cause": None})
    process.end(signal=9)
    await recorded.line.until(lambda: stored.final, "the end of the run")
    assert stored.final == "succeeded"
    (warning,) = [one.payload for one in stored.items if one.type == "run_warning"]
    assert warning["kind"] == "outputs_not_recorded"
    assert list(recorded.folder.iterdir()) == []


async def test_what_was_never_recorded_is_refused_in_words(recorded):
    await recorded.run(x=1)
    for question in (Question(what=What.VALUE, node="n", port="y"), Question(what=What.STEPS, node="m")):
        with pytest.raises(CodefyError) as refused:
            await recorded.ask(question)
        assert refused.value.code == "outputs.not_found"
    with pytest.raises(CodefyError) as refused:
        await recorded.ask(Question(what=What.VALUE, node="n", port="x"), run_id="r2")
    assert refused.value.code == "outputs.not_found"


@pytest.mark.spec("limits/captures-need-connection")
async def test_an_agent_that_started_again_still_has_them(recorded):
    await recorded.run(x=torch.ones(3))
    line = recorded.line
    await line.agents[0].stop()
    await line.control.offline()
    assert line.control.service.reads("any") is None
    await line.agent()
    assert len((await recorded.ask()).body) == 12


async def test_a_start_removes_what_a_killed_write_left(recorded):
    await recorded.run(x=1)
    OutputStore(recorded.folder, limit_bytes=0).begin("r9")
    line = recorded.line
    await line.agents[0].kill()
    await line.control.offline()
    await line.agent()
    await line.control.online()
    assert [path.name for path in recorded.folder.iterdir()] == ["r1"]


@pytest.mark.spec("setting/agent-stop-waits-for-outputs-write")
async def test_a_stop_of_the_agent_waits_for_a_write_in_progress(recorded, monkeypatch):
    monkeypatch.setattr(agent_module, "STOP_GRACE_S", 0.0)
    monkeypatch.setattr(agent_module, "KILL_WITHIN_S", 0.0)
    line = recorded.line
    stored, process, go = await recorded.begin()
    line.agents[0].stop_asked.set()
    await line.until(lambda: process.stops, "the stop")
    assert process.lets_write
    for _ in range(20):  # a stop that doesn't wait would go on at once
        await asyncio.sleep(0)
    assert not line.agents[0].task.done()
    record(OutputStore(Path(go.record.folder), limit_bytes=0), "r1", x=1)
    process.end("succeeded")
    assert await line.agents[0].ended() == 0
    assert stored.final == "succeeded"
    assert [path.name for path in recorded.folder.iterdir()] == ["r1"]


async def test_a_stop_by_the_user_does_not_wait_for_a_write(recorded):
    stored, process, _ = await recorded.begin()
    await recorded.line.control.ask_stop(reason=StopReason.USER)
    await recorded.line.until(lambda: process.stops, "the stop")
    assert not process.lets_write
    process.end("stopped")
    await recorded.line.until(lambda: stored.final, "the end")


@pytest.mark.spec("setting/agent-stop-waits-for-outputs-write")
def test_the_stop_command_gives_an_agent_that_writes_its_time(monkeypatch):
    def waited(writes):
        """How long it waits for one that never ends and writes for so long."""
        now = [0.0]
        monkeypatch.setattr(command.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(command.time, "sleep", lambda _: now.__setitem__(0, now[0] + 1))
        monkeypatch.setattr(command, "_reap", lambda _: None)
        found = SimpleNamespace(pid=0, lives=True)
        assert not command._gone(found, 30.0, lambda: now[0] < writes, 300.0)
        return now[0]

    assert waited(writes=0) == 31
    assert waited(writes=200) == 230
    assert waited(writes=10_000) == 360


# ------------------------------------------------------------ beside everything else


@pytest.fixture
async def reads(tmp_path):
    store = OutputStore(tmp_path, limit_bytes=0)
    record(store, "r", x=torch.zeros(1000, 200), y=torch.ones(2))
    made = Reads(store, news=lambda: None, log=logging.getLogger("test"))
    yield made
    await made.aclose()


def request(read_id, port="x", what="value"):
    return ReadRequest(id=read_id, run_id="r", what=what, node="n", port=port, max_elements=1_000_000)


async def answered(reads, count):
    async with asyncio.timeout(15):
        while len(reads._replies) < count:
            await asyncio.sleep(0.002)


async def test_an_answer_leaves_in_parts_that_are_not_larger_than_agreed(reads):
    reads.ask(request("a"))
    await answered(reads, 1)
    parts = []
    while (part := reads.next_part()) is not None:
        parts.append(part)
    assert [part.part for part in parts] == list(range(len(parts)))
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(len(codec.encode(part)) <= READ_BYTES for part in parts)
    assert sum(len(base64.b64decode(part.bytes)) for part in parts) == 800_000 > PIECE_BYTES


async def test_answers_share_the_line_part_by_part(reads):
    reads.ask(request("a"))
    reads.ask(request("b"))
    await answered(reads, 2)
    assert [reads.next_part().id for _ in range(4)] == ["a", "b", "a", "b"]


async def test_a_read_that_nobody_waits_for_any_more_sends_nothing(reads):
    reads.ask(request("a"))
    await answered(reads, 1)
    reads.next_part()
    reads.ask(request("a", what="cancel"))
    assert reads.next_part() is None
    reads.ask(request("b"))
    reads.ask(request("b", what="cancel"))
    reads.ask(request("c", "y"))
    await answered(reads, 1)
    assert reads.next_part().id == "c"
    assert reads.next_part() is None


async def test_more_reads_than_agreed_are_put_off(reads):
    for number in range(READS + 1):
        reads.ask(request(str(number)))
    await answered(reads, READS + 1)
    refused = [reply for reply in reads._replies if isinstance(reply, ReadReply)]
    assert [reply.code for reply in refused] == ["server.busy"]


async def test_a_broken_line_drops_all_answers(reads):
    reads.ask(request("a"))
    await answered(reads, 1)
    reads.ask(request("b"))
    reads.disconnected()
    assert reads.next_part() is None


class Socket:
    """Takes frames, and is closed after the last that is expected."""

    closed = False

    def __init__(self, expected):
        self.frames = []
        self.expected = expected
        self.full = asyncio.Event()

    async def send_frame(self, data, _type):
        self.frames.append(codec.decode(data.decode(), codec.FROM_AGENT))
        if len(self.frames) == self.expected:
            self.full.set()

    def __aiter__(self):
        return self

    async def __anext__(self):
        await self.full.wait()
        raise StopAsyncIteration

    async def close(self):
        self.closed = True


class Duty:
    """Has items and parts of an answer to send; a beat becomes due while the first part is taken."""

    def __init__(self):
        self.items = [items_frame(number) for number in (1, 2)]
        self.parts = [ReadReply(id="a", part=number, last=number == 1) for number in (0, 1)]
        self.session = None

    def hello(self):
        return Hello(
            protocol=1, version="1", name="n", incarnation="i", home_id="h", machine_id="m", attempts=()
        )

    def gathering_s(self, window_bytes):
        return 0.0

    async def next_batch(self, window_bytes):
        return self.items.pop(0) if self.items else None

    def next_part(self):
        if len(self.parts) == 2:
            self.session.send(AgentBeat())
            self.items.append(items_frame(3))
        return self.parts.pop(0) if self.parts else None


def items_frame(number):
    item = b'{"kind":"event","type":"log","payload":{}}'
    key = Stop(run_id="r", attempt=1, reason=StopReason.USER)
    return Batch(codec.items_frame(key, "l", number, [item]), number)


async def test_items_and_beats_go_before_parts_of_answers():
    socket, duty = Socket(expected=7), Duty()
    duty.session = session = AgentSession(socket, duty, AttentiveClock(), logging.getLogger("test"))
    session._window_bytes = 1 << 20
    async with asyncio.timeout(15):
        await session.run()
    assert [frame.t for frame in socket.frames] == [
        "hello", "items", "items", "beat", "read_reply", "items", "read_reply",
    ]  # fmt: skip
