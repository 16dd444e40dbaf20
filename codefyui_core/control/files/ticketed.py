"""What the attempts that hold runs read, as their tickets say."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from codefyui_core.ids import Sha256
from codefyui_core.plugin.storage import InputItem, Ticket

if TYPE_CHECKING:
    from codefyui_core.control.runs.board import Board

REMEMBERED = 16


class Ticketed:
    """A ticket may name thousands of files, and each of them is asked for: it is read once an attempt, as it never
    changes.
    """

    def __init__(self, board: "Board") -> None:
        self._board = board
        self._read: OrderedDict[str, tuple[int, Mapping[Sha256, InputItem]]] = OrderedDict()

    def of(self, run_id: str) -> Mapping[Sha256, InputItem]:
        """By hash, which one of several files with the same content stands for."""
        record = self._board.flights.get(run_id)
        if record is None or record.now.ticket is None:
            return {}
        number, known = record.now.number, self._read.pop(run_id, None)
        if known is None or known[0] != number:
            items = Ticket.model_validate({"inputs": record.now.ticket.get("inputs", ())}).inputs
            known = number, {item.sha256: item for item in reversed(items)}
        self._read[run_id] = known
        while len(self._read) > REMEMBERED:
            self._read.popitem(last=False)
        return known[1]
