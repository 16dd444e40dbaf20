"""The newest storage credentials of one attempt. In memory alone: never in a file or a log."""

import asyncio
from dataclasses import dataclass, field

from codefyui_core.plugin.values import JsonObject
from codefyui_core.wire.messages import Assign, GrantMessage


@dataclass(slots=True)
class Grants:
    """``version``: of what came last; ``given``: of what the session has."""

    version: int = 0
    given: int = 0
    grant: JsonObject | None = field(default=None, repr=False)
    backend: str | None = None
    ticket: JsonObject | None = field(default=None, repr=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @classmethod
    def of(cls, assign: Assign) -> "Grants":
        """As they came with the run."""
        return cls(
            version=assign.grant_version, grant=assign.grant, backend=assign.backend, ticket=assign.ticket
        )

    def came(self, message: GrantMessage) -> bool:
        """False for one that is no news: the highest version wins."""
        if message.version <= self.version:
            return False
        self.version, self.grant = message.version, message.grant
        self.backend = message.backend or self.backend
        self.ticket = message.ticket if message.ticket is not None else self.ticket
        self._tell()
        return True

    def handed(self, version: int) -> None:
        """The session has that one, or there was nothing to hand."""
        self.given = max(self.given, version)
        self._tell()

    async def newer(self, than: int) -> None:
        """Until the session has a newer one."""
        while self.given <= than:
            await self._news.wait()

    async def whole(self) -> None:
        """Until the ticket is there."""
        while self.ticket is None:
            await self._news.wait()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
