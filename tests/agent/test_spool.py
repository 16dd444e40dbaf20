import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codefyui_core.agent.disk import Disk
from codefyui_core.agent.records import HEADER, encode_record, scan
from codefyui_core.agent.spool import Gap, Spool
from codefyui_core.wire.messages import ItemKind

payloads = st.lists(st.text(max_size=30).map(lambda text: json.dumps({"p": text}).encode()), max_size=20)


class ForgetfulDisk(Disk):
    """Keeps only what was synced when the power goes."""

    def __init__(self):
        self.paths, self.synced, self.named = {}, {}, set()

    def open(self, path):
        descriptor = super().open(path)
        self.paths[descriptor] = path
        self.synced.setdefault(path, 0)
        return descriptor

    def sync(self, descriptor):
        path = self.paths[descriptor]
        self.synced[path] = path.stat().st_size

    def sync_folder(self, folder):
        self.named |= {path for path in self.synced if path.parent == folder}

    def power_loss(self, torn):
        """``torn``: how much of what wasn't synced reached the disk all the same, 0 to 1."""
        for path, size in self.synced.items():
            if not path.exists():
                continue
            kept = size + int((path.stat().st_size - size) * torn)
            if path in self.named or torn == 1:
                with path.open("r+b") as file:
                    file.truncate(kept)
            else:
                path.unlink()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return lambda: tmp_path_factory.mktemp("spool")


def sync(spool):
    job = spool.sync()
    if job is not None:
        job.run()
        spool.synced(job)


def all_of(spool, first=1):
    """Everything that can be read, with the gaps that a sender would skip."""
    got = {}
    while first <= spool.last:
        gap = spool.gap(first)
        if gap is not None:
            first = gap.last + 1
            continue
        batch = spool.read(first, limit_bytes=100, limit_items=3)
        assert batch
        got |= dict(enumerate(batch, first))
        first += len(batch)
    return got


@given(payloads)
def test_records_are_found_again(items):
    data = b"".join(encode_record(n, ItemKind.EVENT, item) for n, item in enumerate(items, 1))
    assert [(record.seq, record.payload) for record in scan(data)] == list(enumerate(items, 1))


@given(payloads, st.data())
@settings(max_examples=60, deadline=None)
def test_what_was_appended_is_read_in_order_across_segments(fresh, items, data):
    spool = Spool(fresh(), segment_bytes=data.draw(st.integers(30, 300)))
    for item in items:
        spool.append(ItemKind.EVENT, item)
    assert all_of(spool) == dict(enumerate(items, 1))
    spool.close()
    again = Spool(spool.folder)
    assert again.last == len(items)
    assert all_of(again) == dict(enumerate(items, 1))


@pytest.mark.spec("drop/events-spooled-on-disk-until-confirmed")
@given(payloads, st.data())
@settings(max_examples=60, deadline=None)
def test_trimming_keeps_all_that_is_not_acknowledged(fresh, items, data):
    spool = Spool(fresh(), segment_bytes=120)
    for item in items:
        spool.append(ItemKind.EVENT, item)
    position = data.draw(st.integers(0, len(items)))
    spool.trim(position)
    spool.trim(position)
    kept = dict(enumerate(items, 1))
    assert all_of(spool, position + 1) == {seq: kept[seq] for seq in kept if seq > position}
    spool.close()
    again = Spool(spool.folder)
    assert all_of(again, position + 1) == {seq: kept[seq] for seq in kept if seq > position}
    assert again.last == spool.last


@given(payloads.filter(bool), st.data())
@settings(max_examples=80, deadline=None)
@pytest.mark.point(19)
def test_a_torn_tail_is_cut_and_the_numbers_go_on_behind_what_is_good(fresh, items, data):
    spool = Spool(fresh())
    for item in items:
        spool.append(ItemKind.EVENT, item)
    spool.close()
    path = next(spool.folder.glob("*.log"))
    size = data.draw(st.integers(0, path.stat().st_size - 1))
    with path.open("r+b") as file:
        file.truncate(size)
    again = Spool(spool.folder)
    whole = [seq for seq, end in ends(items) if end <= size]
    assert all_of(again) == {seq: items[seq - 1] for seq in whole}
    assert again.last == len(whole)
    again.append(ItemKind.END, b"{}")
    sync(again)
    assert all_of(again)[len(whole) + 1] == b"{}"


def ends(items):
    end = 0
    for seq, item in enumerate(items, 1):
        end += HEADER.size + len(item)
        yield seq, end


@given(payloads.filter(bool), st.data())
@settings(max_examples=100, deadline=None)
@pytest.mark.point(19)
def test_a_flipped_bit_loses_its_record_alone(fresh, items, data):
    spool = Spool(fresh())
    for item in items:
        spool.append(ItemKind.EVENT, item)
    spool.close()
    path = next(spool.folder.glob("*.log"))
    raw = bytearray(path.read_bytes())
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    hit = next(seq for seq, end in ends(items) if bit // 8 < end)
    again = Spool(spool.folder)
    assert all_of(again) == {seq: item for seq, item in enumerate(items, 1) if seq != hit}
    if hit < len(items):
        assert again.gap(hit) == Gap(hit, hit)


@given(payloads, st.lists(st.booleans(), max_size=20), st.floats(0, 1), st.integers(60, 400))
@settings(max_examples=80, deadline=None)
def test_power_loss_takes_nothing_that_was_synced(fresh, items, syncs, torn, segment_bytes):
    disk = ForgetfulDisk()
    spool = Spool(fresh(), disk=disk, segment_bytes=segment_bytes)
    for item, synced in zip(items, [*syncs, *[False] * 20], strict=False):
        spool.append(ItemKind.EVENT, item)
        if synced:
            sync(spool)
    durable = spool.durable
    spool.close()
    disk.power_loss(torn)
    again = Spool(spool.folder)
    assert again.last >= durable
    found = all_of(again)
    assert {seq: found[seq] for seq in range(1, durable + 1)} == dict(enumerate(items[:durable], 1))
    assert found.items() <= dict(enumerate(items, 1)).items()


@pytest.mark.point(18)
def test_after_a_power_loss_the_numbers_continue_where_the_control_plane_is(fresh):
    disk = ForgetfulDisk()
    spool = Spool(fresh(), disk=disk)
    spool.append(ItemKind.ACCEPTED, b"{}")
    sync(spool)
    for _ in range(5):
        spool.append(ItemKind.EVENT, b"{}")
    spool.close()
    disk.power_loss(0)
    again = Spool(spool.folder)
    assert again.last == 1
    again.continue_at(7)
    assert again.append(ItemKind.END, b"[]") == 7
    sync(again)
    assert again.read(7, limit_bytes=100, limit_items=5) == [b"[]"]
    again.close()
    assert Spool(spool.folder).last == 7


def test_what_must_be_on_disk_first_is_not_sent_before(fresh):
    spool = Spool(fresh())
    spool.append(ItemKind.ACCEPTED, b"1")
    assert spool.sendable == 0
    assert spool.read(1, limit_bytes=99, limit_items=9) == []
    sync(spool)
    spool.append(ItemKind.EVENT, b"2")
    spool.append(ItemKind.EVENT, b"3", must_sync=True)
    spool.append(ItemKind.EVENT, b"4")
    assert spool.read(1, limit_bytes=99, limit_items=9) == [b"1", b"2"]
    sync(spool)
    assert spool.read(1, limit_bytes=99, limit_items=9) == [b"1", b"2", b"3", b"4"]


def test_a_failed_sync_is_tried_again(fresh):
    spool = Spool(fresh())
    spool.append(ItemKind.END, b"1")
    job = spool.sync()
    assert spool.sync() is None
    spool.synced(job, ok=False)
    assert spool.sendable == 0
    sync(spool)
    assert spool.sendable == 1


def test_a_full_disk_gives_no_number_and_leaves_no_trace(fresh):
    class Full(Disk):
        full = False

        def _write(self, descriptor, data):
            super()._write(descriptor, data[:5] if self.full else data)
            if self.full:
                raise OSError(28, "No space left on device")

    disk = Full()
    spool = Spool(fresh(), disk=disk)
    spool.append(ItemKind.EVENT, b"1")
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        spool.append(ItemKind.EVENT, b"2")
    disk.full = False
    assert spool.append(ItemKind.EVENT, b"3") == 2
    spool.close()
    assert all_of(Spool(spool.folder)) == {1: b"1", 2: b"3"}


def test_files_are_for_their_owner_alone(fresh):
    spool = Spool(fresh())
    spool.append(ItemKind.EVENT, b"1")
    (path,) = spool.folder.glob("*.log")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_batch_stays_within_its_bytes_but_has_one_item(fresh):
    spool = Spool(fresh())
    for _ in range(3):
        spool.append(ItemKind.EVENT, b"x" * 50)
    assert len(spool.read(1, limit_bytes=110, limit_items=9)) == 2
    assert len(spool.read(1, limit_bytes=10, limit_items=9)) == 1
    assert len(spool.read(1, limit_bytes=1000, limit_items=2)) == 2


def test_damage_while_the_agent_runs_becomes_a_gap(fresh, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.spool.TAIL_BYTES", 1)
    spool = Spool(fresh())
    for number in range(1, 6):
        spool.append(ItemKind.EVENT, b"%d" % number * 5)
    (path,) = spool.folder.glob("*.log")
    path.write_bytes(path.read_bytes().replace(b"22222", b"2x222"))
    assert spool.read(2, limit_bytes=99, limit_items=9) == []
    spool.look_again(2)
    assert spool.gap(2) == Gap(2, 2)
    assert all_of(spool) == {1: b"11111", 3: b"33333", 4: b"44444", 5: b"55555"}


def test_a_backlog_is_read_piece_by_piece_whatever_its_records_measure(fresh):
    spool = Spool(fresh(), segment_bytes=3000)
    items = [
        b"%d" % number * size for number, size in enumerate([1, 400, 2500, 3, 5000, 7, 1, 1, 90], start=1)
    ]
    for item in items:
        spool.append(ItemKind.EVENT, item)
    sync(spool)
    spool._tail.clear()
    found = []
    while len(found) < len(items):
        found += spool.read(len(found) + 1, limit_bytes=300, limit_items=2)
        spool.trim(len(found) - 1)
    assert found == items


def test_a_batch_that_was_not_sent_is_read_again(fresh):
    spool = Spool(fresh())
    for number in range(10):
        spool.append(ItemKind.EVENT, b"%d" % number)
    sync(spool)
    spool._tail.clear()
    first = spool.read(3, limit_bytes=100, limit_items=4)
    assert spool.read(3, limit_bytes=100, limit_items=4) == first == [b"2", b"3", b"4", b"5"]
