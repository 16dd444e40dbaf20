"""The marker: a small hidden file that proves that two paths lead to one folder.

The server writes it once, with an id that the folder keeps; an agent reads it through its own path. Equal
ids: the same folder (or a copy of it, which has the marker, too).
"""

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from codefyui_core.plugin import BadName, SafeFolder

MARKER = ".codefyui-mount"
_ID = re.compile(r"[0-9a-f]{32}")
_ABOUT = "Tells servers and workers of CodefyUI that they share this folder. Leave it here."
_LIMIT_BYTES = 4096


def read_marker(folder: Path) -> str | None:
    """The id of a folder; None when there is no marker, or none that says an id. Blocking.

    Raises: OSError, PermissionError above all, when nobody can tell.
    """
    try:
        with SafeFolder(folder) as safe, safe.read(MARKER) as file:
            found = json.loads(file.read(_LIMIT_BYTES))
    except (FileNotFoundError, BadName, ValueError):
        return None
    marker = found.get("id") if isinstance(found, dict) else None
    return marker if isinstance(marker, str) and _ID.fullmatch(marker) else None


def mark(folder: Path) -> str:
    """The id of a folder, which gets a marker when it has none. Blocking.

    Raises: OSError when it can't be read or written; BadName when something else has the marker's name.
    """
    found = read_marker(folder)
    if found is not None:
        return found
    with SafeFolder(folder) as safe, _written(safe) as temporary:
        try:
            safe.rename(temporary, MARKER)
        except FileExistsError:  # another server was faster, or what is there says no id
            if read_marker(folder) is None:
                safe.rename(temporary, MARKER, replace=True)
        except OSError:  # a file system without hard links
            safe.rename(temporary, MARKER, replace=True)
    marker = read_marker(folder)
    if marker is None:
        raise OSError(f"{folder / MARKER} doesn't read as it was written")
    return marker


@contextmanager
def _written(safe: SafeFolder) -> Iterator[str]:
    """A whole marker under another name; gone afterwards."""
    marker = secrets.token_hex(16)
    temporary = f"{MARKER}.{marker}"
    text = json.dumps({"id": marker, "about": _ABOUT})
    with safe.write(temporary) as file:
        if os.name != "nt":
            os.fchmod(file.fileno(), 0o644)  # workers may be other users
        file.write(text.encode())
    try:
        yield temporary
    finally:
        with suppress(OSError):
            safe.remove(temporary)
