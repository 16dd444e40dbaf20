"""The storage session of one attempt, which always has the newest grant."""

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

from pydantic import ValidationError

from codefyui_core.errors import Refused
from codefyui_core.plugin.storage import AnyBackend, Grant, StorageAgent, StorageSession, Ticket
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import AttemptView

from .grants import Grants


class Opening:
    """``session`` is None until it is open, and for a run without a backend."""

    def __init__(
        self,
        view: AttemptView,
        backend: AnyBackend,
        half: StorageAgent[Any, Any, Any, Any],
        grants: Grants,
        log: logging.Logger,
    ) -> None:
        self.session: StorageSession[Any, Any] | None = None
        self._view = view
        self._backend = backend
        self._half = half
        self._grants = grants
        self._log = log
        self._turn = asyncio.Lock()

    async def open(self, stack: AsyncExitStack, ticket: Ticket) -> StorageSession[Any, Any]:
        """Closed with the stack. Raises: Refused for a grant that can't be read; what the backend raises."""
        version, grant = self._grants.version, self._read(self._grants.grant)
        session = await stack.enter_async_context(self._half.open(self._view, ticket, grant))
        self._grants.handed(version)
        self.session = session
        await self.renewed()
        return session

    async def renewed(self) -> None:
        """Hand over the newest grant, if the session hasn't got it. Raises nothing."""
        async with self._turn:
            version = self._grants.version
            if self.session is None or self._grants.given >= version:
                return
            try:
                grant = self._read(self._grants.grant)
                if grant is not None:
                    await self.session.renewed(grant)
            except Refused as error:
                self._log.error("run %s: %s", self._view.run_id, error)
                return
            except Exception:
                self._log.exception("run %s: its new grant can't be used", self._view.run_id)
                return
            self._grants.handed(version)

    def _read(self, grant: JsonObject | None) -> Grant | None:
        try:
            return None if grant is None else self._backend.grant.model_validate(grant)
        except ValidationError:
            # Not even as a cause: its text holds the values.
            raise Refused("the storage credentials that came with it can't be read") from None
