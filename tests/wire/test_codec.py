import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.wire import codec
from codefyui_core.wire.messages import (
    AgentBeat,
    Assign,
    AttemptKey,
    CatalogMessage,
    Hello,
    ItemKind,
    Items,
    Part,
)

KEY = AttemptKey(run_id="r1", attempt=2)


def hello(**changes: object) -> Hello:
    known = {
        "protocol": 1,
        "version": "1.0",
        "name": "box",
        "incarnation": "i",
        "home_id": "h",
        "machine_id": "m",
    }
    return Hello.model_validate(known | changes)


@pytest.mark.spec("version/checked-before-rest-of-message")
def test_version_is_read_from_a_hello_whose_other_fields_are_unreadable():
    frame = json.dumps({"t": "hello", "protocol": 9, "version": "2.0", "name": 17, "novel": []})
    assert codec.read_version(frame) == (9, "2.0")


@pytest.mark.parametrize("frame", ["", "[]", "{}", '{"t":"beat"}', '{"t":"hello","version":"1"}', "{" * 5000])
def test_a_first_frame_that_is_no_hello_is_bad(frame):
    with pytest.raises(codec.BadFrame):
        codec.read_version(frame)


def test_unknown_fields_are_ignored():
    beat = codec.decode('{"t":"beat","n":3,"novel":{"a":1}}', codec.FROM_AGENT)
    assert beat == AgentBeat(n=3)


def test_an_unknown_word_is_named():
    with pytest.raises(codec.BadFrame) as caught:
        codec.decode('{"t":"dance"}', codec.FROM_AGENT)
    assert (caught.value.word, caught.value.reason) == ("dance", "unknown word")


def test_a_field_that_does_not_fit_is_named():
    with pytest.raises(codec.BadFrame, match="first"):
        codec.decode('{"t":"items","run_id":"r","attempt":1,"first":0,"items":[]}', codec.FROM_AGENT)


def test_words_of_the_other_direction_are_unknown():
    with pytest.raises(codec.BadFrame):
        codec.decode('{"t":"ack","acks":[]}', codec.FROM_AGENT)


def test_a_spliced_batch_reads_like_a_written_one():
    raw = [b'{"kind":"event","type":"log","payload":{"a":[1,2]},"ts":5}', b'{"kind":"end","payload":{}}']
    frame = codec.items_frame(KEY, "lease", 7, raw)
    message = codec.decode(frame.decode(), codec.FROM_AGENT)
    assert isinstance(message, Items)
    assert (message.run_id, message.attempt, message.lease, message.first) == ("r1", 2, "lease", 7)
    assert [item.kind for item in message.items] == [ItemKind.EVENT, ItemKind.END]
    assert message.items[0].payload == {"a": [1, 2]}


def test_lone_surrogates_travel():
    raw = json.dumps({"kind": "event", "type": "log", "payload": {"text": "a\ud800b\0"}}).encode()
    message = codec.decode(codec.items_frame(KEY, "l", 1, [raw]).decode(), codec.FROM_AGENT)
    assert isinstance(message, Items)
    assert message.items[0].payload == {"text": "a\ud800b\0"}
    assert codec.decode(codec.encode(message).decode(), codec.FROM_AGENT) == message


def assign(text: str) -> Assign:
    return Assign(
        run_id="r", attempt=1, lease="l", db_id="d", graph={"text": text}, options={}, devices=("cpu",)
    )


@given(st.text(max_size=50), st.integers(2048, 9000))
def test_a_message_of_any_size_comes_back_from_its_frames(text, limit):
    message = assign(text * 400)
    assembler, got = codec.Assembler(), []
    for frame in codec.frames(message, "p", limit):
        assert len(frame) <= limit
        found = codec.decode(frame.decode(), codec.FROM_CONTROL)
        whole = assembler.add(found) if isinstance(found, Part) else frame.decode()
        if whole is not None:
            got.append(codec.decode(whole, codec.FROM_CONTROL))
    assert got == [message]


def test_a_large_hello_says_its_version_first_and_alone():
    message = hello(plugins={f"plugin-{n}": "1.0" for n in range(500)})
    first, *rest = codec.frames(message, "p", 4096)
    assert codec.is_head(first.decode())
    assert codec.read_version(first.decode()) == (1, "1.0")
    assembler = codec.Assembler()
    wholes = [assembler.add(codec.decode(frame.decode(), codec.FROM_AGENT)) for frame in rest]
    assert wholes[:-1] == [None] * (len(rest) - 1)
    assert codec.decode(wholes[-1], codec.FROM_AGENT) == message
    assert not codec.is_head(codec.encode(hello()).decode())


def parts(size: int = 5000) -> list[Part]:
    message = CatalogMessage(hash="h", types={"t": "x" * size})
    return [Part.model_validate_json(frame) for frame in codec.frames(message, "p", 2048)]


def test_parts_over_the_limit_are_refused_before_they_are_kept():
    with pytest.raises(codec.BadFrame, match="more than 100"):
        codec.Assembler(limit_bytes=100).add(parts()[0])


def test_a_message_over_the_limit_is_not_sent():
    with pytest.raises(codec.BadFrame, match="more than a message may have"):
        list(codec.frames(assign("x" * codec.MESSAGE_BYTES), "p"))


@given(st.data())
def test_parts_that_are_lost_repeated_or_changed_never_make_a_message(data):
    good = parts()
    index = data.draw(st.integers(0, len(good) - 1))
    damage = data.draw(st.sampled_from(["lost", "repeated", "changed", "longer"]))
    piece = good[index]
    match damage:
        case "lost":
            bad = good[:index] + good[index + 1 :]
        case "repeated":
            bad = [*good[: index + 1], piece, *good[index + 1 :]]
        case "changed":
            other = ("A" if piece.data[0] != "A" else "B") + piece.data[1:]
            bad = [*good[:index], piece.model_copy(update={"data": other}), *good[index + 1 :]]
        case _:
            longer = piece.data[:4] * 4000
            bad = [*good[:index], piece.model_copy(update={"data": longer}), *good[index + 1 :]]
    assembler, wholes, failed = codec.Assembler(), [], False
    for part in bad:
        try:
            wholes.append(assembler.add(part))
        except codec.BadFrame:
            failed = True
            break
    whole = codec.encode(CatalogMessage(hash="h", types={"t": "x" * 5000})).decode()
    assert all(got in {None, whole} for got in wholes)
    if damage in {"changed", "longer"} or (damage == "lost" and index < len(good) - 1):
        assert failed
        assert whole not in wholes


def test_after_a_bad_part_the_next_message_is_read():
    assembler, good = codec.Assembler(), parts()
    assembler.add(good[0])
    with pytest.raises(codec.BadFrame):
        assembler.add(good[2])
    assert [assembler.add(part) for part in good][-1] is not None


@given(st.text(max_size=200))
def test_no_text_crashes_the_decoder(text):
    for adapter in (codec.FROM_AGENT, codec.FROM_CONTROL):
        with pytest.raises(codec.BadFrame):
            codec.decode(text, adapter)


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(1, 9)), unique=True))
def test_the_hash_of_live_attempts_does_not_depend_on_their_order(attempts):
    assert codec.live_hash(attempts) == codec.live_hash(reversed(attempts))
