"""Agents that share a credential and a user-data folder: their IDs, and the folder that each one has to itself."""

import logging
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from .folder import Owner, read_owner, write_owner
from .lock import AlreadyRunning, FolderLock
from .places import Places

STALE_S = 24 * 3600.0
"""Of a folder whose agent was killed, without a change."""


def default_id(environ: Mapping[str, str]) -> str:
    """The job that this process belongs to, by SLURM's own variables; at random elsewhere."""
    if environ.get("SLURM_ARRAY_JOB_ID") and environ.get("SLURM_ARRAY_TASK_ID"):
        job = f"{environ['SLURM_ARRAY_JOB_ID']}-{environ['SLURM_ARRAY_TASK_ID']}"
    elif environ.get("SLURM_JOB_ID"):
        job = environ["SLURM_JOB_ID"]
    else:
        return secrets.token_hex(8)
    step, process = environ.get("SLURM_STEP_ID"), environ.get("SLURM_PROCID")
    return f"{job}-{step}-{process}" if step and process else job


class InstanceFolder:
    """``agent-instances/<ID>/``: taken before anything in it is touched, deleted when its agent ends."""

    def __init__(self, places: Places, lock: FolderLock) -> None:
        self._places = places
        self._lock = lock

    @property
    def heir(self) -> bool:
        """What an agent of this ID left there is ours: the lock proves that it is dead."""
        return self._lock.works

    @classmethod
    def take(cls, places: Places, owner: Owner, log: logging.Logger) -> "InstanceFolder":
        """Blocking. Raises: AlreadyRunning."""
        taken = (
            f"An agent runs already as instance {places.instance} with this user-data folder. Give this one "
            f"an ID of its own: --instance <ID>"
        )
        lock = FolderLock.take(places.lock, taken=taken)
        if not lock.works:
            log.warning(
                "this file system has no locks: enroll once before jobs start together, and give each an ID "
                "of its own"
            )
            before = read_owner(places.own)
            if before is not None and not before.gone:
                lock.release()
                raise AlreadyRunning(taken)
        clean_stale(places, now=time.time(), log=log)
        places.own.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_owner(places.own, owner)
        return cls(places, lock)

    def delete(self) -> None:
        """With all that is in it; the ID is free. Blocking."""
        shutil.rmtree(self._places.own, ignore_errors=True)
        self._lock.release(remove=self._lock.works)


def clean_stale(places: Places, *, now: float, log: logging.Logger) -> None:
    """Delete what killed agents left: no agent has the ID, and nothing changed for a day. Blocking."""
    for path in sorted(places.instances.iterdir()) if places.instances.is_dir() else ():
        if not path.is_dir() or path.name == places.instance or now - _changed_at(path) < STALE_S:
            continue
        theirs = Places(user_data=places.user_data, key=places.key, instance=path.name)
        try:
            lock = FolderLock.take(theirs.lock)
        except AlreadyRunning:
            continue
        owner = read_owner(path)
        if lock.works or owner is None or owner.gone:
            shutil.rmtree(path, ignore_errors=True)
            log.info("deleted the folder of instance %s, whose agent is gone", path.name)
        lock.release(remove=lock.works)


def _changed_at(folder: Path) -> float:
    """The last change of anything in it."""
    newest = 0.0
    for path in (folder, *folder.rglob("*")):
        try:
            newest = max(newest, path.lstat().st_mtime)
        except OSError:
            continue  # it went meanwhile
    return newest
