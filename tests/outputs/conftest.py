"""Stores with recorded values in them."""

import json
from types import SimpleNamespace

import pytest

from codefyui_core.engine import Limits, Recorder
from codefyui_core.outputs import OutputStore, Question, What, answer
from codefyui_core.outputs.values import is_empty, json_of

RUN = "0f3c9d7a"


class Room:
    """One store, and what is asked of it."""

    def __init__(self, root):
        self.root = root
        self.store = OutputStore(root, limit_bytes=64 << 20)

    def record(self, run_id=RUN, *, store=None, node="n", **values):
        recorder = Recorder(store or self.store, run_id, Limits(sample_from=1000, sample_size=100))
        steps = values.pop("steps", None)
        ports = [SimpleNamespace(name=name) for name in values]
        result = values if steps is None else {**values, "__steps__": steps}
        recorder.node(node, "Test", None, ports, result)
        recorder.write()

    def ask(self, what, port="", run_id=RUN, **question):
        return answer(self.store, run_id, Question(what=what, node="n", port=port, **question))

    def value(self, port, slice_=None, max_elements=4096):
        """The JSON that a client gets; None for nothing."""
        found = self.ask(What.VALUE, port, slice=slice_, max_elements=max_elements)
        return None if is_empty(found) else json.loads(json_of(found, {"run_id": RUN}))

    def listed(self, run_id=RUN):
        (node,) = json.loads(self.ask(What.LIST, run_id=run_id).body)["nodes"]
        return {port["port"]: port for port in node["ports"]}

    def stats(self, port):
        return self.ask(What.STATS, port).head.get("stats")


@pytest.fixture
def room(tmp_path):
    return Room(tmp_path / "outputs")
