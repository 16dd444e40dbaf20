"""The node definitions of this installation, as the agent reports them: from the cache, or from a helper."""

import asyncio
import logging
from pathlib import Path

from codefyui_core.errors import CodefyError
from codefyui_core.loading import Registry
from codefyui_core.runner.definitions import Catalog, collect, read_cached
from codefyui_core.settings import AgentSettings

WAIT_S = 20.0
CACHE = "agent-definitions.json"
log = logging.getLogger("codefyui.agent")


async def read_catalog(
    registry: Registry, settings: AgentSettings, user_data: Path
) -> tuple[Catalog | None, str]:
    """The catalog; or None, and why there is none."""
    cache = user_data / CACHE
    known = await asyncio.to_thread(read_cached, registry, cache)
    if known is not None:
        return known, ""
    try:
        catalog = await collect(
            registry, cache=cache, block=settings.plugins_block, only=settings.plugins_only
        )
    except CodefyError as error:
        log.error("the node definitions can't be had, so this worker reports none: %s", error.message)
        return None, error.message
    for problem in catalog.problems:
        log.warning("nodes of %s are left out: %s", problem.source, problem.message)
    return catalog, ""


async def within_wait(collecting: "asyncio.Task[tuple[Catalog | None, str]]") -> tuple[Catalog | None, str]:
    """Hello waits for the definitions, but not for ever."""
    done, _ = await asyncio.wait({collecting}, timeout=WAIT_S)
    if not done:
        log.error("the node definitions weren't there within %g s, so none are reported", WAIT_S)
        return None, f"the helper took longer than {WAIT_S:g} s"
    return collecting.result()
