"""Publishes what a run records in place, where its folders are shared and nothing is carried."""

import logging
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from codefyui_core.errors import StorageProblem, TransferStopped
from codefyui_core.plugin.storage import Output, StorageSession
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.events import EventType, WarningKind, warning_payload
from codefyui_core.wire.messages import ItemKind

from .carrying.tries import Tries
from .stream import Stream, item


class NoNotes:
    """Nothing is half done when a file is published in place, so nothing is to be remembered."""

    def read(self) -> JsonObject:
        return {}

    async def write(self, notes: JsonObject) -> None:
        return None


async def publish_in_place(
    session: StorageSession[Any, Any],
    backend: str,
    payload: Mapping[str, Any],
    tries: Tries,
    stream: Stream,
    log: logging.Logger,
) -> dict[str, Any]:
    """What its ``artifact`` event says beyond the run's own words. A file that isn't taken is warned of."""
    try:
        path = Path(payload["path"])
        relative = session.workspace.folders.relative(path) or payload.get("relative_path")
        if relative is None:
            return {"state": "on_worker"}
        output = Output(
            key=payload["artifact_id"],
            kind=payload["kind"],
            name=payload.get("name") or PurePosixPath(relative).name,
            relative_path=relative,
            node_id=payload.get("node_id"),
            size_bytes=payload.get("size_bytes"),
        )
        receipt = await tries.done(output.name, lambda meter: session.publish(output, path, NoNotes(), meter))
    except (StorageProblem, TransferStopped, OSError, KeyError, TypeError, ValueError) as error:
        log.warning("a file stays on this machine: %s", error)
        detail = f"{payload.get('name', 'a file')} stays on the worker: {error}"
        warning = warning_payload(WarningKind.TRANSFER_FAILED, detail)
        await stream.append(ItemKind.EVENT, item(ItemKind.EVENT, warning, type=EventType.WARNING))
        return {"state": "on_worker"}
    return {
        "backend": backend,
        "relative_path": relative,
        "state": "stored",
        "receipt": receipt.model_dump(mode="json"),
    }
