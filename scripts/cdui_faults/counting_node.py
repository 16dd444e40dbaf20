"""The node of a schedule's runs: counts, and notes in a file of its own what it is about to tell.

A plain file in the folder of one's own nodes: it is copied there.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codefyui_core.plugin import DataType, Node, NodeContext, Param, ParamKind, Port


class Count(Node):
    """Emits 0 .. n-1 as metric ``count``. Each number is in the journal before it is told."""

    type = "FaultsCount"
    category = "Faults"
    outputs = (Port(name="value", type=DataType.SCALAR),)
    params = (
        Param(name="journal", kind=ParamKind.STRING, default=""),
        Param(name="n", kind=ParamKind.INT, default=100, minimum=0),
        Param(name="pause_ms", kind=ParamKind.FLOAT, default=0.0, minimum=0),
        Param(name="ending", kind=ParamKind.SELECT, default="return", options=("return", "raise", "exit")),
        Param(name="deaf", kind=ParamKind.BOOL, default=False),
    )
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        journal = os.open(Path(params["journal"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(journal, f"start {os.getpid()}\n".encode())
        for step in range(params["n"]):
            if context.should_stop() and not params["deaf"]:
                os.write(journal, b"stopped\n")
                return {"value": float(step), "__interrupted__": True}
            os.write(journal, f"{step}\n".encode())
            context.metric("count", float(step), step)
            if step % 100 == 0:
                print(f"at {step}", flush=True)
            time.sleep(params["pause_ms"] / 1000)
        os.write(journal, b"done\n")
        if params["ending"] == "raise":
            raise ValueError("it went wrong on purpose")
        if params["ending"] == "exit":
            os._exit(3)
        return {"value": float(params["n"])}
