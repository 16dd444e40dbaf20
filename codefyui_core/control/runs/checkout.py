"""The git checkout that runs are submitted from: which commit, and whether files differ from it."""

import asyncio
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from codefyui_core.runner.code_state import commit_of

FRESH_MS = 5_000
"""So long an answer is used for the next submits, too."""
GIT_S = 3.0
"""The longest that git may take, on a slow disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutState:
    """None: not known, or there is no checkout."""

    commit: str | None = None
    dirty: bool | None = None
    """Tracked files differ from the commit."""


class Checkout:
    """Of one folder; asked at each submit. Without a folder nothing is known."""

    def __init__(self, folder: Path | None, now_ms: Callable[[], int]) -> None:
        self._folder = folder
        self._now_ms = now_ms
        self._known = CheckoutState()
        self._at: int | None = None
        self._asking = asyncio.Lock()

    async def now(self) -> CheckoutState:
        """Looks at most every 5 s, in a thread."""
        if self._folder is None:
            return self._known
        async with self._asking:
            if self._at is None or not 0 <= self._now_ms() - self._at < FRESH_MS:
                self._known = await asyncio.to_thread(_looked_up, self._folder)
                self._at = self._now_ms()
            return self._known


def _looked_up(folder: Path) -> CheckoutState:
    commit = commit_of(folder)
    if not commit:
        return CheckoutState()
    return CheckoutState(commit=commit[:64], dirty=_dirty(folder))


def _dirty(folder: Path) -> bool | None:
    """Without locks, so that somebody's own git command beside it never fails."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", folder, "status", "--porcelain", "--untracked-files=no"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return bool(done.stdout.strip())
