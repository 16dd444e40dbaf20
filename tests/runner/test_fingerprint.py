"""The fingerprint of an environment, apart from processes."""

import pytest

from codefyui_core.loading import load
from codefyui_core.runner import fingerprint as room
from codefyui_core.runner.memory import Card


@pytest.mark.spec("fingerprint/devices-before-narrowing")
def test_all_cards_are_listed_whatever_a_run_may_see(monkeypatch):
    both = tuple(Card(name="H200", uuid=f"GPU-{n}", total_bytes=5, free_bytes=n) for n in range(2))
    monkeypatch.setattr(room, "cards", lambda: both)
    registry = load(plane=None, block=("codefyui-nodes-torch",))
    whole = room.fingerprint(registry, {})
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    confined = room.fingerprint(registry, {})
    assert [card["uuid"] for card in whole["accelerators"]] == ["GPU-0", "GPU-1"]
    assert room.digest(confined) == room.digest(whole)
    assert room.digest(room.fingerprint(registry, {"OMP_NUM_THREADS": "3"})) != room.digest(whole)
