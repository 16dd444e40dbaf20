"""What the two halves agree on: the settings, the facts, and how the folder is laid out."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from codefyui_core.plugin import AttemptView, Facts, PluginSettings, Sha256

MARK = "drop-id"
"""A file with the folder's own id, by which an agent shows that it sees the server's folder and not an empty one."""


class DropSettings(PluginSettings):
    """Read when the server starts."""

    example_drop_dir: Path | None = None
    """The drop folder, as the server reaches it. Unset: the backend is off."""


class DropFacts(Facts):
    """Of an agent that was started with ``--drop``."""

    id: str


def attempt_folder(attempt: AttemptView) -> str:
    """What is the attempt's alone, and goes when it is over."""
    return f"{attempt.run_id}-{attempt.number}"


def input_name(attempt: AttemptView, sha256: Sha256) -> str:
    return f"{attempt_folder(attempt)}/in/{sha256}"


def output_name(attempt: AttemptView, key: str) -> str:
    """By a hash: a key may have slashes, and comes from a worker."""
    return f"{attempt_folder(attempt)}/out/{hashlib.sha256(key.encode()).hexdigest()}"


def copy(source: BinaryIO, target: BinaryIO, moved: Callable[[int], None]) -> tuple[Sha256, int]:
    """Hash and size of what went over. Blocking."""
    digest, size = hashlib.sha256(), 0
    while chunk := source.read(1 << 20):
        target.write(chunk)
        digest.update(chunk)
        size += len(chunk)
        moved(len(chunk))
    return Sha256(digest.hexdigest()), size
