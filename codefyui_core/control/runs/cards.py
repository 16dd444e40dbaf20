"""Cards that are shared by memory: which they are, what is free on them, what runs there may still take."""

from collections.abc import Callable, Mapping, Sequence

from codefyui_core.clocks import AttentiveClock
from codefyui_core.errors import CodefyError
from codefyui_core.runs.queue import Slot, kind_of
from codefyui_core.runs.record import split_identity
from codefyui_core.runs.sharing import Ledger, Measured, Policy, Shares, need_bytes
from codefyui_core.wire.messages import DeviceInfo

from .board import Board
from .desk import WorkerDirectory
from .peaks import Peaks
from .places import SERVER, Places

STALE_S = 25.0
"""A worker measures every 10 s: with two measurements missing nobody is placed by the last one."""
Policies = Mapping[str, Policy]
"""By device; those that aren't named admit by count."""


class Cards:
    """Policies by holder: a worker's id, which its instances share, or the server."""

    def __init__(
        self,
        *,
        board: Board,
        places: Places,
        workers: WorkerDirectory,
        peaks: Peaks,
        server_devices: Callable[[], Sequence[DeviceInfo]],
        clock: AttentiveClock,
    ) -> None:
        self._board = board
        self._places = places
        self._workers = workers
        self._peaks = peaks
        self._server_devices = server_devices
        self._clock = clock
        self._policies: dict[str, Policies] = {}
        self._ledgers: dict[Slot, Ledger] = {}
        self._own: tuple[float, Mapping[str, int]] | None = None

    def know(self, holder: str, policies: Policies) -> None:
        """As they are stored."""
        self._policies[holder] = policies

    def policies(self, holder: str) -> Policies:
        return self._policies.get(holder, {})

    def policy(self, slot: Slot) -> Policy:
        """How runs are admitted to it."""
        place, device = slot
        return self._policies.get(split_identity(place)[0], {}).get(device, Policy.COUNT)

    @property
    def any_shared(self) -> bool:
        return any(
            policy is Policy.MEMORY for policies in self._policies.values() for policy in policies.values()
        )

    @property
    def own_shared(self) -> bool:
        """Is a card of the server's own shared?"""
        return Policy.MEMORY in self._policies.get(SERVER, {}).values()

    def measured_here(self, free_bytes: Mapping[str, int]) -> None:
        """The server's own devices were measured now."""
        self._own = (self._clock.monotonic(), free_bytes)

    def free_here(self, device: str) -> int | None:
        """Of a device of the server's; None: not measured lately."""
        if self._own is None:
            return None
        at, free = self._own
        return None if self._clock.monotonic() - at > STALE_S else free.get(device)

    def shares(self) -> Shares:
        """The shared cards of all places that are there, as of now."""
        if not self.any_shared:
            return Shares()
        cards = dict(self._here()) | dict(self._there())
        totals = {slot: total for slot, (total, _) in cards.items()}

        def need(slot: Slot, run_id: str) -> int | None:
            return self._need(run_id, totals.get(slot))

        present = self._board.on_slots()
        blocked = {slot for ghost in self._board.ghosts.values() for slot in ghost.slots}
        self._ledgers = {slot: self._ledgers.get(slot, Ledger()) for slot in {*cards, *self._held()}}
        measured = {}
        for slot, (total, free) in cards.items():
            on_it = {run_id: self._need(run_id, total) or total or 0 for run_id in present.get(slot, ())}
            ledger = self._ledgers[slot]
            ledger.follow(on_it, free)
            measured[slot] = Measured(
                label=self._places.label(slot),
                free_bytes=free,
                promised_bytes=0 if free is None else ledger.promised(free),
                blocked=slot in blocked,
            )
        return Shares(measured, need)

    def _held(self) -> set[Slot]:
        """Slots whose place may be away for a while."""
        return {slot for slot, ledger in self._ledgers.items() if ledger.growing or ledger.shown}

    def _here(self) -> list[tuple[Slot, tuple[int | None, int | None]]]:
        """Total and free bytes of the server's own shared cards."""
        return [
            ((SERVER, info.device), (info.memory_total_bytes, self.free_here(info.device)))
            for info in self._server_devices()
            if self.policy((SERVER, info.device)) is Policy.MEMORY
        ]

    def _there(self) -> list[tuple[Slot, tuple[int | None, int | None]]]:
        """Of connected workers. A card that is the server's too is measured there."""
        found = []
        for link in self._workers.live():
            if Policy.MEMORY not in self.policies(split_identity(link.view.id)[0]).values():
                continue
            at = link.measured_at
            fresh = at is not None and self._clock.monotonic() - at <= STALE_S
            for info in link.devices:
                slot = self._places.slots_of(link.view.id, (info.device,))[0]
                if slot[0] != SERVER and self.policy(slot) is Policy.MEMORY:
                    free = link.free_memory.get(info.device) if fresh else None
                    found.append((slot, (info.memory_total_bytes, free)))
        return found

    def _need(self, run_id: str, total_bytes: int | None) -> int | None:
        """None: it is being looked up, or nobody can tell."""
        request = self._board.requests.get(run_id)
        if request is None or request.graph_hash is None:
            return need_bytes(None, total_bytes)
        if not self._peaks.knows(request.graph_hash):
            return None
        return need_bytes(self._peaks.of(request.graph_hash), total_bytes)


def check_policy(owner: str, offered: Sequence[DeviceInfo], device: str, policy: Policy) -> None:
    """Can that device admit runs so?

    Raises: CodefyError ``device.not_found``, ``request.invalid``.
    """
    card = next((info for info in offered if info.device == device), None)
    if card is None:
        known = ", ".join(info.device for info in offered) or "none"
        raise CodefyError(f"{owner} offers no device {device}. It offers: {known}.", code="device.not_found")
    if policy is Policy.MEMORY and (kind_of(device) == "cpu" or card.memory_total_bytes is None):
        raise CodefyError(
            f"{device} of {owner} can't be shared by memory: only a card that tells how much memory it has can. "
            "Set how many runs it takes at once with CODEFYUI_RUN_QUEUE_MAX_CONCURRENT.",
            code="request.invalid",
        )
