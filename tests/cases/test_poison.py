"""Whatever a run writes into its event pipe is stored, or a note stands in its place: never silence, never a loop."""

import json

import pytest

from codefyui_core.runs.spoken import NESTING, read_line
from codefyui_core.wire.limits import EVENT_BYTES


def spoken(payload, type_='"log"', ts="1"):
    """A line by hand: its parts are JSON texts already."""
    return f'{{"kind":"event","type":{type_},"payload":{payload},"ts":{ts}}}'.encode()


def deep(levels):
    return '{"lines":["deep"],"d":' + "[" * levels + "]" * levels + "}"


KEPT = {
    "NUL": spoken(r'{"lines":["a\u0000b"]}'),
    "lone surrogates": spoken(r'{"lines":["\ud800 and \udfff"]}'),
    "a number over 64 bits": spoken(f'{{"lines":[],"n":{2**70}}}'),
    "a long key": spoken('{"lines":[],"' + "k" * (EVENT_BYTES - 200) + '":1}'),
    "some levels": spoken(deep(NESTING - 10)),
    "a key twice": b'{"kind":"event","type":"log","ts":"x","payload":{"lines":[]},"ts":1}',
}
"""Stored as they are."""

NOTED = {
    "no JSON": b'{"kind":"event","type":"log" oops}',
    "a number over all doubles": spoken('{"lines":[],"n":1e309}'),
    "a bare NaN": spoken('{"lines":[NaN]}'),
    "invalid UTF-8": spoken('{"lines":["').replace(b'"ts"', b'\xff\xfe"],"ts"'),
    "900 levels": spoken(deep(900)),
    "10,000 levels": spoken(deep(10_000)),
    "a list": b'[{"kind":"event"}]',
    "an end of its own": b'{"kind":"end","payload":{"outcome":"succeeded"}}',
    "an exit of its own": b'{"kind":"exited","payload":{"exit_code":0}}',
    "a kind that is none": b'{"kind":{"event":1},"type":"log","payload":{}}',
    "a list for a payload": spoken("[1]"),
    "a number for a type": spoken("{}", type_="7"),
    "no type": spoken("{}", type_="null"),
    "a time that is none": spoken("{}", ts='"noon"'),
    "half a millisecond": spoken("{}", ts="0.5"),
    "a time over 64 bits": spoken("{}", ts=str(2**70)),
    "an outcome that is a text": b'{"kind":"outcome","payload":"succeeded"}',
}
"""Stored as ``event_unstorable``."""

ODD = {
    "a closing event": (spoken("{}", type_='"execution_complete"'), {"event_unstorable"}),
    "an empty type": (spoken("{}", type_='""'), {"event_unstorable"}),
    "an artifact without fields": (spoken("{}", type_='"artifact"'), {"artifact"}),
    "an artifact nowhere": (
        spoken('{"artifact_id":"a","path":"' + "p" * 5000 + '"}', type_='"artifact"'),
        {"artifact", "event_unstorable"},
    ),
    "an artifact at NUL": (
        spoken(r'{"artifact_id":"b","path":"a\u0000\ud800"}', type_='"artifact"'),
        {"artifact", "event_unstorable"},
    ),
    "points that are none": (
        spoken('{"points":[7,{"value":[1],"step":1e300}]}', type_='"metric"'),
        {"metric"},
    ),
    "large facts": (
        b'{"kind":"environment","payload":{"facts":"%s"}}' % (b"f" * EVENT_BYTES),
        {"event_too_large", None},
    ),
}
"""With what may stand there, by the plane that reads it; None: no event."""

LINES = {
    **{name: (text, {"log"}) for name, text in KEPT.items()},
    **{name: (text, {"event_unstorable"}) for name, text in NOTED.items()},
    **ODD,
}


@pytest.mark.parametrize("name", [name for name in NOTED if name != "an outcome that is a text"])
def test_a_line_that_no_plane_can_use_is_refused_with_a_reason(name):
    with pytest.raises(ValueError, match=r"\w{3}"):
        read_line(NOTED[name])


@pytest.mark.parametrize("name", KEPT)
def test_a_line_that_can_be_stored_is_read_with_its_values(name):
    said = read_line(KEPT[name])
    assert said.payload == json.loads(KEPT[name])["payload"]
    assert (said.kind, said.type, said.ts) == ("event", "log", 1)


def marker(number):
    return spoken(json.dumps({"lines": [f"mark {number}"]}))


def between_marks(types_and_texts):
    """What stands between one mark and the next, by the number of the first."""
    found, number = {}, None
    for type_, lines in types_and_texts:
        if lines and str(lines[0]).startswith("mark "):
            number = int(lines[0].removeprefix("mark "))
            assert number == len(found), "no mark is lost, doubled or late"
            found[number] = []
        elif number is not None:
            found[number].append(type_)
    return found


def check(found):
    """Each line, or its note, is in its place."""
    assert len(found) == len(LINES) + 1
    for number, (name, (_, allowed)) in enumerate(LINES.items()):
        types = found[number] or [None]
        assert len(types) == 1, name
        assert types[0] in allowed, (name, types)


@pytest.mark.spec("drop/no-gap-no-duplicate")
async def test_a_run_of_the_server_stores_poison_in_its_place_on_both_databases(room):
    run_id = await room.submit()
    process = await room.process(run_id)
    for number, (text, _) in enumerate(LINES.values()):
        process.say_raw(marker(number))
        process.say_raw(text)
    process.say_raw(marker(len(LINES)))
    process.finish()
    await room.becomes(run_id, "succeeded")
    log = await room.log(run_id)
    check(between_marks((one["type"], one["payload"].get("lines", [])) for one in log[:-1]))
    assert log[-1]["type"] == "execution_complete"
    for name, text in KEPT.items():
        assert json.loads(text)["payload"] in [one["payload"] for one in log if one["type"] == "log"], name


@pytest.mark.spec("drop/no-gap-no-duplicate")
async def test_a_worker_sends_poison_once_and_its_line_and_its_run_go_on(line, caplog):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    for number, (text, _) in enumerate(LINES.values()):
        process._lines.put_nowait(marker(number))
        process._lines.put_nowait(text)
    process._lines.put_nowait(marker(len(LINES)))
    process.end("succeeded")
    await line.until(lambda: stored.final)
    events = [item for item in stored.items if item.kind == "event"]
    allowed = dict(LINES)
    for name in ("a closing event", "an empty type"):  # the control plane's to refuse
        allowed[name] = (allowed[name][0], {"execution_complete", ""})
    found = between_marks((item.type, item.payload.get("lines", [])) for item in events)
    assert len(found) == len(LINES) + 1
    for number, (name, (_, types)) in enumerate(allowed.items()):
        assert [found[number][0]] == found[number], name
        assert found[number][0] in types, (name, found[number])
    assert stored.final == "succeeded"
    assert stored.kinds.count("accepted") == stored.kinds.count("end") == 1
    assert len(line.desk.hellos) == 1
    assert "unreadable frame" not in caplog.text


async def test_what_an_agent_made_of_poison_is_stored_by_both_databases(room, kit):
    """Items as they come from the wire, of an agent that let everything pass."""
    agent = await room.worker()
    run_id = await room.submit(target=agent.name)
    key = await agent.accept(run_id)
    for payload in (json.loads(text)["payload"] for text in KEPT.values()):
        await agent.report(key, kit.event(**payload))
    await agent.report(key, kit.event(deep=json.loads("[" * 900 + "]" * 900)), kit.event(n=2.0**1000))
    await agent.finish(key)
    log = await room.log(run_id)
    assert [one["payload"] for one in log[: len(KEPT)]] == [json.loads(t)["payload"] for t in KEPT.values()]
    assert log[-1]["type"] == "execution_complete"
    assert (await room.row(run_id))["status"] == "succeeded"


def after_marks(events):
    """The types of what came between one mark and the next, but for what the engine says of its nodes.

    The engine says it from a thread of its own, so it may come between any two.
    """
    found = []
    for event in events:
        if event["type"] == "mark":
            assert event["payload"]["n"] == len(found), "no mark is lost, doubled or late"
            found.append([])
        elif found and event["type"] != "node_status":
            found[-1].append(event["type"])
    return found


@pytest.mark.service
def test_a_process_that_writes_poison_into_its_own_pipe_ends_well_with_a_note_for_each(site, poison_graph):
    """On the server and on a worker; what it prints and reports is read as it was."""
    site.start_server()
    site.start_agent()
    runs = [site.submit(poison_graph), site.submit(poison_graph, target="box")]
    for run_id in runs:
        site.wait_status(run_id, "succeeded")
        events = site.events(run_id)
        assert [event["cursor"] for event in events] == list(range(1, len(events) + 1))
        *notes, _ = after_marks(events)
        assert [types[0] for types in notes] == [
            "log",  # NUL and half a pair, as they were
            "event_unstorable",  # NaN
            "log",  # bytes that are no UTF-8, as text
            "event_unstorable",  # 10,000 levels
            "log",  # 2**70
            "event_too_large",  # a key of 1 MiB
            "event_unstorable",  # a list for a payload
            "event_unstorable",  # an end of its own
            "log",  # no JSON at all
            "event_too_large",  # 64 MiB
        ]
        texts = [text for event in events if event["type"] == "log" for text in event["payload"]["lines"]]
        assert any(str(text).startswith("nul \0, half ") for text in texts)
        assert 2**70 in texts
        assert any("printed nul \0" in str(text) for text in texts)
        assert events[-1]["type"] == "execution_complete"
    assert site.worker("box")["status"] in {"online", "degraded"}
