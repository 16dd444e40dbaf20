"""Where an agent keeps what: everything below the user-data folder, by the address that it dials."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from codefyui_core.errors import UsageProblem

LOCAL = "local"
"""Key of the agent that belongs to the server of the same user data."""
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]")


def key_of(url: str) -> str:
    """``<host>-<port>`` of a control URL, with the scheme's own port when it gives none.

    Raises: UsageProblem for what isn't an address.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageProblem(f"{url} is not an address: {error}.") from error
    if not host:
        raise UsageProblem(f"{url} is not an address. Give it as http://<host>:<port> or https://<host>.")
    return f"{_UNSAFE.sub('_', host)}-{port or _PORTS.get(parts.scheme, 80)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The files of the agent with one key. An instance shares the credential, and keeps what belongs to its run
    in a folder of its own.
    """

    user_data: Path
    key: str
    instance: str = ""

    @property
    def folder(self) -> Path:
        return self.user_data / "agent"

    @property
    def credential(self) -> Path:
        return self.folder / f"{self.key}.token"

    @property
    def enrolling(self) -> Path:
        """The lock of who enrolls."""
        return self.folder / f"{self.key}.enrolling"

    @property
    def lock(self) -> Path:
        """Held for the agent's life."""
        if self.instance:
            return self.instances / f"{self.instance}.lock"
        return self.folder / f"{self.key}.lock"

    @property
    def pid(self) -> Path:
        return self.folder / f"{self.key}.pid"

    @property
    def home_id(self) -> Path:
        return self.folder / "home-id"

    @property
    def instances(self) -> Path:
        return self.user_data / "agent-instances"

    @property
    def own(self) -> Path:
        """An instance's folder, which goes with it."""
        assert self.instance
        return self.instances / self.instance

    @property
    def spools(self) -> Path:
        return self._spool / self.key

    @property
    def set_aside(self) -> Path:
        """Spools of other databases, kept for a while."""
        return self._spool / f"{self.key}.aside"

    @property
    def _spool(self) -> Path:
        return self.own / "spool" if self.instance else self.user_data / "agent-spool"

    @property
    def runs(self) -> Path:
        return self.own / "runs" if self.instance else self.user_data / "agent-runs"

    @property
    def outputs(self) -> Path:
        """What runs recorded."""
        return self.user_data / "agent-outputs" / self.key

    @property
    def cache(self) -> Path:
        return self.user_data / "agent-cache"

    @property
    def saved(self) -> Path:
        """What storage backends keep of their options."""
        return self.user_data / "agent.json"

    def prepare(self) -> None:
        """Make the folders, for this user alone."""
        for folder in (self.folder, self.spools, self.runs, self.cache):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
