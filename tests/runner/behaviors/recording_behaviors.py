"""Runs that have something left to do once their outcome was told; imported in run processes only."""

import json
import time
from pathlib import Path

from codefyui_core.runner.api import Finished


def execute(go, request, emit, should_stop):
    emit(
        json.dumps({"kind": "event", "type": "said", "payload": {}, "ts": 1}, separators=(",", ":")).encode()
    )
    while go.options.get("until_stopped") and not should_stop():
        time.sleep(0.002)
    outcome = {"outcome": "stopped" if go.options.get("until_stopped") else "succeeded"}
    return Finished(outcome=outcome, afterwards=lambda: _write(Path(go.folders.base), go.options["write"]))


def _write(folder, how):
    (folder / "began").touch()
    if how == "fails":
        raise OSError(28, "No space left on device")
    while how == "waits" and not (folder / "go-on").exists():
        time.sleep(0.002)
    (folder / "written").touch()
