"""The entry point: says what the pack brings. Both planes import this module, so it imports no numpy."""

import json
from collections.abc import Iterable
from importlib.resources import files

from codefyui_core.plugin import CatalogProblem, Node, NodeCatalog, Preset, hookimpl


class ExampleCatalog(NodeCatalog):
    """Its types begin with ``example:``."""

    name = "example"
    title = "Example pack"
    preload = ("numpy",)

    def nodes(self) -> Iterable[type[Node] | CatalogProblem]:
        from .moving_average import MovingAverage

        return (MovingAverage,)

    def presets(self) -> Iterable[Preset]:
        file = files(__package__) / "presets" / "smooth_and_print.json"
        return (Preset(document=json.loads(file.read_text(encoding="utf-8")), source=str(file)),)


@hookimpl
def codefyui_node_catalogs() -> Iterable[NodeCatalog]:
    return (ExampleCatalog(),)
