"""Why an agent doesn't take an assignment. Pure."""

from codefyui_core.wire.messages import Assign, Refuse

from .equipment import Equipment


def refusal(message: Assign, code: str, detail: str, *, retry: bool = False) -> Refuse:
    """``retry``: the run goes back to its place in the queue."""
    known = {"run_id": message.run_id, "attempt": message.attempt}
    return Refuse.model_validate({**known, "code": code, "detail": detail, "retry": retry})


def lacks(message: Assign, equipment: Equipment) -> Refuse | None:
    """What the run needs and this agent hasn't got."""
    offered = {device.device for device in equipment.devices}
    if unknown := [device for device in message.devices if device not in offered]:
        return refusal(message, "device_unknown", f"this agent doesn't offer {', '.join(unknown)}")
    backend = message.backend
    if backend is not None and backend not in equipment.halves:
        return refusal(message, "backend_unknown", f"this agent has no storage backend {backend}")
    return None
