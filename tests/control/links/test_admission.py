from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.control.links.admission import Before, Decision, Party, Scene, decide

ids = st.sampled_from(["a", "b"])
parties = st.builds(Party, incarnation=ids, machine_id=ids, home_id=ids, one_shot=st.booleans())
befores = st.builds(Before, machine_id=ids, home_id=ids, one_shot=st.booleans())
scenes = st.builds(
    Scene,
    newcomer=parties,
    holder=st.none() | parties,
    probe_answered=st.sampled_from([None, True, False]),
    before=befores,
    in_flight=st.integers(0, 2),
    shows_leases=st.booleans(),
)

A = Party(incarnation="a", machine_id="m", home_id="h")
B = replace(A, incarnation="b")
HERE = Before(machine_id="m", home_id="h")


def test_row_2_the_same_process_replaces_its_older_connection():
    assert decide(Scene(newcomer=A, holder=A)) is Decision.REPLACE


def test_row_3_a_holder_is_asked_and_keeps_its_name_if_it_answers():
    assert decide(Scene(newcomer=B, holder=A)) is Decision.PROBE
    assert decide(Scene(newcomer=B, holder=A, probe_answered=True)) is Decision.HELD
    assert decide(Scene(newcomer=B, holder=A, probe_answered=False)) is Decision.TAKE_OVER


def test_row_4_who_shows_the_lease_of_each_attempt_is_the_heir():
    elsewhere = Before(machine_id="other", home_id="other", one_shot=True)
    scene = Scene(newcomer=B, before=elsewhere, in_flight=2, shows_leases=True)
    assert decide(scene) is Decision.ADMIT


def test_row_5_one_shot_agents_wait_until_the_runs_are_settled():
    one_shot = replace(B, one_shot=True)
    assert decide(Scene(newcomer=one_shot, before=HERE, in_flight=1)) is Decision.HELD
    was = replace(HERE, one_shot=True)
    assert decide(Scene(newcomer=B, before=was, in_flight=1)) is Decision.HELD


def test_row_6_the_same_folder_on_the_same_machine_is_a_restart():
    assert decide(Scene(newcomer=B, before=HERE, in_flight=1)) is Decision.ADMIT


def test_row_7_a_copied_credential_does_not_end_the_runs_of_the_first():
    for before in (replace(HERE, machine_id="other"), replace(HERE, home_id="other")):
        assert decide(Scene(newcomer=B, before=before, in_flight=1)) is Decision.HELD


def test_row_8_with_nothing_in_flight_anybody_with_the_credential_may_come():
    elsewhere = Before(machine_id="other", home_id="other", one_shot=True)
    assert decide(Scene(newcomer=B, before=elsewhere)) is Decision.ADMIT


@given(scenes)
def test_a_holder_that_answers_is_never_disturbed_by_another_process(scene):
    if scene.holder and scene.holder.incarnation != scene.newcomer.incarnation and scene.probe_answered:
        assert decide(scene) is Decision.HELD


@given(scenes)
def test_runs_in_flight_are_only_given_to_their_holder_its_heir_or_its_folder(scene):
    if decide(scene) is Decision.ADMIT and scene.in_flight:
        before, new = scene.before, scene.newcomer
        same = (before.machine_id, before.home_id) == (new.machine_id, new.home_id)
        assert scene.shows_leases or (same and not new.one_shot and not before.one_shot)


@given(scenes)
def test_the_decision_is_reached_after_one_probe_at_most(scene):
    decision = decide(scene)
    if decision is Decision.PROBE:
        decision = decide(replace(scene, probe_answered=False))
        assert decision is Decision.TAKE_OVER
    if decision is Decision.TAKE_OVER:
        decision = decide(replace(scene, holder=None, probe_answered=None))
    assert decision in {Decision.ADMIT, Decision.REPLACE, Decision.HELD}
