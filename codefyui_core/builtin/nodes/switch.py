"""Switch: passes on one of several inputs."""

import math
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from codefyui_core.plugin import CodefyError, DataType, Node, NodeContext, Param, ParamKind, Port, Repeat

FEWEST, MOST = 2, 16


class Switch(Node):
    type = "Switch"
    category = "Data Flow"
    description = (
        "Passes on the input with the selected number. With the number as a parameter, what feeds only the "
        "others doesn't run; with the number wired, all of it runs."
    )
    inputs = (
        Port(
            name="selector",
            type=DataType.SCALAR,
            optional=True,
            description="Number of the input to pass on; overrides the parameter",
        ),
        Port(
            name="input_{n}",
            type=DataType.ANY,
            optional=True,
            repeat=Repeat(param="inputs", minimum=FEWEST, maximum=MOST),
            description="One of the values to choose from",
        ),
    )
    outputs = (Port(name="output", type=DataType.ANY, description="The selected value"),)
    params = (
        Param(
            name="selector",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            maximum=MOST - 1,
            description="Number of the input to pass on, from 0; ignored while the port is wired",
        ),
        Param(
            name="inputs",
            kind=ParamKind.INT,
            default=4,
            minimum=FEWEST,
            maximum=MOST,
            description="How many inputs there are",
        ),
    )

    @classmethod
    def needed_inputs(cls, params: Mapping[str, JsonValue], wired: frozenset[str]) -> frozenset[str] | None:
        if "selector" in wired:
            return None
        return frozenset({f"input_{_number(params.get('selector', 0))}"})

    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        wired = inputs.get("selector")
        number = _number(params["selector"] if wired is None else wired)
        count = min(max(int(params["inputs"]), FEWEST), MOST)
        if not 0 <= number < count:
            raise CodefyError(
                f"Switch: selector {number} is outside 0 to {count - 1}; choose another or add inputs",
                code="switch.out_of_range",
            )
        value = inputs.get(f"input_{number}")
        if value is None:
            raise CodefyError(
                f"Switch: input_{number} is selected but nothing is wired to it", code="switch.unwired"
            )
        return {"output": value}


def _number(value: Any) -> int:
    """A number, or a tensor of one; the fraction is cut off as ``int`` does.

    Raises: CodefyError for anything else.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, str) or not math.isfinite(plain):
            raise ValueError
        return int(plain)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CodefyError(
            f"Switch: the selector is {value!r}, not a number", code="switch.not_a_number"
        ) from error
