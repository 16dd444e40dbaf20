"""The descriptor of the catalog ``builtin``."""

from collections.abc import Iterable

from codefyui_core.plugin import CatalogProblem, Node, NodeCatalog


class BuiltinCatalog(NodeCatalog):
    """Control flow, contract nodes and texts, under bare names."""

    name = "builtin"
    title = "Built in"
    namespace = ""

    def nodes(self) -> Iterable[type[Node] | CatalogProblem]:
        from .graph_input import GraphInput
        from .graph_output import GraphOutput
        from .map import Map
        from .print import Print
        from .start import Start
        from .switch import Switch
        from .text_input import TextInput

        return (Start, Print, GraphInput, GraphOutput, Map, Switch, TextInput)
