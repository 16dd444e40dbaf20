"""The entry point: the catalog ``torch``. Importing it imports no library; ``nodes`` does."""

import json
from collections.abc import Iterable
from importlib.resources import files

from codefyui_core.plugin import CatalogProblem, Node, NodeCatalog, Preset, hookimpl

from .families import classes, module_names


class TorchCatalog(NodeCatalog):
    """Nodes on PyTorch and scikit-learn, under bare names."""

    name = "torch"
    title = "PyTorch and scikit-learn"
    namespace = ""
    preload = ("torch", "torch._dynamo", "numpy", "sklearn", *module_names())

    def nodes(self) -> Iterable[type[Node] | CatalogProblem]:
        return classes(module_names())

    def presets(self) -> Iterable[Preset]:
        folder = files(__package__).joinpath("presets")
        documents = sorted(
            (item for item in folder.iterdir() if item.name.endswith(".json")), key=lambda item: item.name
        )
        return [
            Preset(
                document=json.loads(item.read_text(encoding="utf-8")),
                source=f"{__package__}/presets/{item.name}",
            )
            for item in documents
        ]


@hookimpl
def codefyui_node_catalogs() -> Iterable[NodeCatalog]:
    return (TorchCatalog(),)
