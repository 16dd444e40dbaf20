"""The attempts that ended here lately, with their leases, so that a stray assignment starts nothing again."""

import json
from collections import OrderedDict
from pathlib import Path

from codefyui_core.files import write_private
from codefyui_core.wire.messages import AttemptKey

KEEP = 1000


class Done:
    """A small file, written whole. Blocking."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._leases: OrderedDict[str, str] = OrderedDict()
        try:
            self._leases.update(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            self._leases.clear()

    def has(self, key: AttemptKey, lease: str) -> bool:
        return self._leases.get(_name(key)) == lease

    def add(self, key: AttemptKey, lease: str) -> None:
        self._leases[_name(key)] = lease
        while len(self._leases) > KEEP:
            self._leases.popitem(last=False)
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._path, json.dumps(self._leases).encode())


def _name(key: AttemptKey) -> str:
    return f"{key.run_id}.{key.attempt}"
