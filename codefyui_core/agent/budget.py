"""How much the spools may take: runs are held at their pipes when that is used up."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

GIB = 1 << 30
SPOOL_BYTES = 4 * GIB
FREE_BYTES = GIB // 2
LOOK_S = 0.5


class Budget:
    """All spools of an agent together."""

    def __init__(
        self,
        folder: Path,
        used: Callable[[], int],
        *,
        limit_bytes: int = SPOOL_BYTES,
        free_bytes: int = FREE_BYTES,
    ) -> None:
        self._folder = folder
        self._used = used
        self._limit_bytes = limit_bytes
        self._free_bytes = free_bytes
        self._looked_at = 0.0
        self._full = False

    def full(self) -> bool:
        """Looks at the disk twice a second at most."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._full = self._used() >= self._limit_bytes or self._free() < self._free_bytes
        return self._full

    async def room(self) -> None:
        """Until there is some."""
        if self.full():
            await self._wait()

    async def _wait(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if not self.full():
                return

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self._folder).free
        except OSError:
            return self._free_bytes
