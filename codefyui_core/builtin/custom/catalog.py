"""The descriptor of the catalog ``custom``."""

from collections.abc import Iterator
from pathlib import Path

from codefyui_core.plugin import CatalogProblem, Node, NodeCatalog


class CustomCatalog(NodeCatalog):
    """Node classes from single files in one folder, under bare names. A file that can't be used is listed with
    the reason, and the rest loads.
    """

    name = "custom"
    title = "Own nodes"
    namespace = ""
    gives_way = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.watch = (folder,)

    def nodes(self) -> Iterator[type[Node] | CatalogProblem]:
        from .node_file import node_files, nodes_in

        first: dict[str, Path] = {}
        for path in node_files(self._folder):
            for found in nodes_in(path):
                if isinstance(found, CatalogProblem):
                    yield found
                elif found.type in first:
                    yield CatalogProblem(
                        source=str(path),
                        message=f"the node type {found.type} is taken by {first[found.type].name}; rename it",
                    )
                else:
                    first[found.type] = path
                    yield found
