"""From a document to a graph of plain nodes."""

from .bypass import remove_bypassed
from .definitions import Definitions
from .document import Document
from .flat import FlatGraph
from .groups import Library
from .inline import inline_document
from .issues import GraphInvalid


def expand(document: Document, definitions: Definitions) -> FlatGraph:
    """Presets and subgraphs inlined, notes dropped, bypassed nodes taken out.

    Raises: GraphInvalid for what can't be expanded; the plain nodes themselves aren't judged.
    """
    inlined = inline_document(document, Library(document, definitions))
    if inlined.issues:
        raise GraphInvalid(inlined.issues)
    return remove_bypassed(inlined, definitions).graph
