"""Whose time a request is signed with."""

from datetime import UTC, datetime, timedelta

import pytest

from codefyui_storage_s3.store_time import StoreTime, clock_off

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


class Machine:
    """Its two clocks, and what it knows of a store's."""

    def __init__(self) -> None:
        self.wall, self.monotonic = NOON, 0.0
        self.known = StoreTime(lambda: self.wall, lambda: self.monotonic)

    def wait(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_before_a_store_has_answered_the_own_clock_is_right(machine: Machine) -> None:
    assert machine.known.now() == NOON
    assert not machine.known.corrects


@pytest.mark.parametrize("early_s", [0, 1, 1.9, 6])
def test_a_clock_that_agrees_within_what_an_answer_can_tell_is_right(
    machine: Machine, early_s: float
) -> None:
    machine.known.told(NOON - timedelta(seconds=early_s), took_s=5)
    machine.wait(1000)
    assert machine.known.now() == machine.wall


@pytest.mark.parametrize("off_s", [-3600, -5, 5, 3600])
def test_a_clock_that_is_off_is_corrected_by_the_stores(machine: Machine, off_s: float) -> None:
    machine.known.told(NOON - timedelta(seconds=off_s), took_s=0)
    machine.wait(100)
    assert machine.known.now() == NOON + timedelta(seconds=100 - off_s)
    assert machine.known.ahead() == timedelta(seconds=off_s)


def test_a_clock_that_is_set_meanwhile_changes_nothing(machine: Machine) -> None:
    machine.known.told(NOON, took_s=0)
    machine.wall += timedelta(hours=1)
    machine.monotonic += 10
    assert machine.known.now() == NOON + timedelta(seconds=10)
    machine.wall = NOON + timedelta(seconds=10)
    assert not machine.known.corrects


def test_the_last_answer_counts(machine: Machine) -> None:
    machine.known.told(NOON - timedelta(hours=1), took_s=0)
    machine.known.told(NOON, took_s=0)
    assert not machine.known.corrects


@pytest.mark.parametrize(
    ("ahead", "said"),
    [
        (timedelta(minutes=60), "the server's clock is off by 60 min, ahead of the bucket's; correct it"),
        (timedelta(minutes=-20), "the server's clock is off by 20 min, behind the bucket's; correct it"),
        (timedelta(0), "the server's clock is off from the bucket's; correct it"),
    ],
)
def test_people_are_told_whose_clock_it_is_and_by_how_much(ahead: timedelta, said: str) -> None:
    assert clock_off(ahead, "server") == said
