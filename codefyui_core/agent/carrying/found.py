"""What a run left in its private folder without recording it. Blocking; its processes are gone."""

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from codefyui_core.files import Family, Folders, is_part, sha256_of

from .copies import Stamp
from .journal import Placed

WRITTEN = (Family.MODELS, Family.MEDIA, Family.OUTPUT)
"""Families in which everything that a run leaves is wanted."""


def written(
    folders: Folders, placed: Mapping[str, Placed], recorded: Mapping[str, Stamp]
) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Every file that was written and not recorded as it is now, and every input that was written over; by
    relative name, in order.
    """
    for family in WRITTEN:
        root = folders.of(family)
        for below, found in files_below(root):
            relative = f"{family.value}/{below}"
            if recorded.get(relative) == Stamp.of(found):
                continue
            if relative not in placed or _is_changed(root / below, found, placed[relative]):
                yield relative, root / below, found
    yield from _other_inputs(folders, placed, recorded)


def _other_inputs(
    folders: Folders, placed: Mapping[str, Placed], recorded: Mapping[str, Stamp]
) -> Iterator[tuple[str, Path, os.stat_result]]:
    families: Collection[str] = {family.value for family in WRITTEN}
    for relative, input_ in sorted(placed.items()):
        first = relative.partition("/")[0]
        if first in families:
            continue
        path = folders.locate(relative) if first in set(Family) else folders.root / relative
        try:
            found = path.lstat()
        except OSError:
            continue  # the run removed it
        if (
            stat.S_ISREG(found.st_mode)
            and recorded.get(relative) != Stamp.of(found)
            and _is_changed(path, found, input_)
        ):
            yield relative, path, found


def input_stamp(found: os.stat_result) -> tuple[int, ...]:
    """Of an input when it was placed. The last number changes whatever is done to the file."""
    return (*Stamp.of(found), found.st_ctime_ns)


def _is_changed(path: Path, found: os.stat_result, placed: Placed) -> bool:
    return input_stamp(found) != placed.stamp and sha256_of(path) != placed.sha256


def files_below(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files by relative name, in order; no link is followed, and what is half written is left out."""
    names: list[tuple[str, os.stat_result]] = []
    pending = [""]
    while pending:
        place = pending.pop()
        try:
            with os.scandir(root / place) as entries:
                for entry in entries:
                    name = f"{place}/{entry.name}" if place else entry.name
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(name)
                    elif entry.is_file(follow_symlinks=False) and not is_part(entry.name):
                        names.append((name, entry.stat(follow_symlinks=False)))
        except OSError:
            continue
    return iter(sorted(names, key=lambda one: one[0]))
