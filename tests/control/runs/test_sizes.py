"""A graph that no worker could be sent is refused when it is submitted."""

import pytest

from codefyui_core.control.runs.documents import MAX_SENT_BYTES


@pytest.mark.parametrize("target", ["box", "any"])
async def test_a_graph_over_16_mib_is_refused_for_workers_with_413(room, kit, target):
    await room.worker()
    graph = kit.graph(note="x" * MAX_SENT_BYTES)
    with pytest.raises(kit.error) as refused:
        await room.submit(graph, target=target)
    assert refused.value.code == "request.too_large"
    assert (await room.service.list())["total"] == 0
