"""The definitions that this control plane works from: read from the cache, written anew by the helper."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from codefyui_core.errors import CodefyError
from codefyui_core.loading import Registry
from codefyui_core.runner.definitions import Catalog, collect, read_cached


class CatalogKeeper:
    """Holds the newest definitions. Nobody waits for the helper when the cache still fits."""

    def __init__(
        self,
        *,
        registry: Registry,
        cache: Path,
        log: logging.Logger,
        block: Collection[str] = (),
        only: Collection[str] = (),
    ) -> None:
        self._registry = registry
        self._cache = cache
        self._log = log
        self._block = tuple(block)
        self._only = tuple(only)
        self._lock = asyncio.Lock()
        self._listeners: list[Callable[[Catalog], None]] = []
        self.current: Catalog | None = None
        self.problem: str = ""

    def on_change(self, listener: Callable[[Catalog], None]) -> None:
        """Called with each new catalog whose definitions differ from the last one's."""
        self._listeners.append(listener)

    def ready(self) -> Catalog:
        """The definitions.

        Raises: CodefyError ``catalog.loading`` while there are none yet.
        """
        if self.current is None:
            why = f" The last try failed: {self.problem}" if self.problem else ""
            raise CodefyError(
                f"The node definitions are still being read; try again in a moment.{why}",
                code="catalog.loading",
            )
        return self.current

    def read_cache(self) -> None:
        """Begin with what was written down last time, if it still fits."""
        cached = read_cached(self._registry, self._cache)
        if cached is not None:
            self._take(cached)

    async def reload(self) -> Catalog:
        """Have the helper write everything anew. When it fails, what was there before stays in use.

        Raises: CodefyError saying why it failed.
        """
        async with self._lock:
            try:
                catalog = await collect(self._registry, cache=self._cache, block=self._block, only=self._only)
            except CodefyError as error:
                if error.code == "plugin.conflict":
                    raise
                self.problem = error.message
                self._log.error("node definitions: %s", error.message)
                raise
            self.problem = ""
            self._take(catalog)
            return catalog

    async def watch(self) -> None:
        """Reload when a watched folder changes; runs until cancelled."""
        from watchfiles import awatch

        folders = self._watched()
        if not folders:
            return
        async for _ in awatch(*folders, debounce=300, recursive=True, ignore_permission_denied=True):
            with suppress(CodefyError):  # it is in the log
                await self.reload()

    def _watched(self) -> list[Path]:
        folders = {path for catalog in self._registry.catalogs for path in catalog.watch}
        for path in folders:
            path.mkdir(parents=True, exist_ok=True)
        return sorted(folders)

    def _take(self, catalog: Catalog) -> None:
        changed = self.current is None or self.current.definitions.hash != catalog.definitions.hash
        self.current = catalog
        for problem in catalog.problems:
            self._log.warning("nodes: %s: %s", problem.source, problem.message)
        if changed:
            for listener in self._listeners:
                listener(catalog)
