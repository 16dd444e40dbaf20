"""Server-sent events from lines of text (WHATWG HTML, "Server-sent events")."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One event of a stream."""

    event: str
    data: str
    id: str | None = None


def parse_events(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """Events as they get complete; comments (beats) are dropped, and so is an unfinished last one."""
    name, last_id = "", None
    data: list[str] = []
    for raw in lines:
        line = raw.rstrip("\r\n")
        if not line:
            if data:
                yield ServerEvent(event=name or "message", data="\n".join(data), id=last_id)
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif field == "id" and "\0" not in value:
            last_id = value
