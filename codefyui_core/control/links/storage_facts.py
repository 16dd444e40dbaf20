"""What storage backends make of workers: the facts that agents report, and what control halves add."""

import logging
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from codefyui_core.loading import Registry
from codefyui_core.plugin.storage import StorageControl
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import WorkerView

from .session import Session


class StorageFacts:
    """``stores``: the control halves that have started. A failing one costs what it would have added."""

    def __init__(
        self, registry: Registry, stores: Callable[[], Mapping[str, StorageControl]], log: logging.Logger
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._log = log

    def readable(
        self, session: Session, storage: Mapping[str, JsonObject | None]
    ) -> dict[str, JsonObject | None]:
        """Facts that our halves can read; others count as not given."""
        facts: dict[str, JsonObject | None] = {}
        for name, given in storage.items():
            backend = self._registry.backends.get(name)
            if backend is None or session.hello.backends.get(name) != backend.protocol:
                continue
            try:
                facts[name] = None if given is None else backend.facts.model_validate(given) and given
            except ValidationError as error:
                self._log.warning("facts of backend %s on worker %s: %s", name, session.view.name, error)
        return facts

    def fields(self, view: WorkerView, stored: Mapping[str, JsonObject | None]) -> JsonObject:
        """What they add to a worker's row."""
        fields: JsonObject = {}
        for name, store in self._stores().items():
            try:
                backend = self._registry.backends[name]
                raw = stored.get(name)
                facts = None if raw is None else backend.facts.model_validate(raw)
                fields |= store.worker_fields(view, facts)
            except Exception:
                self._log.exception("storage backend %s failed to describe worker %s", name, view.name)
        return fields

    async def welcome(self, session: Session) -> dict[str, JsonObject]:
        """What they tell an agent with the welcome."""
        data: dict[str, JsonObject] = {}
        for name, store in self._stores().items():
            if name not in session.hello.backends:
                continue
            try:
                data[name] = await store.welcome(session.view)
            except Exception:
                self._log.exception("storage backend %s failed to welcome %s", name, session.view.name)
        return data
