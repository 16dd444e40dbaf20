"""Where a run could go: the server and the connected workers, matched with what a run needs."""

from collections.abc import Callable, Iterator, Sequence

from codefyui_core.control.runs.desk import WorkerDirectory, WorkerLink
from codefyui_core.runs.options import AnyTarget, PoolTarget, WorkerTarget
from codefyui_core.runs.queue import Candidate, Capacity, Lines, Slot, Waiting, kind_of, matching
from codefyui_core.wire.messages import DeviceInfo

from .board import Needs
from .offers import Served, Storages

SERVER = ""
"""The server's own identity among places."""
ONCE = "one-shot"
"""A slot beside the devices of an agent that takes one run."""


class HeldOff:
    """Places and runs that they refused a moment ago."""

    def __init__(self) -> None:
        self._pairs: set[tuple[str, str]] = set()
        self._lifted: set[str] = set()

    def __contains__(self, pair: tuple[str, str]) -> bool:
        return pair in self._pairs

    def add(self, pair: tuple[str, str]) -> None:
        self._pairs.add(pair)

    def discard(self, pair: tuple[str, str]) -> None:
        self._pairs.discard(pair)
        self._lifted.add(pair[1])

    def lifted(self) -> set[str]:
        """Runs that were held off until lately; told once."""
        lifted, self._lifted = self._lifted, set()
        return lifted


class Places:
    """The places of this server, as they are now."""

    def __init__(
        self,
        *,
        workers: WorkerDirectory,
        storages: Storages,
        server_devices: Callable[[], Sequence[DeviceInfo]],
        capacity: Capacity,
    ) -> None:
        self._workers = workers
        self._storages = storages
        self._server_devices = server_devices
        self._capacity = capacity
        self._shared: dict[Slot, Slot] = {}
        self._names: dict[str, str] = {SERVER: "server"}
        self.spent: set[tuple[str, str]] = set()
        """One-shot agents (identity, incarnation) that got their run."""
        self.held_off = HeldOff()
        self._seen: Sequence[object] = ()

    def changed(self) -> bool:
        """Does any place offer something else than when this was asked last? Then runs may fit elsewhere."""
        seen = [
            tuple((info.device, info.uuid) for info in self._server_devices()),
            *(self._offer(link) for link in self._workers.live()),
        ]
        changed, self._seen = seen != self._seen, seen
        return changed

    def forget(self) -> None:
        """Something that ``changed`` doesn't look at is different: node types, or a storage backend."""
        self._seen = ()

    def _offer(self, link: WorkerLink) -> object:
        return (
            link.view,
            link.incarnation,
            link.ready,
            link.accepting,
            link.claimed_run,
            (link.view.id, link.incarnation) in self.spent,
            tuple((info.device, info.uuid) for info in link.devices),
            dict(link.facts),
        )

    def reach(self, waiting: Waiting) -> Iterator[Candidate]:
        """Where runs that ask for the same devices could go at best, whatever else they need."""
        needs = waiting.needs
        assert isinstance(needs, Needs)
        if needs.kind == "server":
            yield from self._on_server(needs)
            return
        for link in self._workers.live():
            if link.claimed_run is None and takes_runs(link) and is_meant(link, needs):
                yield from self._with_devices(link, needs)

    def candidates(self, waiting: Waiting) -> Sequence[Candidate]:
        """Every place that would do, free or not."""
        needs = waiting.needs
        assert isinstance(needs, Needs)
        if needs.kind == "server":
            return tuple(self._on_server(needs))
        return tuple(
            candidate
            for link in self._workers.live()
            if link.claimed_run is None and self.suits(link, needs)
            for candidate in self._on_worker(link, needs, waiting.run_id)
        )

    def claims(self) -> frozenset[str]:
        """Runs that an agent was started for: no other gets them."""
        return frozenset(link.claimed_run for link in self._workers.live() if link.claimed_run is not None)

    def claimed(self, lines: Lines) -> Iterator[tuple[Waiting, Sequence[Candidate]]]:
        """Runs that an agent was started for (``--run-id``), wherever they are in their lines."""
        for link in self._workers.live():
            waiting = None if link.claimed_run is None else lines.get(link.claimed_run)
            needs = None if waiting is None else waiting.needs
            if waiting is not None and isinstance(needs, Needs) and self.suits(link, needs):
                yield waiting, tuple(self._on_worker(link, needs, waiting.run_id))

    def _on_server(self, needs: Needs) -> Iterator[Candidate]:
        offered = [info.device for info in self._server_devices()]
        for device in server_devices(needs.device, offered):
            yield self._candidate(SERVER, (device,))

    def _on_worker(self, link: WorkerLink, needs: Needs, run_id: str) -> Iterator[Candidate]:
        place = link.view.id
        if (place, link.incarnation) in self.spent or (place, run_id) in self.held_off:
            return
        served = self._storages.serve(needs.files, link.view, link.facts)
        if isinstance(served, Served):
            yield from self._with_devices(link, needs, served.rank)

    def _with_devices(self, link: WorkerLink, needs: Needs, rank: int = 0) -> Iterator[Candidate]:
        for devices in worker_devices(needs, [info.device for info in link.devices]):
            yield self._candidate(link.view.id, devices, rank, once=link.view.one_shot)

    def _candidate(
        self, place: str, devices: tuple[str, ...], rank: int = 0, *, once: bool = False
    ) -> Candidate:
        slots = self.slots_of(place, devices)
        if once:
            slots = (*slots, (place, ONCE))
        return Candidate(place=place, devices=devices, slots=slots, rank=rank)

    @staticmethod
    def suits(link: WorkerLink, needs: Needs) -> bool:
        """Is it meant by the target, and does it take runs now? For ``any`` also: has it all types. A worker
        that is named is asked again when the run is placed, so that a lack is told and not waited for.
        """
        if not takes_runs(link) or not is_meant(link, needs):
            return False
        match needs.target:
            case WorkerTarget():
                return True
            case PoolTarget():
                return has_types(link.node_types, needs.node_types)
        return (
            not link.lacks_types
            and link.node_types is not None
            and has_types(link.node_types, needs.node_types)
        )

    def slots_of(self, place: str, devices: Sequence[str]) -> tuple[Slot, ...]:
        """The slots that the devices of a place are. A card that the server and a worker on its machine both
        offer is one slot, the server's.
        """
        self._learn(place)
        return tuple(self._shared.get((place, device), (place, device)) for device in devices)

    def _learn(self, place: str) -> None:
        link = self._workers.link(place) if place else None
        if link is None:
            return
        self._names[place] = link.view.name
        if link.view.same_machine:
            own = {info.uuid: info.device for info in self._server_devices() if info.uuid}
            for info in link.devices:
                if info.uuid in own:
                    self._shared[(place, info.device)] = (SERVER, own[info.uuid])

    def name_place(self, place: str, name: str) -> None:
        """For a worker that isn't connected but holds runs."""
        self._names.setdefault(place, name)

    def label(self, slot: Slot) -> str:
        """``gpu-box/cuda:0``."""
        place, device = slot
        return f"{self._names.get(place, place)}/{device}"

    def capacity(self, slot: Slot) -> int:
        """How many runs may be on a slot at once."""
        place, device = slot
        if device == ONCE:
            return 1
        return self._capacity.of(self._names.get(place, place), device)


def takes_runs(link: WorkerLink) -> bool:
    """It is connected, has told what it offers, and nobody holds it back."""
    view = link.view
    return link.ready and link.accepting and not view.drained and not view.disabled


def is_meant(link: WorkerLink, needs: Needs) -> bool:
    """By the target of a run; the server is meant by none of these."""
    match needs.target:
        case WorkerTarget(worker=name):
            return link.view.name.lower() == name.lower()
        case PoolTarget():
            return link.view.one_shot
        case AnyTarget():
            return not link.view.one_shot
    return False


def has_types(offered: frozenset[str] | None, needed: frozenset[str]) -> bool:
    """A worker that reported no catalog isn't checked."""
    return offered is None or needed <= offered


def worker_devices(needs: Needs, offered: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The sets of devices of a worker, one of which the run would get."""
    asked = needs.target.devices if isinstance(needs.target, WorkerTarget) else None
    if asked is not None:
        if set(asked) <= set(offered):
            yield asked
        return
    for device in matching(needs.device, offered):
        yield (device,)


def server_devices(asked: str, offered: Sequence[str]) -> Sequence[str]:
    """The server's devices that would do. One that isn't there becomes another of its kind, then the CPU."""
    return matching(asked, offered) or matching(kind_of(asked), offered) or ("cpu",)


def fell_back(asked: str, given: Sequence[str]) -> bool:
    """The server gave another device than the one that was asked for."""
    if asked == "auto":
        return False
    return any(device != asked and kind_of(device) != asked for device in given)


def by_name(workers: WorkerDirectory, name: str) -> WorkerLink | None:
    """The connected worker of that name."""
    return next((link for link in workers.live() if link.view.name.lower() == name.lower()), None)
