"""Whether the systemd unit that this agent runs in signals its runs behind its back."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

_MEMBERSHIP = Path("/proc/self/cgroup")
_ANSWER_S = 5.0


def kill_mode_problem(environ: Mapping[str, str], membership: Path = _MEMBERSHIP) -> str | None:
    """What to change in the unit, if a stop of it would end runs before they could write a checkpoint. None when
    all is well, there is no unit, or systemd doesn't answer. Waits for ``systemctl``: call it in a thread.
    """
    if "INVOCATION_ID" not in environ:
        return None
    path = _path(membership)
    unit = next((part for part in reversed(path.split("/")) if part.endswith(".service")), "")
    if not unit or unit.startswith("user@"):
        return None
    manager = ["--user"] if "/user@" in path else []
    try:
        done = subprocess.run(
            ["systemctl", *manager, "show", "--property=KillMode", "--value", "--", unit],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.stdout.strip() != "control-group":
        return None
    return (
        f"{unit} has KillMode=control-group: a stop of it signals the runs themselves, which then fail instead of writing"
        " a checkpoint and ending as cancelled. Set KillMode=mixed in its [Service] section, as"
        " deploy/codefyui-agent.service does."
    )


def _path(membership: Path) -> str:
    """Of the group that systemd put this process into: the unified hierarchy's, or its own in cgroup v1."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    found = {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines if line.count(":") >= 2}
    return next((found[name] for name in ("name=systemd", "") if found.get(name, "/") != "/"), "")
