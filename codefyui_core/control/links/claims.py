"""Runs that agents were started for (``--run-id``), each held by the connection that named it. In memory: after
a restart of the server the agents name them again.
"""

from codefyui_core.control.runs.desk import Claim
from codefyui_core.wire.messages import Hello


def claim_of(hello: Hello, place: str, name: str) -> Claim | None:
    """What an agent claims; None for one without ``--run-id``, or that lists its run and so has it already."""
    run_id = hello.run_id
    if run_id is None or any(one.run_id == run_id for one in hello.attempts):
        return None
    devices = tuple(device.device for device in hello.devices)
    return Claim(run_id=run_id, place=place, name=name, devices=devices)


class Claims:
    """A claim ends with its connection, also with one that wasn't let in."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, object]] = {}

    def take(self, run_id: str, incarnation: str, connection: object) -> bool:
        """False: another process holds it. A newer connection of the same process takes it over."""
        holder = self._held.get(run_id)
        if holder is not None and holder[0] != incarnation:
            return False
        self._held[run_id] = (incarnation, connection)
        return True

    def release(self, connection: object) -> None:
        """Whatever that connection holds."""
        for run_id in [run_id for run_id, (_, held_by) in self._held.items() if held_by is connection]:
            del self._held[run_id]
