"""Who this agent is: its folder, its machine, its process, and the name that it takes when none is given."""

import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.files import write_private
from codefyui_core.this_machine import boot_id, machine_id

_BAD = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The ids of ``hello``."""

    incarnation: str
    """New with each process: tells whether run processes of before can still exist."""
    home_id: str
    machine_id: str
    boot_id: str


def make_identity(home_id_file: Path) -> Identity:
    """Blocking; makes the folder's id on first use."""
    return Identity(
        incarnation=secrets.token_hex(16),
        home_id=_home_id(home_id_file),
        machine_id=machine_id(),
        boot_id=boot_id(),
    )


def _home_id(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        text = ""
    if re.fullmatch(r"[0-9a-f]{32}", text):
        return text
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    write_private(made, secrets.token_hex(16).encode())
    try:
        if text:
            made.replace(path)  # damaged
        else:
            os.link(made, path)  # of agents that start together, the first decides
    except FileExistsError:
        pass
    except OSError:
        made.replace(path)  # a file system without hard links
    finally:
        made.unlink(missing_ok=True)
    return path.read_text(encoding="ascii").strip()


def default_name(host: str | None = None) -> str:
    """The host name up to its first dot; what a name can't have becomes ``-``."""
    name = _BAD.sub("-", (host or socket.gethostname()).partition(".")[0]).strip("-_")[:63]
    return name if name and name.lower() not in {"server", "any", "one-shot"} else f"worker-{name or 'agent'}"
