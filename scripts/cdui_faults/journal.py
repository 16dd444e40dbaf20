"""What a run noted itself, apart from everything that is tested."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The file of one run."""

    pids: tuple[int, ...] = ()
    """One for each time that user code started."""
    counts: tuple[int, ...] = ()
    over: bool = False
    """The node was through, or stopped in time."""
    inputs: tuple[tuple[str, str], ...] = ()
    """Name and hash of each upload that it read."""
    begun: tuple[tuple[str, str], ...] = ()
    """Place below the data folder and hash of each file that it was about to write."""
    wrote: tuple[tuple[str, str], ...] = ()
    """Those that were there in the end, and recorded if they were to be."""

    @classmethod
    def read(cls, path: Path) -> "Journal":
        """Empty when the node never started. A last line without its end was cut by a kill."""
        if not path.exists():
            return cls()
        lines = path.read_text(encoding="ascii").split("\n")[:-1]

        def files(word: str) -> tuple[tuple[str, str], ...]:
            found = (line.split(" ") for line in lines if line.startswith(f"{word} "))
            return tuple((name, digest) for _, name, digest in found)

        return cls(
            pids=tuple(int(line.split()[1]) for line in lines if line.startswith("start ")),
            counts=tuple(int(line) for line in lines if line.isdecimal()),
            over=any(line in {"done", "stopped"} for line in lines),
            inputs=files("read"),
            begun=files("writes"),
            wrote=files("wrote"),
        )

    @staticmethod
    def is_over(path: Path) -> bool:
        """The same by its last bytes alone."""
        try:
            with path.open("rb") as file:
                file.seek(-min(8, os.fstat(file.fileno()).st_size), os.SEEK_END)
                return file.read().endswith((b"\ndone\n", b"stopped\n"))
        except FileNotFoundError:
            return False
