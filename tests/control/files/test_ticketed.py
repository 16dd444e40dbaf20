"""What the attempts that hold runs read."""

from types import SimpleNamespace

import pytest

from codefyui_core.control.files import ticketed
from codefyui_core.control.files.ticketed import Ticketed
from codefyui_core.plugin.storage import Ticket

A, B = "a" * 64, "b" * 64


def named(sha256, name):
    return {"sha256": sha256, "size_bytes": 1, "family": "files", "name": name, "place": None}


def held(number, *items):
    return SimpleNamespace(now=SimpleNamespace(number=number, ticket={"inputs": list(items), "other": 1}))


@pytest.fixture
def board():
    return SimpleNamespace(flights={})


@pytest.fixture
def read(monkeypatch):
    """How many tickets were read."""
    tickets = []

    class Counted(Ticket):
        @classmethod
        def model_validate(cls, value):
            tickets.append(value)
            return super().model_validate(value)

    monkeypatch.setattr(ticketed, "Ticket", Counted)
    return tickets


def test_a_ticket_is_read_once_an_attempt(board, read):
    found = Ticketed(board)
    board.flights["r"] = held(1, named(A, "x"))
    assert found.of("r")[A].name == "x"
    board.flights["r"] = held(1, named(A, "x"))
    assert list(found.of("r")) == [A]
    assert len(read) == 1
    board.flights["r"] = held(2, named(B, "y"))
    assert list(found.of("r")) == [B]


def test_nothing_is_read_for_a_run_that_nobody_holds(board):
    found = Ticketed(board)
    assert found.of("r") == {}
    board.flights["r"] = held(1, named(A, "x"))
    assert found.of("r")
    del board.flights["r"]
    assert found.of("r") == {}
    board.flights["r"] = SimpleNamespace(now=SimpleNamespace(number=2, ticket=None))
    assert found.of("r") == {}


def test_the_first_of_two_files_with_one_content_stands_for_both(board):
    board.flights["r"] = held(1, named(A, "x"), named(A, "y"))
    assert Ticketed(board).of("r")[A].name == "x"


def test_old_ones_are_forgotten(board, read):
    found = Ticketed(board)
    for number in range(ticketed.REMEMBERED + 1):
        board.flights[str(number)] = held(1, named(A, "x"))
        assert found.of(str(number))
    before = len(read)
    assert found.of("1")
    assert len(read) == before
    assert found.of("0")
    assert len(read) == before + 1
