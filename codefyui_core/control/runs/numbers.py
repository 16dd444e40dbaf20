"""How many runs there are and where: what the health page, metrics and a stop are told."""

from collections.abc import Callable, Sequence

from codefyui_core.runs.status import ACTIVE
from codefyui_core.wire.messages import DeviceInfo

from .board import Board
from .desk import WorkerDirectory
from .ending import AtStop, at_stop
from .places import SERVER, Places


class Numbers:
    """As of the last commit. ``durable``: the queue outlives the server."""

    def __init__(
        self,
        *,
        board: Board,
        places: Places,
        workers: WorkerDirectory,
        server_devices: Callable[[], Sequence[DeviceInfo]],
        durable: bool,
    ) -> None:
        self._board = board
        self._places = places
        self._workers = workers
        self._server_devices = server_devices
        self._durable = durable

    def at_stop(self) -> AtStop:
        """What would become of how many runs."""
        return at_stop(self._board, durable=self._durable)

    def counts(self) -> dict[str, int]:
        """Runs that aren't over, by status."""
        found = {status.value: 0 for status in ACTIVE}
        found["queued"] = len(self._board.lines) + len(self._board.holds)
        for record in self._board.flights.values():
            if record.status in ACTIVE:
                found[record.status.value] += 1
        return found

    def waiting(self) -> dict[str, int]:
        """How many wait, by queue key."""
        return self._board.lines.counts()

    def slots(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(worker or ``server``, device) -> used and all."""
        used = self._board.used()
        known = {(SERVER, info.device): "server" for info in self._server_devices()}
        for link in self._workers.live():
            for info in link.devices:
                slot = self._places.slots_of(link.view.id, (info.device,))[0]
                known.setdefault(slot, link.view.name)
        return {
            (name, slot[1]): (used.get(slot, 0), self._places.capacity(slot)) for slot, name in known.items()
        }
