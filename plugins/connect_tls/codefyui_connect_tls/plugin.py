"""The hook implementations."""

from collections.abc import Iterable

from codefyui_core.plugin import Connector, PluginSettings, hookimpl

from .connector import TlsConnector
from .settings import TlsSettings


@hookimpl
def codefyui_connectors() -> Iterable[Connector]:
    return [TlsConnector()]


@hookimpl
def codefyui_settings() -> Iterable[type[PluginSettings]]:
    return [TlsSettings]
