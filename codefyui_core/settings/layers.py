"""Where the value of a setting comes from: flag, process environment, ``.env`` files, default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Self

from dotenv import dotenv_values

from ..errors import UsageProblem

PREFIX = "CODEFYUI_"


class Source(StrEnum):
    """Where a value was found, strongest first."""

    FLAG = "flag"
    ENV = "env"
    FILE = "file"
    DEFAULT = "default"


def read_env_file(path: Path) -> dict[str, str]:
    """The ``CODEFYUI_`` lines of a ``.env`` file; empty when there is none.

    Raises: UsageProblem when it is there and can't be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        message = f"The settings file {path} can't be read: {error}. Correct it or remove it."
        raise UsageProblem(message) from error
    return _own(_parse(text))


def _parse(text: str) -> Mapping[str, str | None]:
    return dotenv_values(stream=StringIO(text), interpolate=False)


def _own(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value and name.startswith(PREFIX)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """All sources of settings at one moment. Empty text counts as not set, in every layer."""

    flags: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[Mapping[str, str]] = ()
    """Contents of ``.env`` files, strongest first."""

    @classmethod
    def gather(
        cls,
        *,
        environ: Mapping[str, str],
        user_data: Path,
        project: Path | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Self:
        """Read ``<user data>/.env`` (and before it the project's); flags by variable, None for one not given."""
        folders = (user_data,) if project is None else (project, user_data)
        given = {name: str(value) for name, value in (flags or {}).items() if value is not None}
        return cls(
            flags=given,
            environ=_own(environ),
            files=tuple(read_env_file(folder / ".env") for folder in folders),
        )

    def find(self, variable: str) -> tuple[str, Source] | None:
        """The strongest value that is set, and where it stands."""
        for source, values in self._ordered():
            if value := values.get(variable):
                return value, source
        return None

    def source(self, variable: str) -> Source:
        found = self.find(variable)
        return found[1] if found else Source.DEFAULT

    def merged(self) -> dict[str, str]:
        """Every variable that is set, with its effective text."""
        merged: dict[str, str] = {}
        for _, values in reversed(list(self._ordered())):
            merged.update({name: value for name, value in values.items() if value})
        return merged

    def _ordered(self) -> Sequence[tuple[Source, Mapping[str, str]]]:
        files = [(Source.FILE, values) for values in self.files]
        return [(Source.FLAG, self.flags), (Source.ENV, self.environ), *files]
