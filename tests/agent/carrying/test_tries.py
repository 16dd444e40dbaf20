"""What becomes of a transfer that fails: tried again, once more, or given up."""

import asyncio
import json
import logging

import pytest

from codefyui_core.agent.carrying.grants import Grants
from codefyui_core.agent.carrying.halt import Halt
from codefyui_core.agent.carrying.meter import STILL_S
from codefyui_core.agent.carrying.tries import Line, Tries
from codefyui_core.agent.publishing import publish_in_place
from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import Busy, Corrupt, Expired, Refused, StorageProblem, TransferStopped
from codefyui_core.files import Folders
from codefyui_core.plugin.storage import Receipt, Workspace
from codefyui_core.testing.clock import ManualClock
from codefyui_core.wire.messages import AttemptKey, GrantMessage

GRACE_S = 100.0


class World:
    """Time by hand, a line that can be cut, and transfers that fail as they are told."""

    def __init__(self):
        self.manual = ManualClock()
        self.clock = AttentiveClock(self.manual)
        self.ticking = asyncio.create_task(self.clock.run())
        self.contact = asyncio.Event()
        self.contact.set()
        self.news = asyncio.Event()
        self.wants = []
        self.grants = Grants()
        self.halt = Halt()
        self.tries = Tries(
            AttemptKey(run_id="r1", attempt=1),
            grace_s=GRACE_S,
            grants=self.grants,
            line=Line(want_grant=self.wants.append, contact=self.contact.wait, news=self.news.wait),
            clock=self.clock,
            halt=self.halt,
            log=logging.getLogger("test"),
        )
        self.began = {}
        self.attentive = {}

    def start(self, name, *fails):
        """A transfer that fails with each of those, the last one for ever, then works; ``began`` says when, and
        ``attentive`` by the clock that counts the window.
        """
        at = self.began.setdefault(name, [])
        attentive = self.attentive.setdefault(name, [])
        left = list(fails)

        async def once(_meter):
            at.append(self.manual.monotonic())
            attentive.append(self.clock.monotonic())
            if not left:
                return name
            failure = left[0] if len(left) == 1 and left[0] is FOREVER else left.pop(0)
            if failure is FOREVER:
                raise Busy("unreachable")
            raise failure

        return asyncio.create_task(self.tries.done(name, once))

    async def passes(self, seconds):
        await self.manual.settle()
        await self.manual.advance(seconds)

    def grant(self, version):
        self.grants.came(GrantMessage(run_id="r1", attempt=1, version=version, grant={}))
        self.grants.handed(version)


FOREVER = object()


@pytest.fixture
async def world():
    made = World()
    await made.manual.settle()
    yield made
    made.ticking.cancel()
    made.tries.close()


@pytest.mark.spec("transfer/retry-when-control-plane-unreachable", "transfer/retry-waits-grow")
async def test_a_busy_transfer_is_tried_again_after_growing_waits(world):
    task = world.start("a", Busy("502"), Busy("503"), Busy("504"))
    await world.passes(10)
    assert await task == "a"
    assert world.began["a"] == [0, 1, 3, 7]


@pytest.mark.spec(
    "transfer/retry-window-shared-by-all-files",
    "transfer/remaining-files-tried-once-after-window",
    "transfer/retry-window-is-resume-grace",
)
async def test_once_the_window_of_all_files_is_used_up_each_one_left_is_tried_once(world):
    early = world.start("early", FOREVER)
    await world.passes(GRACE_S - 1)
    late = world.start("late", FOREVER)
    await world.passes(GRACE_S)
    for task in (early, late):
        with pytest.raises(Busy):
            await task
    for name in ("early", "late"):
        assert len([at for at in world.attentive[name] if at >= GRACE_S]) == 1, name
    never_tried = world.start("last", FOREVER)
    await world.passes(0)
    with pytest.raises(Busy):
        await never_tried
    assert len(world.began["last"]) == 1


async def test_a_delivered_file_starts_the_window_anew(world):
    slow = world.start("slow", FOREVER)
    await world.passes(GRACE_S - 10)
    assert await world.start("other") == "other"
    await world.passes(GRACE_S - 10)
    assert not slow.done()
    await world.passes(2 * GRACE_S)
    with pytest.raises(Busy):
        await slow


async def test_sleep_of_the_machine_uses_nothing_of_the_window(world):
    slow = world.start("slow", FOREVER)
    await world.passes(50)
    world.manual.jump(10_000)
    await world.passes(50)
    assert not slow.done()
    assert not world.tries.window.used_up(world.clock.monotonic())
    slow.cancel()


async def test_a_new_connection_ends_a_wait(world):
    task = world.start("a", *[Busy("no line")] * 5)
    await world.passes(20)
    before = len(world.began["a"])
    world.news.set()
    await world.manual.settle()
    assert len(world.began["a"]) > before
    assert world.began["a"][before] == 20
    task.cancel()


async def test_the_last_try_waits_for_a_connection(world):
    task = world.start("a", *[Busy("no line")] * 12)
    world.contact.clear()
    await world.passes(3 * GRACE_S)
    assert not task.done()
    tried = len(world.began["a"])
    world.contact.set()
    await world.passes(0)
    assert len(world.began["a"]) == tried + 1
    task.cancel()


@pytest.mark.spec("s3/expired-temporary-credentials-retried")
async def test_an_expired_grant_is_asked_for_and_the_transfer_goes_on_with_the_next(world):
    world.grant(1)
    task = world.start("a", Expired("ran out"))
    await world.manual.settle()
    assert [(want.run_id, want.have_version) for want in world.wants] == [("r1", 1)]
    world.grant(2)
    await world.manual.settle()
    assert await task == "a"
    assert world.began["a"] == [0, 0]


async def test_a_grant_that_doesn_t_come_is_asked_for_again_within_the_same_window(world):
    task = world.start("a", *[Expired("ran out")] * 100)
    await world.passes(3 * GRACE_S)
    with pytest.raises(Expired):
        await task
    assert len(world.wants) >= 5
    assert len([at for at in world.attentive["a"] if at >= GRACE_S]) == 1


async def test_a_grant_that_came_meanwhile_is_used_at_once(world):
    calls = []

    async def once(_meter):
        calls.append(world.grants.given)
        if world.grants.given < 7:
            world.grant(7)
            raise Expired("the old one ran out")
        return "sent"

    assert await world.tries.done("a", once) == "sent"
    assert calls == [0, 7]
    assert world.wants == []


@pytest.mark.parametrize(("failures", "works"), [(1, True), (2, False)])
async def test_wrong_bytes_are_tried_once_more(world, failures, works):
    task = world.start("a", *[Corrupt("other bytes")] * failures)
    if works:
        assert await task == "a"
    else:
        with pytest.raises(Corrupt):
            await task
        assert len(world.began["a"]) == 2


@pytest.mark.parametrize(
    "failure", [Refused("too large"), OSError("stale"), RuntimeError("a bug in the plugin")]
)
async def test_a_refusal_and_a_plugins_bug_are_final(world, failure, caplog):
    with pytest.raises(StorageProblem) as caught:
        await world.start("a", failure)
    assert isinstance(caught.value, Refused)
    assert len(world.began["a"]) == 1


async def test_a_halt_ends_a_wait_at_once(world):
    task = world.start("a", FOREVER)
    await world.passes(20)
    world.halt.give()
    with pytest.raises(TransferStopped):
        await task


async def test_a_halt_lets_a_transfer_end_by_itself_that_is_about_to(world):
    begun, go = asyncio.Event(), asyncio.Event()

    async def once(_meter):
        begun.set()
        await go.wait()
        return "sent"

    task = asyncio.create_task(world.tries.done("a", once))
    await begun.wait()
    world.halt.give()
    go.set()
    assert await task == "sent"


async def test_a_halt_cancels_a_transfer_that_hangs(world, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.carrying.halt.SOON_S", 0.01)
    ended = asyncio.Event()

    async def once(_meter):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(world.tries.done("a", once))
    await world.manual.settle()
    world.halt.give()
    with pytest.raises(TransferStopped):
        await task
    assert ended.is_set()


async def test_files_that_wait_for_the_same_grant_ask_for_it_once(world):
    tasks = [world.start(str(number), Expired("ran out")) for number in range(8)]
    await world.manual.settle()
    assert len(world.wants) == 1
    world.grant(1)
    await asyncio.gather(*tasks)


async def test_a_try_in_which_nothing_moves_counts_as_failed(world):
    begun = []

    async def once(meter):
        begun.append(world.manual.monotonic())
        meter.advance(1)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "sent"

    task = asyncio.create_task(world.tries.done("a", once))
    await world.passes(STILL_S - 10)
    assert len(begun) == 1
    await world.passes(30)
    assert await task == "sent"
    assert len(begun) == 2


@pytest.mark.parametrize("n_bytes", [1, 0])
async def test_a_try_that_moves_or_waits_for_others_takes_as_long_as_it_takes(n_bytes, world):
    async def once(meter):
        for _ in range(10):
            await world.manual.sleep(STILL_S - 30)
            meter.advance(n_bytes)
        return "sent"

    task = asyncio.create_task(world.tries.done("a", once))
    await world.passes(10 * STILL_S)
    assert await task == "sent"


# ---------------------------------------------------------------- files that are published in place


class Share:
    """The session of a shared folder that is away at first."""

    def __init__(self, root, *fails):
        self.workspace = Workspace(folders=Folders(root=root), private=False)
        self.fails = list(fails)

    async def publish(self, output, path, notes, progress):
        if self.fails:
            raise self.fails[0] if self.fails[0] is GONE else self.fails.pop(0)
        return Receipt(sha256="0" * 64, size_bytes=1)


class Said:
    def __init__(self):
        self.items = []

    async def append(self, kind, payload):
        self.items.append(json.loads(payload))


GONE = Busy("the share is away")


@pytest.mark.parametrize(
    ("fails", "state", "warned"),
    [((), "stored", 0), ((Busy("away"), Busy("away")), "stored", 0), ((GONE,), "on_worker", 1)],
)
async def test_a_file_in_a_shared_folder_that_is_away_waits_for_it_a_while(
    world, tmp_path, fails, state, warned
):
    payload = {"artifact_id": "a1", "kind": "checkpoint", "path": str(tmp_path / "models" / "m.pt")}
    stream = Said()
    telling = asyncio.create_task(
        publish_in_place(
            Share(tmp_path, *fails), "mount", payload, world.tries, stream, logging.getLogger("test")
        )
    )
    await world.passes(2 * GRACE_S)
    assert (await telling)["state"] == state
    assert len(stream.items) == warned
