"""What the storage backends say of this machine, asked again with each beat and sent when it changed."""

import asyncio
import logging
from collections.abc import Mapping

from codefyui_core.plugin.storage import AnyBackend, StorageAgent
from codefyui_core.plugin.values import JsonObject

WAIT_S = 5.0


class FactsOf:
    """One backend. A question that isn't answered is never asked again before it is: a hung file system ties
    up one thread, not more.
    """

    def __init__(self, backend: AnyBackend, half: StorageAgent, log: logging.Logger) -> None:
        self._backend = backend
        self._half = half
        self._log = log
        self._asked: asyncio.Task[JsonObject | None] | None = None

    async def welcomed(self, data: JsonObject) -> None:
        try:
            await self._half.welcomed(data)
        except Exception:
            self._log.exception("storage backend %s failed to read the welcome", self._backend.name)

    async def now(self) -> JsonObject | None:
        """None: not offered, or no answer within 5 s."""
        if self._asked is None:
            self._asked = asyncio.create_task(self._ask(), name=f"facts of {self._backend.name}")
        done, _ = await asyncio.wait({self._asked}, timeout=WAIT_S)
        if not done:
            self._log.warning("storage backend %s doesn't answer; not offered", self._backend.name)
            return None
        answer, self._asked = self._asked.result(), None
        return answer

    async def _ask(self) -> JsonObject | None:
        try:
            facts = await self._half.facts()
        except Exception:
            self._log.exception("storage backend %s failed to describe this machine", self._backend.name)
            return None
        return None if facts is None else facts.model_dump(mode="json")

    def close(self) -> None:
        if self._asked is not None:
            self._asked.cancel()


async def all_facts(backends: Mapping[str, FactsOf]) -> dict[str, JsonObject | None]:
    """All of them at once."""
    answers = await asyncio.gather(*(one.now() for one in backends.values()))
    return dict(zip(backends, answers, strict=True))
