"""A graph document as it was saved: kept whole, with every key that we don't know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..plugin.values import JsonObject
from . import json_text
from .issues import GraphInvalid, Issue, IssueCode

_LISTS = ("nodes", "edges", "presets", "subgraphs", "segmentGroups")


@dataclass(frozen=True, slots=True)
class Document:
    """``raw`` is never changed in place: whatever edits a document makes a new one."""

    raw: JsonObject

    @classmethod
    def parse(cls, source: bytes | str | Mapping[str, Any]) -> "Document":
        """Raises: GraphInvalid for what is no graph document: no JSON (with line and column), no object, or
        one whose nodes, edges, presets or subgraphs are no lists.
        """
        if isinstance(source, Mapping):
            value: Any = dict(source)
            if (problem := json_text.problem_of(value)) is not None:
                raise _invalid(problem + ".", IssueCode.NOT_JSON)
        else:
            try:
                value = json_text.loads(source)
            except json_text.NotJson as error:
                place = {"line": error.line, "column": error.column} if error.line else {}
                raise GraphInvalid([Issue(error.message, IssueCode.NOT_JSON, None, place)]) from None
        return cls(_shape(value))

    def dump(self) -> str:
        """The document as JSON text."""
        return json_text.dumps(self.raw)

    @property
    def name(self) -> str:
        return _text(self.raw.get("name")) or "Untitled"

    @property
    def description(self) -> str:
        return _text(self.raw.get("description")) or ""

    @property
    def settings_device(self) -> str | None:
        """None: the graph leaves the device to the run."""
        return _text(self._settings.get("device")) or None

    @property
    def settings_seed(self) -> int | None:
        """None: unseeded, which is not 0."""
        seed = self._settings.get("seed")
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else None

    @property
    def _settings(self) -> JsonObject:
        settings = self.raw.get("settings")
        return settings if isinstance(settings, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _shape(value: Any) -> JsonObject:
    if not isinstance(value, dict):
        raise _invalid("A graph is a JSON object with nodes and edges.", IssueCode.MALFORMED_DOCUMENT)
    for key in _LISTS:
        if not isinstance(value.get(key), list | tuple | None):
            raise _invalid(f"{key!r} of a graph is a list.", IssueCode.MALFORMED_DOCUMENT)
    if not isinstance(value.get("settings"), dict | None):
        raise _invalid("'settings' of a graph is an object.", IssueCode.MALFORMED_DOCUMENT)
    return value


def _invalid(message: str, code: IssueCode) -> GraphInvalid:
    return GraphInvalid([Issue(message, code)])
