"""What holds in every order of messages, faults and orders, and what each rule and line of the table is for."""

import os
from functools import cache

import pytest

from codefyui_core.runs.machine import TRANSITIONS, Event, State

from .configurations import LARGE, NEEDED, ORDINARY, STORIES
from .rules import Rule, Violation
from .search import Search, replay

CONFIGURATIONS = {**ORDINARY, **(LARGE if os.environ.get("CODEFYUI_TEST_LARGE_MODEL") else {})}

ROWS = {
    "two cuts": ("drop/no-gap-no-duplicate", "drop/reconnect-replays-unrecorded-in-order"),
    "a cut, a server crash": ("restart/no-event-missing", "restart/same-event-log-continues"),
    "a server crash, a stop": ("restart/stop-remembered",),
    "two runs, a cut": ("drop/slots-held-while-disconnected", "drop/grace-expiry-frees-slots"),
}
"""Requirements that a configuration pins."""

OWN = "the server's own runs have neither hello nor line"
SEARCHES_ALL = pytest.mark.timeout(600)
"""Run alone, it searches all configurations first."""
UNREACHED = {
    (State.ASSIGNED, Event.PROCESS_GONE): OWN,
    (State.ACTIVE, Event.PROCESS_GONE): OWN,
    (State.ACTIVE, Event.UNLISTED_OVER): "a process that replaces its own connection lists what it has, and "
    "of every other one the line is down first",
    (State.AWAY_ACTIVE, Event.EXITED): "an attempt that is listed as lost has no such item, and of every "
    "other one the state is active again",
}
"""Lines that the model can't come to, with the reason. They are there for agents that do otherwise."""


@cache
def searched(name):
    search = Search(CONFIGURATIONS[name])
    return search.run(), search.lines


@cache
def shortest_stories():
    """For each line of the table: a configuration and a shortest story that comes to it."""
    stories = {}
    for name, configuration in ORDINARY.items():
        for key, story in searched(name)[1].items():
            if key not in stories or len(story) < len(stories[key][1]):
                stories[key] = (configuration, story)
    for configuration, story in STORIES.values():
        code = configuration.code()
        replay(configuration, code, story)
        for key in code.table.used - stories.keys():
            stories[key] = (configuration, story)
    return stories


def _marks(name):
    spec = pytest.mark.spec(*ROWS.get(name, ()))
    return [spec, pytest.mark.timeout(3600)] if name in LARGE else [spec]


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in CONFIGURATIONS])
def test_nothing_breaks_in_any_order_of(name):
    found, _ = searched(name)
    assert found.violation is None, str(found)


@pytest.mark.parametrize("rule", Rule, ids=lambda rule: rule.name.lower())
def test_without_the_rule_the_search_finds_harm(rule):
    configuration, kinds = NEEDED[rule]
    found = Search(configuration, frozenset({rule})).run()
    assert found.violation is not None, f"{rule.value}: nothing breaks without it in {found.states} states"
    assert found.violation.kind in kinds, str(found)


@SEARCHES_ALL
def test_every_line_of_the_table_is_reached_or_said_not_to_be():
    assert set(TRANSITIONS) - set(shortest_stories()) == set(UNREACHED)


@SEARCHES_ALL
@pytest.mark.parametrize(
    "key",
    [key for key in TRANSITIONS if key not in UNREACHED],
    ids=lambda key: f"{key[0].name}-{key[1].name}",
)
def test_without_the_line_its_story_is_illegal(key):
    configuration, story = shortest_stories()[key]
    replay(configuration, configuration.code(), story)
    with pytest.raises(Violation, match="illegal: a run that is"):
        replay(configuration, configuration.code(without={key}), story)
