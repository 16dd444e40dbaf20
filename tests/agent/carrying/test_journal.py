"""The journal of an attempt's files: what was written is read again, whatever became of the file's end."""

import asyncio
import errno
import logging
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.agent.carrying import journal as module
from codefyui_core.agent.carrying.journal import (
    Journal,
    JournalNotes,
    Ledger,
    Noted,
    Placed,
    Recorded,
    Settled,
    _line,
    read_entries,
)

LOG = logging.getLogger("test")
text = st.text(max_size=8)
payloads = st.dictionaries(text, st.one_of(st.none(), st.integers(-(2**40), 2**40), text), max_size=3)
entries = st.lists(
    st.one_of(
        st.builds(
            Placed, relative=text, sha256=text, stamp=st.tuples(st.integers(0, 99), st.integers(0, 99))
        ),
        st.builds(Recorded, key=text, payload=payloads, snapshot=st.one_of(st.none(), text)),
        st.builds(Noted, key=text, notes=payloads),
        st.builds(Settled, key=text, payload=payloads, ts=st.one_of(st.none(), st.integers(0, 99))),
    ),
    max_size=8,
)


@given(written=entries, data=st.data())
def test_a_torn_end_costs_the_torn_line_alone(written, data):
    lines = [_line(entry) for entry in written]
    whole = b"".join(lines)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, lines[: n + 1])) for n in range(len(lines))]
    # A line is good without its break, too.
    assert list(read_entries(whole[:cut])) == [
        entry for entry, end in zip(written, ends, strict=True) if end - 1 <= cut
    ]


@given(written=entries.filter(bool), data=st.data())
def test_a_damaged_line_is_skipped_and_the_others_are_read(written, data):
    lines = [_line(entry) for entry in written]
    which = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[which]) - 2))
    line = bytearray(lines[which])
    line[at] ^= data.draw(st.sampled_from([1, 2, 4, 0x40, 0x80]))
    lines[which] = bytes(line)
    assert list(read_entries(b"".join(lines))) == [one for n, one in enumerate(written) if n != which]


def test_whatever_a_run_says_of_its_file_is_read_again():
    entry = Recorded(key="a", payload={"meta": {"x": "\udcff\x00é", "n": 1e300}, "name": "a.pt"})
    assert list(read_entries(_line(entry))) == [entry]


def test_a_new_process_goes_on_behind_a_torn_end(tmp_path):
    path = tmp_path / "files.log"
    Journal(path, LOG).add(Noted(key="a", notes={"part": 1}))
    path.write_bytes(path.read_bytes() + b'deadbeef {"t": "no')
    journal = Journal(path, LOG)
    journal.add(Noted(key="b", notes={"part": 2}))
    assert set(Journal(path, LOG).ledger.noted) == {"a", "b"}


async def test_a_session_finds_its_notes_in_the_next_process_until_the_file_is_settled(tmp_path):
    path = tmp_path / "files.log"
    notes = JournalNotes(Journal(path, LOG), "a")
    assert notes.read() == {}
    await notes.write({"upload": "u-1", "parts": [1]})
    await notes.write({"upload": "u-1", "parts": [1, 2]})
    journal = Journal(path, LOG)
    assert JournalNotes(journal, "a").read() == {"upload": "u-1", "parts": [1, 2]}
    journal.add(Settled(key="a", payload={}))
    assert JournalNotes(Journal(path, LOG), "a").read() == {}


def test_a_journal_of_many_notes_is_written_anew_and_stays_small(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "REWRITE_BYTES", 2000)
    path = tmp_path / "files.log"
    journal = Journal(path, LOG)
    journal.add(Recorded(key="a", payload={"path": "/x"}))
    for part in range(500):
        journal.add(Noted(key="a", notes={"parts": part}))
    assert path.stat().st_size < 4000
    ledger = Journal(path, LOG).ledger
    assert ledger.noted["a"].notes == {"parts": 499}
    assert [one.key for one in ledger.unsettled] == ["a"]


async def test_what_is_written_at_once_costs_one_sync_and_is_there_when_it_returns(tmp_path, monkeypatch):
    path = tmp_path / "files.log"
    journal, syncs = Journal(path, LOG), []
    monkeypatch.setattr(os, "fsync", syncs.append)

    async def write(number):
        await journal.write(Settled(key=str(number), payload={}))
        assert str(number) in Journal(path, LOG).ledger.settled
        assert syncs

    await asyncio.gather(*map(write, range(100)))
    assert len(syncs) <= 3  # one more for the folder of a new file
    assert [entry.key for entry in read_entries(path.read_bytes())] == [str(number) for number in range(100)]


def test_the_folder_has_a_new_journal_on_the_disk_before_its_first_line_counts(tmp_path, monkeypatch):
    """A loss of power would take the file away with its name."""
    path, synced = tmp_path / "files.log", []
    monkeypatch.setattr(
        module.Disk, "sync_folder", lambda _disk, folder: synced.append((folder, path.stat().st_size > 0))
    )
    journal = Journal(path, LOG)
    assert synced == []
    journal.add(Noted(key="a", notes={}))
    journal.add(Noted(key="b", notes={}))
    Journal(path, LOG).add(Noted(key="c", notes={}))
    assert synced == [(tmp_path, True)]


async def test_what_somebody_wrote_who_was_cancelled_is_there_when_the_journal_is_closed(tmp_path):
    path = tmp_path / "files.log"
    journal = Journal(path, LOG)
    writing = asyncio.create_task(journal.write(Settled(key="a", payload={})))
    await asyncio.sleep(0)
    writing.cancel()
    await journal.aclose()
    assert set(Journal(path, LOG).ledger.settled) == {"a"}


def test_a_full_disk_is_survived_in_memory(tmp_path, monkeypatch, caplog):
    journal = Journal(tmp_path / "files.log", LOG)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        journal.add(Noted(key="a", notes={"part": 1}))
    assert journal.ledger.noted["a"].notes == {"part": 1}
    assert "can't be written" in caplog.text
    journal.add(Noted(key="b", notes={}))
    assert set(Journal(tmp_path / "files.log", LOG).ledger.noted) == {"b"}


@pytest.mark.parametrize("state", ["settled", "unsettled"])
def test_what_isn_t_settled_is_what_the_next_process_has_to_deliver(state):
    ledger = Ledger()
    ledger.add(Recorded(key="a", payload={}))
    if state == "settled":
        ledger.add(Settled(key="a", payload={}))
    assert bool(ledger.unsettled) == (state == "unsettled")
