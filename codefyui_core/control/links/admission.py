"""Who may speak for a worker: the table of the protocol page, row by row. Pure.

Its rows are asked in this order, by the one actor of an identity, so hello, grace and Remove are serial.
"""

from dataclasses import dataclass
from enum import Enum


class Decision(Enum):
    """What to do with a newcomer."""

    ADMIT = "admit"
    """Nobody else is there, or it is the holder's own heir."""
    REPLACE = "replace"
    """The same process with a new connection: the older socket gets ``bye replaced``."""
    PROBE = "probe"
    """Ask the holder whether it is there, for three seconds; then decide again."""
    TAKE_OVER = "take_over"
    """The holder is silent: its line is down; then decide again without it."""
    HELD = "held"
    """Refused ``name_held``: the name is somebody else's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """An agent, as far as admission looks at it."""

    incarnation: str
    machine_id: str
    home_id: str
    one_shot: bool = False
    """One-shot agents and instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Who spoke for the identity last, as far as the database remembers it."""

    machine_id: str | None = None
    home_id: str | None = None
    one_shot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that the decision looks at. The version was compared before (row 1)."""

    newcomer: Party
    holder: Party | None = None
    """Who has an open socket now."""
    probe_answered: bool | None = None
    """None: it wasn't asked yet."""
    before: Before = Before()
    in_flight: int = 0
    """Attempts that are neither final nor void."""
    shows_leases: bool = False
    """The newcomer lists each of them with its valid lease."""


def decide(scene: Scene) -> Decision:
    """Rows 2 to 8."""
    if scene.holder is not None:
        return _beside(scene.holder, scene)
    if scene.in_flight == 0 or scene.shows_leases:
        return Decision.ADMIT  # rows 8 and 4
    if scene.newcomer.one_shot or scene.before.one_shot:
        return Decision.HELD  # row 5
    return Decision.ADMIT if _same_folder(scene) else Decision.HELD  # rows 6 and 7


def _beside(holder: Party, scene: Scene) -> Decision:
    if holder.incarnation == scene.newcomer.incarnation:
        return Decision.REPLACE  # row 2
    if scene.probe_answered is None:
        return Decision.PROBE  # row 3
    return Decision.HELD if scene.probe_answered else Decision.TAKE_OVER


def _same_folder(scene: Scene) -> bool:
    before, newcomer = scene.before, scene.newcomer
    return before.machine_id == newcomer.machine_id and before.home_id == newcomer.home_id
