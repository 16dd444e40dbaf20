"""Policies of cards, as they are stored and changed; and measuring the server's own."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlalchemy import Table, select, update

from codefyui_core.clocks import AttentiveClock
from codefyui_core.control.db.database import Database
from codefyui_core.control.db.tables import control, workers
from codefyui_core.errors import CodefyError
from codefyui_core.runs.sharing import Policy
from codefyui_core.wire.messages import DeviceInfo

from .cards import Cards, Policies
from .places import SERVER

MEASURE_S = 5.0
"""Between two looks at what is free on shared cards."""
Measure = Callable[[Iterable[DeviceInfo]], Mapping[str, int]]


class CardDesk:
    """``load`` first; ``run`` beside the dispatcher."""

    def __init__(
        self,
        *,
        db: Database,
        cards: Cards,
        server_devices: Callable[[], Sequence[DeviceInfo]],
        clock: AttentiveClock,
        log: logging.Logger,
        measure: Measure,
        kick: Callable[[], None],
    ) -> None:
        self._db = db
        self._cards = cards
        self._server_devices = server_devices
        self._clock = clock
        self._log = log
        self._measure = measure
        self._kick = kick

    async def load(self) -> None:
        """All policies that there are."""
        async with self._db.read() as connection:
            rows = (await connection.execute(select(workers.c.id, workers.c.device_policies))).all()
            own = await connection.scalar(select(control.c.device_policies))
        for holder, stored in [(SERVER, own), *((row.id, row.device_policies) for row in rows)]:
            self._cards.know(holder, read_policies(stored))

    async def set_policy(self, holder: str, device: str, policy: Policy) -> None:
        """Store how runs are admitted to one card. ``holder``: a worker's id, empty for the server.

        Raises: CodefyError ``worker.not_found`` when it was removed meanwhile.
        """
        table: Table = workers if holder else control
        where = workers.c.id == holder if holder else control.c.id == 1
        column = table.c.device_policies
        async with self._db.begin() as connection:
            stored = await connection.scalar(select(column).where(where).with_for_update())
            policies = {**read_policies(stored), device: policy}
            values = {name: one.value for name, one in policies.items() if one is not Policy.COUNT}
            changed = await connection.execute(update(table).where(where).values(device_policies=values))
        if changed.rowcount == 0:
            raise CodefyError("That worker was removed.", code="worker.not_found")
        self._cards.know(holder, read_policies(values))
        if not holder:
            await self._measure_here()
        self._kick()

    async def run(self) -> None:
        """Until cancelled: measurements come in and runs are looked at again, while any card is shared."""
        while True:
            if self._cards.own_shared:
                await self._measure_here()
            if self._cards.any_shared:
                self._kick()
            await self._clock.sleep(MEASURE_S)

    async def _measure_here(self) -> None:
        try:
            free = await asyncio.to_thread(self._measure, tuple(self._server_devices()))
        except Exception:
            self._log.exception("the free memory of this machine's cards can't be measured")
            return
        self._cards.measured_here(free)


def read_policies(stored: Mapping[str, str] | None) -> Policies:
    """Words of a newer version count as none."""
    known = {policy.value for policy in Policy}
    return {device: Policy(word) for device, word in (stored or {}).items() if word in known}
