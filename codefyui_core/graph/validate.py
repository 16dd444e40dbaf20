"""Everything wrong with a graph, at once, so that one look is enough to repair it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..plugin.values import JsonObject
from . import json_text
from .bypass import Bypassed, remove_bypassed
from .checks import check_inlined
from .definitions import Definitions
from .document import Document
from .inline import Inlined, issue_at
from .issues import Issue, IssueCode
from .mapped import Closure, PresetUse, close
from .order import levels
from .plan import cycle_issue, executable, no_entry_points

_DEVICE = re.compile(r"cpu|auto|cuda(:\d+)?|mps(:\d+)?")


def validate(document: Document, definitions: Definitions) -> tuple[Issue, ...]:
    """None: the graph can run. Never raises, whatever the document holds.

    Nodes that nothing starts are judged too; only a circle of wires is no matter among them.
    """
    closure = close(document, definitions)
    main = closure.main
    issues = [*_settings(document), *main.issues]
    if all(inlined.complete for inlined in closure.inlined()):
        bypassed = remove_bypassed(main, definitions)
        issues += check_inlined(main, bypassed, definitions)
        issues += _start_and_order(main, bypassed)
        issues += _mapped(closure, definitions)
    return tuple(_once(issues))


def _settings(document: Document) -> Iterable[Issue]:
    settings = document.raw.get("settings")
    if not isinstance(settings, dict):
        return
    device, seed = settings.get("device"), settings.get("seed")
    if device not in (None, "") and not (isinstance(device, str) and _DEVICE.fullmatch(device)):
        text = "The graph's device has to be cpu, auto, cuda, cuda:N, mps or mps:N."
        yield Issue(text, IssueCode.SETTINGS_INVALID, None, {"setting": "device"})
    whole = isinstance(seed, int) and not isinstance(seed, bool)
    if seed is not None and not (whole and document.settings_seed in range(2**32)):
        text = f"The graph's seed has to be a whole number from 0 to {2**32 - 1}."
        yield Issue(text, IssueCode.SETTINGS_INVALID, None, {"setting": "seed"})


def _start_and_order(main: Inlined, bypassed: Bypassed) -> Iterable[Issue]:
    graph = bypassed.graph
    chosen = executable(graph)
    if not chosen and not main.blind_trigger:
        yield no_entry_points()
    running = [node for node in graph.nodes if node in chosen]
    _, cycle = levels(running, ((edge.source, edge.target) for edge in graph.edges))
    if cycle:
        yield cycle_issue(cycle, graph)


def _mapped(closure: Closure, definitions: Definitions) -> Iterable[Issue]:
    """The presets that nodes run by name, each problem charged to the node of the document that runs it."""
    owners: dict[str, str] = {}
    for use in closure.uses:
        owner = use.node.shown_id if use.inside is None else owners[use.inside]
        inlined = closure.presets.get(use.preset)
        if inlined is None:
            text = f"Node {use.node.id} runs the preset {use.preset}, which isn't there; install it, or choose another."
            details: JsonObject = {"preset": use.preset, "param": use.param}
            yield issue_at(text, IssueCode.UNKNOWN_PRESET, owner, use.node.id, details)
        elif use.preset not in owners:
            owners[use.preset] = owner
            for issue in _check_mapped(use, inlined, definitions):
                yield Issue(issue.message, issue.code, owner, {"preset": use.preset, **issue.params})
    yield from _recursion(closure, owners)


def _check_mapped(use: PresetUse, inlined: Inlined, definitions: Definitions) -> Iterable[Issue]:
    """As a graph of its own, whose first exposed input is wired and whose nodes all run."""
    bypassed = remove_bypassed(inlined, definitions)
    given = next(iter(inlined.inputs.values()), None)
    if given is None or not inlined.outputs:
        text = f"Preset {use.preset} has to expose an input and an output to be run for each item."
        yield Issue(text, IssueCode.PRESET_NOT_MAPPABLE)
    yield from inlined.issues
    fed = replace(bypassed, blind=bypassed.blind | ({given} if given else set()))
    yield from check_inlined(inlined, fed, definitions)
    graph = bypassed.graph
    _, cycle = levels(graph.nodes, ((edge.source, edge.target) for edge in graph.edges))
    if cycle:
        yield cycle_issue(cycle, graph)


def _recursion(closure: Closure, owners: Mapping[str, str]) -> Iterable[Issue]:
    runs = [(use.inside, use.preset) for use in closure.uses if use.inside is not None]
    _, circle = levels(closure.presets, runs)
    if circle:
        text = f"Preset {circle[0]} runs itself ({' -> '.join(circle)}); it would never end. Choose another."
        details: JsonObject = {"definition": circle[0], "path": list(circle)}
        yield Issue(text, IssueCode.PRESET_RECURSION, owners[circle[0]], details)


def _once(issues: Iterable[Issue]) -> list[Issue]:
    seen: set[bytes] = set()
    found = []
    for issue in issues:
        key = json_text.canonical(issue.to_json())
        if key not in seen:
            seen.add(key)
            found.append(issue)
    return found
