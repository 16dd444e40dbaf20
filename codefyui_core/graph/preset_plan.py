"""The plan of one preset by itself, as Map runs it for each item."""

from dataclasses import dataclass

from .bypass import remove_bypassed
from .content import Endpoint
from .definitions import Definitions
from .document import Document
from .groups import Library
from .inline import inline_group
from .issues import GraphInvalid, Issue, IssueCode
from .plan import Plan, plan_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetPlan:
    """All nodes of the preset, under their ids in it."""

    name: str
    plan: Plan
    input: Endpoint
    """Where the item goes in: the first exposed input."""
    output: Endpoint
    """Where its result comes out: the first exposed output."""
    inputs: dict[str, Endpoint]
    """All that is exposed, by name; the first is ``input``."""
    outputs: dict[str, Endpoint]


def preset_plan(name: str, document: Document, definitions: Definitions) -> PresetPlan:
    """An embedded preset wins over an installed one.

    Raises: GraphInvalid when it isn't there, doesn't expand, or exposes no input or no output.
    """
    library = Library(document, definitions)
    group = library.preset(name)
    if group is None:
        text = f"There is no preset called {name}; install it, or choose another."
        raise GraphInvalid([Issue(text, IssueCode.UNKNOWN_PRESET, None, {"preset": name})])
    inlined = inline_group(group, library)
    if inlined.issues:
        raise GraphInvalid(inlined.issues)
    bypassed = remove_bypassed(inlined, definitions)
    inputs = {port: end for port, end in inlined.inputs.items() if end.node in bypassed.graph.nodes}
    outputs = {port: end for port, end in inlined.outputs.items() if end.node in bypassed.graph.nodes}
    if not inputs or not outputs:
        text = f"Preset {name} has to expose an input and an output to be run for each item."
        raise GraphInvalid([Issue(text, IssueCode.PRESET_NOT_MAPPABLE, None, {"preset": name})])
    return PresetPlan(
        name=name,
        plan=plan_of(bypassed.graph, bypassed.graph.nodes, definitions),
        input=next(iter(inputs.values())),
        output=next(iter(outputs.values())),
        inputs=inputs,
        outputs=outputs,
    )
