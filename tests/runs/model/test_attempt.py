"""What the search found, as a test of its own."""

import pytest

from codefyui_core.agent.machine import Effect
from codefyui_core.agent.machine import State as AgentState
from codefyui_core.wire.messages import Verdict, VerdictKind

from .held import Attempts
from .rules import NOTHING_OFF


@pytest.mark.point(31)
def test_a_stop_in_the_welcome_is_heeded_before_its_position_opens_the_start_gate():
    attempts = Attempts(NOTHING_OFF)
    held = attempts.assigned(0, 1, "lease")
    accepted = attempts.accept(0, held)
    assert accepted.spool is not None
    waits = attempts.prepare(0, accepted.held, accepted.spool)
    assert Effect.GO not in waits.effects
    verdict = Verdict(run_id="r0", attempt=1, kind=VerdictKind.RESUME, position=1, stop="user")
    judged = attempts.judged(0, waits.held, waits.spool, "resume", verdict)
    assert Effect.GO not in judged.effects
    assert Effect.STOP_PROCESS in judged.effects
    assert judged.held.state == AgentState.PREPARING.value
