"""``docs/states.md`` against the table of transitions, the agent's machine and the decisions of admission."""

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from codefyui_core.agent.machine import Illegal, Machine
from codefyui_core.agent.machine import State as AgentState
from codefyui_core.control.links.admission import Decision
from codefyui_core.control.runs import reasons
from codefyui_core.control.runs.worker_desk import HOLD_OFF_S
from codefyui_core.runs.machine import TRANSITIONS, State
from codefyui_core.runs.status import StopReason
from codefyui_core.wire.limits import PROBE_S, SILENCE_S

TEXT = (Path(__file__).parents[2] / "docs" / "states.md").read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}
RUN, SESSION = SECTIONS["A run at the control plane"], SECTIONS["The connection of a worker"]
AGENT, QUEUE = SECTIONS["An attempt at the agent"], SECTIONS["A waiting run and its place"]


def names(section: str) -> dict[str, str]:
    """The id of each state of a diagram, and what it is called."""
    return {id_: name for name, id_ in re.findall(r'^ +state "([^"]+)" as (\w+)$', section, re.MULTILINE)}


def edges(section: str) -> dict[tuple[str, str], set[str]]:
    """From and to, with what leads there."""
    found = re.findall(r"^ +(\w+) --> (\w+): (.+)$", section, re.MULTILINE)
    assert len({(start, end) for start, end, _ in found}) == len(found)
    drawn: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for start, end, events in found:
        drawn[start, end] |= set(events.split(" · "))
    return dict(drawn)


def paragraphs(section: str) -> dict[str, str]:
    return {
        part.partition("\n")[0]: part.partition("\n")[2]
        for part in re.split(r"^### ", section, flags=re.MULTILINE)[1:]
    }


def test_the_states_of_a_run_are_those_of_the_table() -> None:
    assert names(RUN) == {state.name: state.value for state in State}


def test_the_edges_of_a_run_are_the_lines_that_change_its_state() -> None:
    changing: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for (state, event), line in TRANSITIONS.items():
        if line.next is not state:
            changing[state.name, line.next.name].add(event.value)
    assert edges(RUN) == changing


def test_the_states_and_edges_of_an_attempt_are_what_its_machine_does() -> None:
    assert names(AGENT) == {state.name: state.value for state in AgentState}
    assert edges(AGENT) == machine_edges()


def machine_edges() -> dict[tuple[str, str], set[str]]:
    """Every event in every condition that the machine can come to."""
    acts = {
        "accepted": lambda one: one.accepted(),
        "launched": lambda one: one.launched(),
        "prepared": lambda one: one.prepared(),
        "acked": lambda one: one.acked(one.end_seq or 1),
        "stop": lambda one: one.stop(StopReason.USER),
        "process_gone": lambda one: one.process_gone(),
        "never_started": lambda one: one.never_started(),
        "published": lambda one: one.published(),
        "ended": lambda one: one.ended(3),
        "discard": lambda one: one.discard(),
    }
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    waiting, seen = [Machine()], [Machine()]
    while waiting:
        before = waiting.pop()
        for event, act in acts.items():
            after = replace(before)
            try:
                act(after)
            except Illegal:
                continue
            if after.state is not before.state:
                found[before.state.name, after.state.name].add(event)
            after.story = ()
            if after not in seen:
                seen.append(after)
                waiting.append(after)
    return dict(found)


def test_the_decisions_of_admission_are_all_there() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", SESSION, re.MULTILINE)
    assert sorted(rows) == sorted(decision.value for decision in Decision)
    drawn = {event for events in edges(SESSION).values() for event in events}
    assert {decision.value for decision in Decision} <= drawn
    assert f"has {PROBE_S:g} s" in SESSION
    assert f"after {SILENCE_S:g} s" in SESSION


def test_the_reasons_for_waiting_that_are_named_exist() -> None:
    given = Path(reasons.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r"`(queue\.\w+)`", QUEUE))
    assert codes
    assert all(f'"{code}"' in given for code in codes)
    assert f"for {HOLD_OFF_S:g} s" in QUEUE


@pytest.mark.parametrize("section", [RUN, SESSION, AGENT, QUEUE], ids=["run", "session", "attempt", "queue"])
def test_each_state_has_a_paragraph_that_says_what_restarts_and_drops_do(section: str) -> None:
    told = paragraphs(section)
    assert list(told) == list(names(section).values())
    for name, paragraph in told.items():
        assert "A person sees" in " ".join(paragraph.split()), name
        assert re.search(r"\bline\b", paragraph), f"{name}: what happens when the line drops?"
        assert re.search(r"[Rr]estart|dies|died", paragraph), f"{name}: what happens when a side restarts?"
