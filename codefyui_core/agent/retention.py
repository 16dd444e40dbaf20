"""Which folders of runs stay on this machine: the newest of those that are over, and all that aren't. Blocking."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

from .places import Places


def prune_runs(places: Places, keep_last: int, log: logging.Logger) -> None:
    """Delete all but the newest ``keep_last``; negative: none is deleted. What any agent of this user data still
    executes, or hasn't delivered, has a spool and isn't touched.
    """
    if keep_last < 0 or places.instance:
        return
    busy = frozenset(_with_spool(places))
    over = sorted(_over(places.runs, busy), reverse=True)
    for _, path in over[keep_last:]:
        shutil.rmtree(path, ignore_errors=True)
        log.info("deleted the folder of run %s: %d newer ones are kept", path.name, keep_last)


def _over(runs: Path, busy: frozenset[str]) -> Iterator[tuple[float, Path]]:
    for path in runs.iterdir() if runs.is_dir() else ():
        try:
            if path.name not in busy and path.is_dir() and not path.is_symlink():
                yield path.stat().st_mtime, path
        except OSError:
            continue


def _with_spool(places: Places) -> Iterator[str]:
    """Ids of runs. A spool's folder is named by run and attempt, perhaps with who claimed it behind a ``~``."""
    for path in (places.user_data / "agent-spool").glob("*/*"):
        yield path.name.partition("~")[0].rpartition(".")[0]
