"""Looks at the files that receipts tell of: all that are asked for at the same time with one read and in one thread."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codefyui_core.plugin import Arrived, ControlStoreHost, Output, Receipt, Refused, RunId

from .places import Target
from .stored import check_there
from .together import Together

AT_MOST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """A receipt, and where its file is to lie."""

    run: RunId
    output: Output
    receipt: Receipt
    where: Target


class Accepting:
    """Of one control half."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host
        self._together = Together(self._look, at_once=1, most_items=AT_MOST, most_bytes=lambda: 1)

    async def look(self, run: RunId, output: Output, receipt: Receipt, where: Target) -> Arrived:
        """Raises: Refused for a file that isn't here, or isn't what the receipt says."""
        return await self._together.one(_Told(run=run, output=output, receipt=receipt, where=where), 0)

    async def aclose(self) -> None:
        await self._together.aclose()

    async def _look(self, told: Sequence[_Told]) -> Sequence[Arrived | Exception]:
        among = self._host.arrivals.arrived_among
        rows = {
            run: await among(run, [one.output.key for one in told if one.run == run])
            for run in {one.run for one in told}
        }
        return await asyncio.to_thread(lambda: [_judged(one, rows[one.run]) for one in told])


def _judged(told: _Told, rows: Mapping[str, Arrived]) -> Arrived | Refused:
    try:
        return _found(told, rows.get(told.output.key))
    except Refused as error:
        return error


def _found(told: _Told, arrived: Arrived | None) -> Arrived:
    name, receipt, where = told.output.name, told.receipt, told.where
    if arrived is None:
        raise Refused(f"{name} didn't arrive here", code="upload.not_found")
    if (arrived.sha256, arrived.size_bytes) != (receipt.sha256, receipt.size_bytes):
        raise Refused(f"{name} arrived with other content", code="upload.mismatch")
    if arrived.path.parent != (where.folder / where.name).parent:
        raise Refused(f"{name} was sent to another place", code="upload.mismatch")
    check_there(arrived.path, where.folder, arrived.size_bytes)
    return arrived
