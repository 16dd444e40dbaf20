"""The hook implementations."""

from collections.abc import Iterable

from codefyui_core.plugin import AnyBackend, PluginSettings, hookimpl

from .backend import MountBackend
from .settings import MountSettings


@hookimpl
def codefyui_storage_backends() -> Iterable[AnyBackend]:
    return [MountBackend()]


@hookimpl
def codefyui_settings() -> Iterable[type[PluginSettings]]:
    return [MountSettings]
