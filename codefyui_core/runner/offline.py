"""A run without a server: one process, its lines, nothing kept."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

from codefyui_core.files import Family
from codefyui_core.graph import Document
from codefyui_core.plugin.values import JsonObject
from codefyui_core.settings import Install

from .api import FolderSpec, Go, Launch, RunStarter


def folder_spec(install: Install) -> FolderSpec:
    """The folders of an installation, as a run process gets them."""
    folders = install.folders()
    return FolderSpec(
        base=str(install.base),
        data=str(install.data),
        moved={family.value: str(path) for family, path in folders.moved},
        samples=str(install.samples),
        downloads=str(folders.of(Family.CACHE)),
        extra=tuple(str(path) for path in install.readable),
    )


def choose_device(asked: str, offered: tuple[str, ...]) -> str:
    """``auto``: the best that the machine offers; a kind: its first device; else as asked."""
    if asked == "auto":
        return next((name for kind in ("cuda", "mps") for name in offered if name.startswith(kind)), "cpu")
    if asked in {"cuda", "mps"}:
        return next((name for name in offered if name.startswith(asked)), asked)
    return asked


def offline_go(
    document: Document, install: Install, devices: tuple[str, ...], *, device: str, options: JsonObject
) -> Go:
    """What the run process is told; the graph's own device counts when none is asked for."""
    wanted = document.settings_device if device == "auto" and document.settings_device else device
    chosen = choose_device(wanted, devices)
    return Go(
        run_id=secrets.token_hex(16),
        attempt=1,
        document=document.raw,
        options=options,
        device=chosen,
        devices=(chosen,),
        folders=folder_spec(install),
        records=False,
    )


async def run_offline(starter: RunStarter, go: Go) -> AsyncIterator[bytes]:
    """The lines of the run, the outcome last. Leaving early ends the process."""
    process = await starter.launch(Launch(run_id=go.run_id, attempt=1, work_dir=Path(go.folders.base)))
    try:
        await process.ready()
        await process.go(go)
        async for line in process.lines():
            yield line
    finally:
        await process.kill()
        await process.ended()
