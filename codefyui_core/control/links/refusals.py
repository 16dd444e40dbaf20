"""Which agents were refused, for the panel: the last one of each name, until the name connects or we restart."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from codefyui_core.plugin.hosts import Clock
from codefyui_core.plugin.values import JsonObject

from .tokens import rfc3339

NAMES = 500
"""Names that are kept; the oldest go first."""
REVOKED_EVERY = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The last refusal of one name."""

    name: str
    address: str
    code: str
    reason: str
    at: datetime
    count: int = 1
    """Refusals of the name since it last connected."""

    def row(self) -> JsonObject:
        return {
            "name": self.name,
            "address": self.address,
            "code": self.code,
            "reason": self.reason,
            "at": rfc3339(int(self.at.timestamp() * 1000)),
            "count": self.count,
        }


class Refusals:
    """In memory only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, Refusal] = {}
        self._revoked_at: dict[str, datetime] = {}

    def add(self, *, name: str, address: str, code: str, reason: str) -> None:
        """A newer one takes the place of the older."""
        now = self._clock.now()
        new = Refusal(name=name, address=address, code=code, reason=reason, at=now)
        if (old := self._by_name.pop(name.lower(), None)) is not None:
            new = replace(new, count=old.count + 1)
        self._by_name[name.lower()] = new
        while len(self._by_name) > NAMES:
            del self._by_name[next(iter(self._by_name))]

    def add_revoked(self, *, credential_hash: str, name: str, address: str, reason: str) -> bool:
        """Listed once an hour for each credential. The answer: it was."""
        now = self._clock.now()
        last = self._revoked_at.get(credential_hash)
        if last is not None and last <= now < last + REVOKED_EVERY:
            return False
        self._revoked_at[credential_hash] = now
        while len(self._revoked_at) > NAMES:
            del self._revoked_at[next(iter(self._revoked_at))]
        self.add(name=name, address=address, code="revoked", reason=reason)
        return True

    def clear(self, name: str) -> bool:
        """The name connected. The answer: there was something to clear."""
        return self._by_name.pop(name.lower(), None) is not None

    def rows(self) -> list[JsonObject]:
        """Newest first."""
        return [one.row() for one in reversed(self._by_name.values())]
