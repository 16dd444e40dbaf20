"""A node that reads an upload and writes files as it is told, for tests of files that travel."""

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from codefyui_core.plugin import (
    DataType,
    Family,
    FileRole,
    FileRule,
    Node,
    NodeContext,
    Param,
    ParamKind,
    Port,
)


class Carry(Node):
    """``steps`` is a JSON list, each one word and its arguments.

    ``write [path, seed, bytes]`` below the run's data folder; ``record [kind, path, meta]``; ``read []`` logs the
    input; ``hold [file]`` waits until that file is there, and when it is stopped, does ``steps`` of its own first.
    """

    type = "TrialCarry"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (
        Param(name="file", kind=ParamKind.DATA_FILE, default=""),
        Param(name="steps", kind=ParamKind.STRING, default="[]"),
    )
    files = (FileRule(role=FileRole.RECORDS, family=Family.MODELS),)
    cacheable = False

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        stopped = self._do(json.loads(params["steps"]), params, context)
        return {"text": "stopped", "__interrupted__": True} if stopped else {"text": "done"}

    def _do(self, steps: list[Any], params: Mapping[str, Any], context: NodeContext) -> bool:
        for word, *rest in steps:
            match word, rest:
                case "write", [path, seed, n_bytes]:
                    place = context.folders.locate(path)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(random.Random(seed).randbytes(n_bytes))
                case "record", [kind, path, meta]:
                    context.artifact(kind, context.folders.locate(path), meta)
                case "read", []:
                    path = context.input_file(Family.FILES, params["file"])
                    context.log(f"read {path.read_text()} from {path}")
                case "hold", [file, *then]:
                    context.log("holding")
                    while not Path(file).exists():
                        if context.should_stop():
                            self._do(then, params, context)
                            return True
                        time.sleep(0.02)
        return False
