"""How much work a benchmark does."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """``quick`` shows that everything works; its figures mean little."""

    quick: bool
    folder: Path
    """For files of this run; removed afterwards."""

    def choose(self, usual: int, quick: int) -> int:
        return quick if self.quick else usual
