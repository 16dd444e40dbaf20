"""Bodies of blocks: cut anywhere, damaged anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_storage_transfer.blocks import Blocks, Damaged, body_bytes, content_bytes, head_of

BLOCK = 16
CONTENT = st.binary(max_size=100)


def body_of(content: bytes) -> bytes:
    blocks = [content[start : start + BLOCK] for start in range(0, len(content), BLOCK)]
    return b"".join(head_of(block) + block for block in blocks)


def taken(body: bytes, cuts: list[int]) -> tuple[bytes, bool]:
    """What was given out, and whether all of it was right."""
    blocks, out = Blocks("a.pt", BLOCK), bytearray()
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    try:
        for start, end in itertools.pairwise(places):
            for piece in blocks.fed(body[start:end]):
                out += piece
        for piece in blocks.ended():
            out += piece
    except Damaged:
        return bytes(out), False
    return bytes(out), True


@given(CONTENT, st.lists(st.integers(0, 150)))
def test_however_a_body_is_cut_it_is_the_same_content(content: bytes, cuts: list[int]) -> None:
    assert taken(body_of(content), cuts) == (content, True)


@given(CONTENT.filter(bool), st.lists(st.integers(0, 150)), st.data())
def test_a_changed_byte_costs_its_block_and_nothing_before_it(
    content: bytes, cuts: list[int], data: st.DataObject
) -> None:
    body = bytearray(body_of(content))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    whole = at // (BLOCK + 4) * BLOCK
    assert taken(bytes(body), cuts) == (content[:whole], False)


@given(CONTENT, st.integers(0, 150))
def test_a_body_that_ends_early_ends_after_whole_blocks_or_is_damaged(content: bytes, end: int) -> None:
    body = body_of(content)
    out, right = taken(body[:end], [])
    assert content.startswith(out)
    assert right == (end >= len(body) or end % (BLOCK + 4) == 0)


def test_what_came_of_a_block_is_known() -> None:
    blocks = Blocks("a.pt", BLOCK)
    body = body_of(bytes(range(40)))
    assert b"".join(blocks.fed(body[: BLOCK + 4 + 4 + 5])) == bytes(range(16))
    assert b"".join(blocks.begun()) == bytes(range(16, 21))


@given(st.integers(0, 1 << 40), st.integers(1, 1 << 22))
def test_lengths_of_bodies_and_contents_fit(n_bytes: int, block_bytes: int) -> None:
    length = body_bytes(n_bytes, block_bytes)
    assert content_bytes(length, block_bytes) == n_bytes
    assert body_bytes(content_bytes(length - 1, block_bytes), block_bytes) < length or n_bytes == 0


def test_the_message_says_where_to_go_on() -> None:
    with pytest.raises(Damaged, match="ask for the offset and go on there"):
        list(Blocks("a.pt", BLOCK).fed(bytes([1, 0, 0, 0, *range(16)])))
