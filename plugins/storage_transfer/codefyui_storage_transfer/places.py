"""Where on the control plane a file from a worker belongs. Every name here comes from outside."""

import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from codefyui_core.plugin import Arriving, BadName, ControlStoreHost, Family, Folders, RunId

from .models import KIND, OUTPUT

FROM_RUNS = (Family.MODELS, Family.MEDIA, Family.OUTPUT)
FROM_INPUTS = (Family.FILES, Family.IMAGES)
"""A run may have written over an input; models are among the others."""
ACCEPTED = frozenset(FROM_RUNS + FROM_INPUTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A file's place before it has one."""

    folder: Path
    """The run's own, or a family's; nothing is written outside of it."""
    name: str
    """Below it."""
    prefix: str
    """Of the folder, below the data folder: ``runs/<run id>``, ``models``."""


class Bases(Protocol):
    """Where files lie; a ``ControlStoreHost`` says it too, from settings that it reads each time."""

    @property
    def run_files(self) -> Path: ...
    @property
    def folders(self) -> Folders: ...


@dataclass(frozen=True, slots=True)
class Here:
    """The same for many files."""

    run_files: Path
    folders: Folders


def target(host: Bases, run: RunId, *, kind: str, name: str, relative_path: str) -> Target:
    """``<run id>/<kind>/<name>`` among the files of runs; an output's own path in the data folder.

    Raises: BadName for a kind that is no word, and for a path to none of the families that runs write to. The
    name below the folder is checked by ``Arriving``.
    """
    if not re.fullmatch(KIND, kind):
        raise BadName(f"{kind[:80]!a} can't be a kind of files: it takes a-z, 0-9, - and _.")
    if kind != OUTPUT:
        return Target(folder=host.run_files / run, name=f"{kind}/{name}", prefix=f"runs/{run}")
    path = host.folders.locate(relative_path)
    family = Family(PurePosixPath(relative_path).parts[0])
    folder = host.folders.of(family)
    if family not in ACCEPTED or path == folder:
        families = ", ".join(sorted(f"{one}/" for one in ACCEPTED))
        raise BadName(f"{relative_path!r} is no place for an output: it goes below one of {families}.")
    return Target(folder=folder, name=path.relative_to(folder).as_posix(), prefix=family.value)


def place_of(host: ControlStoreHost, file: Arriving) -> Target:
    """The place that a file was sent to, from where it lies. Settings may have moved a family since."""
    families = {host.folders.of(family): family.value for family in ACCEPTED}
    prefix = families.get(file.folder, file.folder.name)
    own = file.folder.name == file.run_id
    return Target(folder=file.folder, name=file.name, prefix=f"runs/{file.run_id}" if own else prefix)


def arriving(
    host: Bases, run: RunId, *, key: str, kind: str, name: str, relative_path: str
) -> tuple[Target, Arriving]:
    """The same, and the file that is to come there. Raises: BadName."""
    where = target(host, run, kind=kind, name=name, relative_path=relative_path)
    whole = Arriving(run_id=run, key=key, folder=where.folder, name=name)
    return where, replace(whole, name=where.name)
