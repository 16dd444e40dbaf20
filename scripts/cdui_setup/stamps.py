"""What is done already: one small file a step, holding what the step was done for."""

from pathlib import Path


class Stamps:
    """Stamps in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, step: str) -> str | None:
        try:
            return (self._folder / step).read_text()
        except OSError:
            return None

    def set(self, step: str, key: str) -> None:
        """Whole or not at all: a half-written stamp could pass for another."""
        self._folder.mkdir(parents=True, exist_ok=True)
        fresh = self._folder / f"{step}.new"
        fresh.write_text(key)
        fresh.replace(self._folder / step)

    def drop(self, *steps: str) -> None:
        for step in steps:
            (self._folder / step).unlink(missing_ok=True)
