"""``agent.json``: what storage backends keep of their options."""

import json
from pathlib import Path

from codefyui_core.errors import StartProblem
from codefyui_core.plugin.values import JsonObject


def read_saved(path: Path) -> dict[str, JsonObject]:
    """By backend. Blocking.

    Raises: StartProblem for a file that can't be read.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StartProblem(f"{path} can't be read: {error}. Correct it or remove it.") from error
    if not isinstance(value, dict):
        raise StartProblem(f"{path} isn't an object. Correct it or remove it.")
    return {name: saved for name, saved in value.items() if isinstance(saved, dict)}
