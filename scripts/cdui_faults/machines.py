"""The machine below a server or an agent: its disk, its wall clock, and what it keeps when it loses power.

A disk is a small tmpfs, which needs the right to mount. Clock and power need a C compiler: ``shim.c`` is
preloaded into the machine's processes. What isn't there is left out, and ``Means.missing`` says why.
"""

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .schedule import Kind

DISK_BYTES = 4 << 30
"""More than agents keep free (512 MiB). A tmpfs takes no memory before it is written to."""
STEP_S = 3600
TRIES = 50
SHIM = Path(__file__).with_name("shim.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What this system lets us do."""

    shim: Path | None
    disks: bool
    missing: Mapping[Kind, str] = field(default_factory=dict)
    """Kinds of faults that are left out, and what they need."""

    @classmethod
    def find(cls, folder: Path) -> "Means":
        """Compiles and mounts in ``folder`` to see what works."""
        shim, disks = _compile(folder / "shim.so"), _can_mount(folder / "disk")
        missing = {} if shim else dict.fromkeys((Kind.CLOCK, Kind.POWER_LOSS), "a C compiler (cc)")
        missing |= {} if disks else dict.fromkeys((Kind.FULL_SERVER, Kind.FULL_AGENT), "the right to mount")
        return cls(shim=shim, disks=disks, missing=missing)


class Machine:
    """One of them. ``user_data`` is on its disk; the notes about it aren't."""

    def __init__(self, name: str, folder: Path, means: Means) -> None:
        self.name = name
        self.user_data = folder / name
        self.full = False
        self._means = means
        self._clock = folder / f"{name}.clock"
        self._synced = folder / f"{name}.synced"
        self.user_data.mkdir(mode=0o700)
        self.step(0)
        self._synced.touch()
        self._mounted = means.disks
        if means.disks:
            _mount(self.user_data, DISK_BYTES)

    @property
    def environ(self) -> dict[str, str]:
        if self._means.shim is None:
            return {}
        return {
            "LD_PRELOAD": str(self._means.shim),
            "CDUI_FAULTS_CLOCK": str(self._clock),
            "CDUI_FAULTS_SYNCED": str(self._synced),
        }

    def step(self, seconds: int) -> None:
        """Let its wall clock be that far ahead of ours."""
        with self._clock.open("r+b" if self._clock.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("=q", seconds))

    def fill(self) -> None:
        """From now on nothing more can be written to its disk."""
        self.full = True
        for _ in range(TRIES):
            usage = os.statvfs(self.user_data)
            pages = usage.f_blocks - usage.f_bfree
            with suppress(subprocess.CalledProcessError):  # something was written meanwhile
                self._resize(max(pages, 1) * usage.f_frsize)
                return
        raise OSError(f"{self.user_data} can't be made full")

    def free(self) -> None:
        self._resize(DISK_BYTES)
        self.full = False

    def lose_unsynced(self, rng: random.Random) -> int:
        """Cut what its ended processes wrote and didn't sync, or a part of it; how many bytes that were.

        New, renamed and deleted names survive: it is the contents of files that are lost here.
        """
        synced = _synced_sizes(self._synced)
        lost = 0
        for path in self.user_data.rglob("*"):
            if not path.is_file() or path.is_symlink():
                continue
            found = path.stat()
            kept = min(synced.get(found.st_ino, 0), found.st_size)
            kept = rng.choice((kept, kept, rng.randint(kept, found.st_size)))
            lost += found.st_size - kept
            os.truncate(path, kept)
        return lost

    def close(self) -> None:
        """Keep what is on the disk, in a plain folder."""
        if not self._mounted:
            return
        self._mounted = False
        kept = self.user_data.with_name(f"{self.name}.kept")
        with suppress(OSError, shutil.Error):
            shutil.copytree(self.user_data, kept, symlinks=True, ignore=_sockets)
        subprocess.run(["umount", "-l", str(self.user_data)], check=False, capture_output=True)
        self.user_data.rmdir()
        kept.rename(self.user_data)

    def _resize(self, size: int) -> None:
        options = f"remount,size={size}"
        subprocess.run(["mount", "-o", options, str(self.user_data)], check=True, capture_output=True)


def _synced_sizes(notes: Path) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for line in notes.read_text(encoding="ascii").splitlines():
        inode, _, size = line.partition(" ")
        sizes[int(inode)] = int(size)
    return sizes


def _sockets(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if (Path(folder) / name).is_socket()}


def _compile(out: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return None
    words = [compiler, "-O1", "-shared", "-fPIC", "-o", str(out), str(SHIM)]
    done = subprocess.run(words, check=False, capture_output=True)
    return out if done.returncode == 0 else None


def _can_mount(folder: Path) -> bool:
    folder.mkdir()
    try:
        _mount(folder, 1 << 20)
    except (OSError, subprocess.CalledProcessError):
        return False
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
    return True


def _mount(folder: Path, size: int) -> None:
    words = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "cdui-faults", str(folder)]
    subprocess.run(words, check=True, capture_output=True)
