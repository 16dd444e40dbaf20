"""Events and catalogs of any size: what can't be sent is replaced or left out, and the line stays."""

from types import SimpleNamespace

import pytest

from codefyui_core.agent.catalog import catalog_message, oversize
from codefyui_core.plugin.node import NodeDefinition
from codefyui_core.wire import codec
from codefyui_core.wire.limits import EVENT_BYTES, MESSAGE_BYTES, MIB


def catalog(count):
    definition = NodeDefinition(type="X", category="Test")
    nodes = {f"Type{number:012d}": definition for number in range(count)}
    return SimpleNamespace(definitions=SimpleNamespace(hash="h", nodes=nodes))


async def test_events_of_1_to_16_mib_are_replaced_in_their_places(line):
    await line.agent()
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    sizes = [1 * MIB, 4 * MIB, 16 * MIB]
    for size in sizes:
        process.log("x" * size)
        process.log("between")
    process.log("x" * (EVENT_BYTES - 200))
    process.end("succeeded")
    await line.until(lambda: stored.final)
    events = [item for item in stored.items if item.kind == "event"]
    assert [one.type for one in events] == ["event_too_large", "log"] * 3 + ["log"]
    told = [one.payload["bytes"] for one in events if one.type == "event_too_large"]
    assert [size <= bytes_ <= size + 200 for size, bytes_ in zip(sizes, told, strict=True)] == [True] * 3
    assert len(line.desk.hellos) == 1
    assert stored.final == "succeeded"


@pytest.mark.parametrize("count", [1, 10_000])
def test_the_size_of_a_catalog_is_known_before_it_is_hashed(count):
    assert oversize(catalog(count)) == ""
    size = len(codec.encode(catalog_message(catalog(count))))
    assert size < MESSAGE_BYTES


def test_a_catalog_over_the_limit_is_told_as_a_problem():
    assert oversize(catalog(250_000)).startswith("250000 node types are")


async def test_an_agent_with_such_a_catalog_connects_and_takes_runs(line, monkeypatch):
    monkeypatch.setattr("codefyui_core.agent.agent.oversize", lambda _catalog: "too many node types")
    await line.agent()
    link = await line.control.online()
    assert (link.hello.catalog_hash, link.hello.catalog_problem) == (None, "too many node types")
    stored = await line.control.assign()
    process = await line.starter.process()
    await process.went
    process.end("succeeded")
    await line.until(lambda: stored.final)
