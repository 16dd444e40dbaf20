"""Where things are in an installation."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """The files of one installation that the set-up knows."""

    root: Path

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def uv(self) -> Path:
        return self.venv / "bin" / "uv"

    @property
    def state(self) -> Path:
        """Stamps of finished steps and the lock."""
        return self.venv / "cdui"

    @property
    def log(self) -> Path:
        return self.venv / "install.log"

    @property
    def constraints(self) -> Path:
        return self.root / "constraints.txt"

    def distributions(self) -> list[Path]:
        """The folders of the distributions beside the core, in name order."""
        folders = sorted(path.parent for path in (self.root / "plugins").glob("*/pyproject.toml"))
        web = self.root / "web"
        return [*folders, web] if (web / "pyproject.toml").is_file() else folders

    def pin(self, name: str) -> str:
        """``torch`` -> ``torch==2.13.0``; the bare name when constraints.txt doesn't have it."""
        lines = self.constraints.read_text().splitlines() if self.constraints.is_file() else []
        return next((line.strip() for line in lines if line.startswith(f"{name}==")), name)
