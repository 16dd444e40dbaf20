"""Which machine, which boot, which process: the ids by which the planes tell machines and processes apart."""

import hashlib
import os
import sys
import uuid
from functools import lru_cache
from pathlib import Path

import psutil

_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_BOOT_FILE = "/proc/sys/kernel/random/boot_id"


@lru_cache(maxsize=1)
def machine_id() -> str:
    """32 hex digits, the same for every process of this machine, another on every other machine. Derived
    from the operating system's id, which itself is never sent.
    """
    return hashlib.sha256(f"codefyui:{_system_id()}".encode()).hexdigest()[:32]


def boot_id() -> str:
    """Changes with each boot of the machine."""
    text = _read(_BOOT_FILE)
    return text.replace("-", "") if text else f"{int(psutil.boot_time()):x}"


def started_at(pid: int) -> float | None:
    """When a process was started, seconds since 1970; None when there is none of that id. With the id it
    names a process, as ids are used again.
    """
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def is_process(pid: int, started: float) -> bool:
    """Is the process of that id and start time still there?"""
    found = started_at(pid)
    return found is not None and abs(found - started) < 1.0


def _system_id() -> str:
    if sys.platform == "win32":
        return _windows_guid()
    for name in _MACHINE_FILES:
        if text := _read(name):
            return text
    return f"{uuid.getnode():012x}-{os.uname().nodename}"


def _windows_guid() -> str:
    if sys.platform == "win32":
        import winreg

        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\Cryptography") as key:
            return str(winreg.QueryValueEx(key, "MachineGuid")[0])
    raise NotImplementedError


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
