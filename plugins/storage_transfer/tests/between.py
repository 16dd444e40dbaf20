"""Who talks to whom in these tests, and what may stand between."""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from codefyui_core.plugin import AttemptView, Busy, Refused, RunId, WorkerId, WorkerView
from codefyui_core.testing.served_routes import HttpDouble

WORKER = WorkerView(id=WorkerId("0" * 31 + "2"), name="gpu", connected=True)
ATTEMPT = AttemptView(run_id=RunId("0" * 31 + "1"), number=1, worker_id=WORKER.id)


@dataclass
class Between:
    """``ControlHttp`` that keeps what was asked, refuses large bodies, and breaks lines.

    ``break_after``: the line breaks once so many bytes of bodies have passed. ``lose_answers``: how many answers to
    requests that were carried out get lost. ``damage``: of which POST, from 1 on, which byte is changed.
    """

    http: HttpDouble
    body_limit: int | None = None
    break_after: int | None = None
    lose_answers: int = 0
    damage: list[tuple[int, int]] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    n_sent: int = 0

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        json: Any = None,
        data: bytes | AsyncIterable[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        self.asked.append((method, dict(params or {})))
        length = int((headers or {}).get("Content-Length", "0"))
        if self.body_limit is not None and length > self.body_limit:
            raise Refused("the answer was 413", code="proxy.413")
        body = self._passing(data, self._hits()) if isinstance(data, AsyncIterable) else data
        async with self.http.request(
            method, path, headers=headers, params=params, json=json, data=body
        ) as response:
            if method == "POST" and self.lose_answers:
                await response.read()
                self.lose_answers -= 1
                raise Busy("the line broke before the answer")
            yield response

    def _hits(self) -> set[int]:
        return {at for number, at in self.damage if number == len(self.posts())}

    async def _passing(self, data: AsyncIterable[bytes], hits: set[int]) -> AsyncIterator[bytes]:
        async for piece in data:
            left = None if self.break_after is None else self.break_after - self.n_sent
            if left is not None and left < len(piece):
                self.break_after = None
                self.n_sent += left
                yield piece[:left]
                raise ConnectionResetError("the line broke")
            self.n_sent += len(piece)
            yield _damaged(piece, hits)
            hits = {at - len(piece) for at in hits}

    def posts(self) -> list[dict[str, str]]:
        return [params for method, params in self.asked if method == "POST"]


def _damaged(piece: bytes, hits: set[int]) -> bytes:
    changed = bytearray(piece)
    for at in hits:
        if 0 <= at < len(piece):
            changed[at] ^= 1
    return bytes(changed)
