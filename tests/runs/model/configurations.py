"""The worlds that are searched. A budget says how many faults of a kind may come, at any moment and in any order."""

from collections.abc import Mapping

from .code import Label
from .rules import Rule
from .search import Configuration
from .world import Faults

Story = tuple[Label, ...]


def _world(
    runs: int = 1, agents: int = 1, events: int = 1, grace_s: float = 300.0, **faults: int
) -> Configuration:
    return Configuration(runs=runs, agents=agents, events=events, grace_s=grace_s, faults=Faults(**faults))


ORDINARY: Mapping[str, Configuration] = {
    "no fault": _world(events=3),
    "a cut, a server crash": _world(cuts=1, crashes=1, events=2),
    "two cuts": _world(cuts=2),
    "a cut, a silence": _world(cuts=1, silences=1),
    "a cut, an agent kill": _world(cuts=1, kills=1),
    "a server crash, an agent kill": _world(crashes=1, kills=1),
    "a cut, a power loss": _world(cuts=1, power=1, events=2),
    "an agent kill, a power loss": _world(kills=1, power=1),
    "a wiped disk, a server crash": _world(wipes=1, crashes=1),
    "a wiped disk, a stop": _world(wipes=1, stops=1),
    "a cut, a stop": _world(cuts=1, stops=1),
    "a server crash, a stop": _world(crashes=1, stops=1),
    "an agent kill, a stop": _world(kills=1, stops=1),
    "refusals, a cut": _world(refusals=3, cuts=1),
    "refusals, a stop": _world(refusals=2, stops=1),
    "a server stop, a cut": _world(shutdowns=1, cuts=1, events=0),
    "a server stop, a server crash": _world(shutdowns=1, crashes=1, events=0),
    "a restart that keeps runs, a cut": _world(keeps=1, cuts=1),
    "a removal, a cut": _world(removes=1, cuts=1),
    "a removal, a server crash": _world(removes=1, crashes=1),
    "a new credential, a cut": _world(rekeys=1, cuts=1),
    "a new credential, then a removal": _world(rekeys=1, removes=1),
    "a new credential elsewhere": _world(agents=2, rekeys=1),
    "a commit in doubt, a server crash": _world(doubts=1, crashes=1),
    "no grace, a cut, a server crash": _world(grace_s=0.0, cuts=1, crashes=1),
    "a copied credential, a cut": _world(agents=2, cuts=1),
    "a copied credential, an agent kill": _world(agents=2, kills=1),
    "two runs, a cut": _world(runs=2, cuts=1),
    "two runs, an agent kill": _world(runs=2, kills=1),
    "two runs, refusals": _world(runs=2, refusals=2),
    "two runs, a stop": _world(runs=2, stops=1),
    "two runs, a removal": _world(runs=2, removes=1),
}
"""Part of the ordinary tests."""

LARGE: Mapping[str, Configuration] = {
    "a cut, a crash, a kill, a stop": _world(cuts=1, crashes=1, kills=1, stops=1),
    "a cut, a crash, a power loss": _world(cuts=1, crashes=1, power=1, events=2),
    "two cuts, two crashes": _world(cuts=2, crashes=2),
    "a server stop, a crash, a kill": _world(shutdowns=1, crashes=1, kills=1),
    "a removal, a crash, a cut": _world(removes=1, crashes=1, cuts=1),
    "a copied credential, two runs, a cut": _world(agents=2, runs=2, cuts=1),
    "two runs, a crash": _world(runs=2, crashes=1),
    "two runs, a new credential": _world(runs=2, rekeys=1),
}
"""Minutes each: with CODEFYUI_TEST_LARGE_MODEL=1."""

_PLACED: Story = (("dials", 0), ("server reads", "hello", 0, "line"), ("places", 0))
_ACCEPTED: Story = (*_PLACED, ("reads", "welcome", 0), ("reads", "assign", 0), ("writes accepted", 0, 0))
_STORED: Story = (*_ACCEPTED, ("sends", 0, 0), ("server reads", "items", 0, "line"))
_LOST: Story = (("KILL", 0), ("agent starts", 0), ("dials", 0), ("server reads", "hello", 0, "line"))
_AWAY: Story = (("KILL", 0), ("server notices the cut", 0, "old"))
_KILLED_WHILE_STOPPING: Story = (("KILL", 0), ("SHUTDOWNS",), ("server notices the cut", 0, "old"))
_CRASHED_WHILE_STOPPING: Story = (("SHUTDOWNS",), ("CRASH",), ("server starts",))
_STOPS = _world(kills=2, crashes=1, shutdowns=1)

STORIES: Mapping[str, tuple[Configuration, Story]] = {
    "listed as lost, killed again, while it stops": (_STOPS, (*_STORED, *_LOST, *_KILLED_WHILE_STOPPING)),
    "the same before it was accepted": (_STOPS, (*_ACCEPTED, *_LOST, *_KILLED_WHILE_STOPPING)),
    "away, then a crash while it stops": (_STOPS, (*_STORED, *_AWAY, *_CRASHED_WHILE_STOPPING)),
    "away before it was accepted, then a crash": (_STOPS, (*_PLACED, *_AWAY, *_CRASHED_WHILE_STOPPING)),
}
"""Single stories that come to lines of the table which the ordinary budgets are too small for."""

NEEDED: Mapping[Rule, tuple[Configuration, frozenset[str]]] = {
    Rule.ONE_TRANSACTION: (_world(crashes=1), frozenset({"log", "illegal"})),
    Rule.READS_AGAIN: (_world(doubts=1), frozenset({"log"})),
    Rule.START_GATE: (_world(wipes=1), frozenset({"two starts"})),
    Rule.POSITION_WINS: (_world(power=1), frozenset({"stuck"})),
    Rule.LISTS_MEMORY: (_world(cuts=1, stops=1), frozenset({"slots", "start after end"})),
    Rule.LISTS_DISK: (_world(kills=1), frozenset({"stuck"})),
    Rule.DROPS_OLD_FRAMES: (_world(cuts=1, stops=1), frozenset({"slots", "start after end"})),
    Rule.ONE_END: (_world(cuts=1), frozenset({"one end"})),
    Rule.STOP_STORED_FIRST: (_world(crashes=1, stops=1, kills=1), frozenset({"start after stop"})),
    Rule.REMOVE_STORED_FIRST: (_world(crashes=1, removes=1), frozenset({"stuck"})),
    Rule.NEWEST_SPEAKS: (_world(cuts=1), frozenset({"away"})),
    Rule.NO_OLD_HELLO: (_world(cuts=1), frozenset({"start after end", "settled"})),
    Rule.HELD_NAME: (_world(agents=2, cuts=1), frozenset({"taken"})),
    Rule.SLOT_UNTIL_EXITED: (_world(runs=2, cuts=1), frozenset({"slots"})),
    Rule.GHOSTS_BLOCK: (_world(runs=2, cuts=1), frozenset({"slots"})),
}
"""Where the search finds harm without a rule, and of which kind."""
