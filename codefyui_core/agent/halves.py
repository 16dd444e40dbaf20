"""Starts the agent halves of plugins, and closes them."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import TypeVar

from codefyui_core.loading import Registry
from codefyui_core.plugin import PluginState
from codefyui_core.plugin.halves import AgentHalf

from .hosts import PluginHost

CLOSE_WITHIN_S = 5.0
log = logging.getLogger("codefyui.agent")

H = TypeVar("H", bound=AgentHalf)
P = TypeVar("P", bound=PluginHost)


async def started(registry: Registry, host: P, make: Callable[[P], H], stack: AsyncExitStack) -> H | None:
    """One half with its host. A failing one is listed as failed; the agent goes on without it."""
    try:
        half = make(host)
        await half.start()
    except Exception as error:
        log.exception("the plugin of %s failed to start", host.name)
        with suppress(KeyError):
            registry.mark(_entry_point(registry, host.name), PluginState.FAILED, str(error))
        return None
    stack.push_async_callback(_close, host.name, half)
    stack.push_async_callback(host.tasks.aclose)
    return half


def _entry_point(registry: Registry, name: str) -> str:
    for brought in registry.contributions:
        if name in brought.connectors or name in brought.backends:
            return brought.entry_point
    raise KeyError(name)


async def _close(name: str, half: AgentHalf) -> None:
    try:
        async with asyncio.timeout(CLOSE_WITHIN_S):
            await half.aclose()
    except Exception:
        log.exception("the plugin of %s failed to close", name)
