"""Answers what the control plane asks of recorded outputs, beside everything else: one thread of its own reads
the disk, and what it found leaves in parts when nothing else is to be sent.
"""

import asyncio
import base64
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from codefyui_core.errors import CodefyError
from codefyui_core.outputs import Answer, OutputStore, Question, What, answer
from codefyui_core.wire.limits import READ_BYTES, READS
from codefyui_core.wire.messages import ReadReply, ReadRequest, ReadWord

PIECE_BYTES = (READ_BYTES - 1024) // 4 * 3
"""Of a reply's bytes in one part, which base64 makes a third longer."""


class _Reply:
    """An answer on its way."""

    def __init__(self, read_id: str, found: Answer) -> None:
        self.id = read_id
        self._found = found
        self._sent = 0
        self._part = 0

    def next(self) -> ReadReply:
        body = self._found.body
        piece = body[self._sent : self._sent + PIECE_BYTES]
        self._sent += len(piece)
        reply = ReadReply(
            id=self.id,
            part=self._part,
            last=self._sent >= len(body),
            data=self._found.head if self._part == 0 else None,
            bytes=base64.b64encode(piece).decode(),
        )
        self._part += 1
        return reply


class Reads:
    """Of one agent. Called on the event loop."""

    def __init__(self, store: OutputStore, *, news: Callable[[], None], log: logging.Logger) -> None:
        """``news``: there is a part to send."""
        self._store = store
        self._news = news
        self._log = log
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reads")
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._replies: deque[_Reply | ReadReply] = deque()

    def ask(self, message: ReadRequest) -> None:
        """Answer it, or drop the answer to an earlier one (``cancel``)."""
        if message.what is ReadWord.CANCEL:
            self._cancel(message.id)
        elif len(self._asked) + len(self._replies) >= READS:
            self._fail(message.id, "server.busy", "the worker is answering other reads; try again")
        elif message.id not in self._asked:
            work = self._answer(message)
            self._asked[message.id] = asyncio.create_task(work, name=f"read {message.id}")

    def next_part(self) -> ReadReply | None:
        """What to send when there is nothing more urgent; of several answers a part each in turn."""
        if not self._replies:
            return None
        reply = self._replies.popleft()
        if isinstance(reply, ReadReply):
            return reply
        part = reply.next()
        if not part.last:
            self._replies.append(reply)
        return part

    def disconnected(self) -> None:
        """Nobody waits any more."""
        for read_id in list(self._asked):
            self._cancel(read_id)
        self._replies.clear()

    async def aclose(self) -> None:
        asked = list(self._asked.values())
        self.disconnected()
        await asyncio.gather(*asked, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _cancel(self, read_id: str) -> None:
        task = self._asked.pop(read_id, None)
        if task is not None:
            task.cancel()
        self._replies = deque(reply for reply in self._replies if reply.id != read_id)

    async def _answer(self, message: ReadRequest) -> None:
        loop = asyncio.get_running_loop()
        work = partial(answer, self._store, message.run_id, _question(message))
        try:
            found = await loop.run_in_executor(self._thread, work)
        except CodefyError as error:
            self._fail(message.id, error.code, error.message)
        except Exception as error:
            self._log.exception("recorded outputs of run %s can't be read", message.run_id)
            self._fail(message.id, "internal", f"the worker failed to read them: {error}")
        else:
            self._replies.append(_Reply(message.id, found))
            self._news()
        finally:
            if self._asked.get(message.id) is asyncio.current_task():
                del self._asked[message.id]

    def _fail(self, read_id: str, code: str, text: str) -> None:
        self._replies.append(ReadReply(id=read_id, error=text, code=code))
        self._news()


def _question(message: ReadRequest) -> Question:
    return Question(
        what=What(message.what.value),
        node=message.node,
        port=message.port,
        slice=message.slice,
        max_elements=message.max_elements,
    )
