"""Looks at folders that may hang, each in a thread of its own: a dead file server costs that thread, and
neither the loop, nor the threads of others, nor the end of the process.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")

PATIENCE_S = 10.0
"""Of a person at a terminal."""


class NoAnswer(Exception):
    """The file system didn't answer in time."""


class Sight(Generic[T]):
    """One question about one folder. It is never asked again before it was answered."""

    def __init__(self, look: Callable[[], T], name: str) -> None:
        self._look = look
        self._name = name
        self._asked: asyncio.Future[T] | None = None

    async def now(self, within_s: float) -> T:
        """Raises: NoAnswer; what the question itself raises."""
        asked = self._asked
        if asked is None:
            asked = self._asked = asyncio.get_running_loop().create_future()
            asked.add_done_callback(self._answered)
            ask(self._look, asked, self._name)
        done, _ = await asyncio.wait({asked}, timeout=within_s)
        if not done:
            raise NoAnswer(self._name)
        return asked.result()

    def _answered(self, asked: "asyncio.Future[T]") -> None:
        self._asked = None
        if not asked.cancelled():
            asked.exception()  # whoever asked may have left


def ask(look: Callable[[], T], answer: "asyncio.Future[T]", name: str) -> None:
    """Call ``look`` in a thread of its own, and give what comes of it to ``answer``."""
    loop = answer.get_loop()

    def tell(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, failure = None, None
        try:
            result = look()
        except Exception as error:
            failure = error
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell, result, failure)

    threading.Thread(target=work, name=name, daemon=True).start()


def is_folder(path: Path, *, within_s: float = PATIENCE_S) -> bool:
    """Can this user read a folder there? Blocking, but not for longer than ``within_s``.

    Raises: NoAnswer.
    """
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(usable(path)), daemon=True)
    thread.start()
    thread.join(within_s)
    if not answers:
        raise NoAnswer(str(path))
    return answers[0]


def usable(path: Path) -> bool:
    """A folder that may be listed and entered. Blocking."""
    try:
        return path.is_dir() and os.access(path, os.R_OK | os.X_OK)
    except (OSError, ValueError):
        return False
