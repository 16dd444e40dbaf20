"""The store keeps its bounds, shows whole runs only, and survives what is broken in it."""

import os

import pytest
import torch

from codefyui_core.errors import Corrupt
from codefyui_core.outputs import DATA, INDEX, OutputStore, What

MIB = 1 << 20


def filled(room, store, names, elements):
    for number, name in enumerate(names):
        room.record(name, store=store, x=torch.zeros(elements))
        os.utime(store.root / name / INDEX, ns=(number, number))


@pytest.mark.spec("setting/worker-output-store-max-mb")
def test_the_oldest_go_first_when_the_bound_is_reached(room):
    store = OutputStore(room.root, limit_bytes=MIB)
    filled(room, store, ["a", "b", "c", "d", "e"], 75_000)
    assert [one.run_id for one in store.kept()] == ["c", "d", "e"]
    assert sum(path.stat().st_size for path in room.root.rglob("*") if path.is_file()) <= MIB


def test_only_so_many_runs_are_kept(room):
    store = OutputStore(room.root, limit_bytes=0, keep_runs=2)
    filled(room, store, ["a", "b", "c"], 10)
    assert [one.run_id for one in store.kept()] == ["b", "c"]


def test_a_later_attempt_takes_the_place_of_an_earlier_one(room):
    room.record(x=1)
    room.record(x=2)
    assert room.value("x")["value"] == 2


def test_an_unfinished_write_is_never_seen_and_goes_when_its_process_is_gone(room):
    staging = room.store.begin("late")
    (staging / DATA).write_bytes(b"half")
    assert room.store.is_writing()
    assert not room.store.has("late")
    assert not room.store.settle("late")
    assert not room.store.is_writing()
    assert list(room.root.iterdir()) == []


def test_a_start_tidies_up_and_obeys_a_smaller_bound(room):
    filled(room, room.store, ["a", "b"], 200_000)
    room.store.begin("late")
    OutputStore(room.root, limit_bytes=MIB).tidy()
    assert [path.name for path in room.root.iterdir()] == ["b"]


def test_a_run_that_is_removed_is_gone_at_once_and_may_be_removed_again(room):
    room.record(x=1)
    assert room.ask(What.REMOVE).head == {"removed": True}
    assert room.ask(What.REMOVE).head == {"removed": False}
    assert list(room.root.iterdir()) == []


def test_a_full_disk_elides_what_does_not_fit(room, monkeypatch):
    monkeypatch.setattr(OutputStore, "room", lambda self: 10_000)
    room.record(small=1, large=torch.zeros(100_000), other="kept")
    assert "no room" in room.listed()["large"]["elided"]
    assert room.value("other")["value"] == "kept"


@pytest.mark.parametrize("break_it", ["cut", "index", "shape", "span", "table"])
def test_damaged_files_are_told_and_nothing_else_breaks(room, break_it):
    room.record(x=torch.zeros(10), items=["a", "b"])
    folder = room.root / "0f3c9d7a"
    index = (folder / INDEX).read_text()
    if break_it == "cut":
        with (folder / DATA).open("r+b") as file:
            file.truncate(5)
    elif break_it == "index":
        (folder / INDEX).write_text(index[:20])
    elif break_it == "shape":
        (folder / INDEX).write_text(index.replace('"shape":[10]', '"shape":[1000]'))
    elif break_it == "span":
        (folder / INDEX).write_text(index.replace('"offset":0,', '"offset":1000000,'))
    else:
        data = bytearray((folder / DATA).read_bytes())
        at = data.rindex(b"\x06\x00\x00\x00\x00\x00\x00\x00")
        data[at : at + 8] = b"\xff" * 8
        (folder / DATA).write_bytes(data)
    with pytest.raises(Corrupt):
        room.value("items" if break_it == "table" else "x", max_elements=10**9)


def test_the_same_run_is_found_by_another_process_of_the_machine(room):
    room.record(x=torch.ones(3))
    again = OutputStore(room.root, limit_bytes=MIB)
    assert again.has("0f3c9d7a")
