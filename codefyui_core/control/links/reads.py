"""Asks a worker for recorded outputs over its line, and puts the parts of the answers together."""

import asyncio
import base64
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.runs.outputs import away
from codefyui_core.errors import STATUS_BY_CODE, CodefyError
from codefyui_core.outputs import Answer, Question
from codefyui_core.plugin.values import JsonObject
from codefyui_core.wire.limits import MESSAGE_BYTES, READS
from codefyui_core.wire.messages import ReadReply, ReadRequest, ReadWord


@dataclass(slots=True)
class _Asked:
    """One read under way."""

    answer: "asyncio.Future[Answer]"
    head: JsonObject = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    parts: int = 0


class Reads:
    """Of one connection; what is asked ends with it."""

    def __init__(self, *, send: Callable[[ReadRequest], None], worker: str, clock: AttentiveClock) -> None:
        self._send = send
        self._worker = worker
        self._clock = clock
        self._asked: dict[str, _Asked] = {}
        self._ids = itertools.count(1)
        self._turn = asyncio.Semaphore(READS)
        self._over = asyncio.Event()

    async def ask(self, run_id: str, question: Question, timeout_s: float) -> Answer:
        """The worker's answer. When this is cancelled, or takes too long, the worker is told to drop it.

        Raises: CodefyError ``outputs.timeout``, ``outputs.away``, or what the worker answered.
        """
        asking = asyncio.create_task(self._in_turn(run_id, question), name=f"read of {run_id}")
        late, over = asyncio.Event(), asyncio.ensure_future(self._over.wait())
        timer = self._clock.timer(timeout_s, late.set)
        waiting = asyncio.ensure_future(late.wait())
        try:
            await asyncio.wait({asking, over, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise away(self._worker) if over.done() else self._late(timeout_s)
        finally:
            timer.cancel()
            for task in (asking, over, waiting):
                task.cancel()

    def tell(self, run_id: str, question: Question) -> None:
        """Ask without waiting for the answer."""
        if not self._over.is_set():
            self._send(_request(f"r{next(self._ids)}", run_id, question))

    async def _in_turn(self, run_id: str, question: Question) -> Answer:
        async with self._turn:
            read_id = f"r{next(self._ids)}"
            asked = self._asked[read_id] = _Asked(asyncio.get_running_loop().create_future())
            self._send(_request(read_id, run_id, question))
            try:
                return await asked.answer
            except asyncio.CancelledError:
                if not self._over.is_set():
                    self._send(ReadRequest(id=read_id, run_id=run_id, what=ReadWord.CANCEL))
                raise
            finally:
                del self._asked[read_id]

    def take(self, reply: ReadReply) -> None:
        """A part of an answer; one that nobody waits for any more is dropped."""
        asked = self._asked.get(reply.id)
        if asked is None or asked.answer.done():
            return
        try:
            _add(asked, reply)
        except (CodefyError, ValueError) as error:
            asked.answer.set_exception(_of_worker(error))
        else:
            if reply.last:
                asked.answer.set_result(Answer(asked.head, bytes(asked.body)))

    def close(self) -> None:
        """The line is down."""
        self._over.set()

    def _late(self, timeout_s: float) -> CodefyError:
        return CodefyError(
            f"Worker {self._worker} didn't answer within {timeout_s:g} s "
            "(CODEFYUI_WORKER_OUTPUT_FETCH_TIMEOUT_S); try again, or ask for less.",
            code="outputs.timeout",
        )


def _request(read_id: str, run_id: str, question: Question) -> ReadRequest:
    return ReadRequest(
        id=read_id,
        run_id=run_id,
        what=ReadWord(question.what.value),
        node=question.node,
        port=question.port,
        slice=question.slice,
        max_elements=question.max_elements,
    )


def _add(asked: _Asked, reply: ReadReply) -> None:
    """Raises: CodefyError for a refusal; ValueError for a part that doesn't belong here."""
    if reply.error is not None:
        code = reply.code if reply.code in STATUS_BY_CODE else "storage.corrupt"
        raise CodefyError(reply.error, code=code)
    if reply.part != asked.parts:
        raise ValueError(f"part {reply.part} came instead of {asked.parts}")
    asked.parts += 1
    asked.head |= reply.data or {}
    asked.body += base64.b64decode(reply.bytes, validate=True)
    if len(asked.body) > MESSAGE_BYTES:
        raise ValueError(f"the answer has more than {MESSAGE_BYTES} bytes")


def _of_worker(error: Exception) -> CodefyError:
    if isinstance(error, CodefyError):
        return error
    return CodefyError(f"The worker's answer can't be read: {error}.", code="storage.corrupt")
