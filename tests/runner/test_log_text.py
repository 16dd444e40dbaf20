"""What a run prints, as lines of events."""

from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.runner.log_text import LINE_BYTES, TAIL_BYTES, Lines, Tail

PIECES = st.lists(st.binary(max_size=20))


@given(st.lists(st.text(alphabet="ab\u00e9\u4e00 ", max_size=12), max_size=8), st.lists(st.integers(1, 5)))
def test_lines_are_the_same_however_the_stream_is_cut(texts, cuts):
    data = "".join(f"{text}\n" for text in texts).encode()
    lines, found, place = Lines(), [], 0
    for cut in cuts:
        found += lines.feed(data[place : place + cut])
        place += cut
    found += lines.feed(data[place:]) + lines.end()
    assert found == texts


@given(PIECES)
def test_any_bytes_become_text_in_one_piece_or_many(pieces):
    at_once = Lines()
    expected = at_once.feed(b"".join(pieces)) + at_once.end()
    lines = Lines()
    found = [line for piece in pieces for line in lines.feed(piece)] + lines.end()
    assert found == expected


def test_what_a_carriage_return_overwrites_is_dropped_and_a_dos_line_end_is_none():
    lines = Lines()
    assert lines.feed(b"10%\r20%\r") == []
    assert lines.feed(b"30%\nnext\r\n") == ["30%", "next"]
    assert lines.feed(b"40%\r") == []
    assert lines.feed(b"\n") == ["40%"]


def test_a_line_over_the_limit_is_cut_with_its_length_and_the_next_is_whole():
    lines = Lines()
    (cut, whole) = lines.feed(b"a" * (LINE_BYTES + 5) + b"\nb\n")
    assert cut.startswith("a" * LINE_BYTES)
    assert f"{LINE_BYTES + 5} bytes" in cut
    assert whole == "b"


def test_memory_for_an_endless_line_is_bounded():
    lines = Lines()
    for _ in range(100):
        assert lines.feed(b"x" * LINE_BYTES) == []
    assert len(lines._open) <= LINE_BYTES
    (line,) = lines.end()
    assert f"{100 * LINE_BYTES} bytes" in line


@given(st.lists(st.text(max_size=3000), max_size=60))
def test_the_tail_is_the_last_lines_that_fit(texts):
    tail = Tail()
    tail.add(texts)
    kept = tail.lines()
    assert len(kept) <= 40
    assert sum(len(line.encode("utf-8", errors="replace")) for line in kept) <= TAIL_BYTES
    if texts and len(texts[-1].encode("utf-8", errors="replace")) < TAIL_BYTES:
        assert list(kept) == texts[len(texts) - len(kept) :]
