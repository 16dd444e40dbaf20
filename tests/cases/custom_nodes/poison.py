"""A node whose code writes what it likes into the event pipe of its own run."""

import gc
import sys
from collections.abc import Mapping
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Port

LINES = [
    b'{"kind":"event","type":"log","payload":{"lines":["nul \\u0000, half \\ud800"]},"ts":1}',
    b'{"kind":"event","type":"log","payload":{"lines":[NaN]},"ts":1}',
    b'{"kind":"event","type":"log","payload":{"lines":["\xff\xfe"]},"ts":1}',
    b'{"kind":"event","type":"log","payload":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b',"ts":1}',
    b'{"kind":"event","type":"log","payload":{"lines":[%d]},"ts":1}' % 2**70,
    b'{"kind":"event","type":"log","payload":{"' + b"k" * (1 << 20) + b'":1},"ts":1}',
    b'{"kind":"event","type":"log","payload":[],"ts":0.5}',
    b'{"kind":"end","payload":{"outcome":"failed"}}',
    b"\x00\x01 no JSON at all \xfe",
    b'{"kind":"event","type":"log","payload":{"lines":["' + b"x" * (64 << 20) + b'"]},"ts":1}',
]


class Poison(Node):
    """Also prints and reports oddities as any node may."""

    type = "CasesPoison"
    category = "Cases"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        pipe = next(
            one for one in gc.get_objects() if type(one).__name__ == "Pipe" and hasattr(one, "outcome")
        )
        for number, line in enumerate(LINES):
            pipe.emit(b'{"kind":"event","type":"mark","payload":{"n":%d},"ts":1}' % number)
            pipe.emit(line)
        pipe.emit(b'{"kind":"event","type":"mark","payload":{"n":%d},"ts":1}' % len(LINES))
        sys.stdout.buffer.write(b"printed nul \x00 and \xff\xfe\n")
        sys.stdout.flush()
        context.metric("odd", float("nan"), 0)
        context.metric("odd", float(2**70), 2**70)
        context.log("half a pair \ud800 and \x00")
        return {"value": 1.0}
