"""The hook implementations of the core's own plugin."""

import os
from collections.abc import Iterable

from codefyui_core.plugin import AnyBackend, Connector, NodeCatalog, hookimpl

from .custom.catalog import CustomCatalog
from .custom.folder import custom_nodes_folder
from .direct.connector import DirectConnector
from .local.backend import LocalBackend
from .nodes.catalog import BuiltinCatalog


@hookimpl
def codefyui_connectors() -> Iterable[Connector]:
    return [DirectConnector()]


@hookimpl
def codefyui_storage_backends() -> Iterable[AnyBackend]:
    return [LocalBackend()]


@hookimpl
def codefyui_node_catalogs() -> Iterable[NodeCatalog]:
    return [BuiltinCatalog(), CustomCatalog(custom_nodes_folder(os.environ))]
