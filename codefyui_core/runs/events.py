"""Public events of a run: their names, the text that is stored, and the rows that follow from them."""

import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

import orjson

from codefyui_core.plugin.values import JsonObject

from .conclude import Conclusion
from .status import ArtifactState, RunStatus

MAX_PAYLOAD = 1 << 20
"""Bytes of one stored payload. An agent's own limit is lower; what is over it here came past that limit."""
MAX_ARTIFACT_ID = 128
MAX_INT = 2**63 - 1
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
# orjson makes a float of an integer that 64 bits don't hold, and infinity of a float over all doubles.
_LONG_NUMBER = re.compile(r"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")
_LONG_NUMBER_BYTES = re.compile(rb"[0-9]{19}|[0-9][eE]\+?[0-9]{3}")


class EventType(StrEnum):
    """The types that the core makes or reads. A run may report others."""

    START = "execution_start"
    NODE_STATUS = "node_status"
    METRIC = "metric"
    ARTIFACT = "artifact"
    LOG = "log"
    WARNING = "run_warning"
    COMPLETE = "execution_complete"
    ERROR = "execution_error"
    STOPPED = "execution_stopped"
    UNSTORABLE = "event_unstorable"


CLOSING = frozenset({EventType.COMPLETE, EventType.ERROR, EventType.STOPPED})
"""Exactly one ends the log of a run. Made by the control plane alone."""


class WarningKind(StrEnum):
    """The kinds of ``run_warning`` that the planes themselves add."""

    WORKER_DISCONNECTED = "worker_disconnected"
    WORKER_RECONNECTED = "worker_reconnected"
    EVENTS_LOST = "events_lost"
    DEVICE_UNAVAILABLE = "device_unavailable"
    STORAGE_FALLBACK = "storage_fallback"
    OUTPUTS_NOT_RECORDED = "outputs_not_recorded"
    TRANSFER_PROGRESS = "transfer_progress"
    """No trouble: how far the files of a run are. With ``direction`` in or out, ``file``, ``index`` of ``count``,
    ``bytes_done`` of ``bytes_total``."""
    TRANSFER_FAILED = "transfer_failed"
    """A file stays on its worker; of several, ``count`` says how many."""


class NewEvent(NamedTuple):
    """One line of a run's log, with the cursor that it gets. A tuple, like what goes with it: tens of thousands a
    second are made, and a frozen dataclass takes four times as long.
    """

    cursor: int
    type: str
    text: str
    """The payload as JSON, ASCII only."""
    ts: int
    attempt: int | None = None
    seq: int | None = None
    """None: made by the control plane."""


class MetricRow(NamedTuple):
    """One reported value."""

    i: int
    name: str
    value: float | None
    special: str | None
    """nan, inf or -inf when ``value`` is None."""
    step: int | None
    node_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRow:
    """One recorded file or folder."""

    artifact_id: str
    kind: str
    name: str
    backend: str
    label: str | None
    relative_path: str | None
    path: str | None
    size_bytes: int | None
    sha256: str | None
    state: str
    node_id: str | None
    meta: JsonObject | None
    data: JsonObject | None


class Derived(NamedTuple):
    """The rows of one event."""

    metrics: tuple[MetricRow, ...] = ()
    artifacts: tuple[ArtifactRow, ...] = ()


NOTHING = Derived()


def derive(type_: str, payload: Mapping[str, Any]) -> Derived:
    """The rows that exist exactly when the event does. Written by run processes, so every value is checked."""
    if type_ == EventType.METRIC:
        return Derived(metrics=tuple(_metrics(payload)))
    if type_ == EventType.ARTIFACT:
        return Derived(artifacts=tuple(_artifacts(payload)))
    return NOTHING


def fold_final(
    final: Mapping[str, float | None] | None, rows: Iterable[MetricRow]
) -> dict[str, float | None]:
    """The last value of each name. A non-finite one is None."""
    return dict(final or {}) | {row.name: row.value for row in rows}


def closing_event(conclusion: Conclusion) -> tuple[EventType, JsonObject]:
    """The one that agrees with the status."""
    match conclusion.status:
        case RunStatus.SUCCEEDED:
            return EventType.COMPLETE, {}
        case RunStatus.FAILED:
            payload: JsonObject = {"error": conclusion.error, "cause": conclusion.cause}
            return EventType.ERROR, payload
        case RunStatus.CANCELLED | RunStatus.INTERRUPTED:
            return EventType.STOPPED, {"reason": conclusion.status.value, "error": conclusion.error}
    raise AssertionError(f"{conclusion.status} doesn't end a run")


def warning_payload(kind: str, detail: str, count: int = 1) -> JsonObject:
    """Of a ``run_warning``."""
    return {"kind": kind, "count": count, "detail": detail}


def stored_text(payload: Mapping[str, Any]) -> str:
    """JSON that reads the same from every database: ASCII, NUL and lone surrogates as escapes.

    Raises: ValueError, TypeError or RecursionError for what can't be written as JSON.
    """
    try:
        encoded = orjson.dumps(payload)
    except TypeError:
        return _escaped(payload)
    return encoded.decode("ascii") if encoded.isascii() else _escaped(payload)


def _escaped(payload: Mapping[str, Any]) -> str:
    return json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def read_text(text: str | bytes) -> Any:
    """The value of JSON; lone surrogates and integers of any size come back as they were.

    Raises: ValueError for what is no JSON, a bare NaN included, and for a number over all doubles.
    """
    long = _LONG_NUMBER_BYTES.search(text) if isinstance(text, bytes) else _LONG_NUMBER.search(text)
    if long is None:
        with contextlib.suppress(orjson.JSONDecodeError):
            return orjson.loads(text)
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


def _finite(word: str) -> float:
    number = float(word)
    if math.isinf(number):
        raise ValueError(f"{word[:40]} is over all doubles")
    return number


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def storable(type_: str, payload: Mapping[str, Any], seq: int | None) -> tuple[str, str]:
    """Type and text to store: the event's own, or those of ``event_unstorable`` in its place."""
    try:
        text = stored_text(payload)
    except (ValueError, TypeError, RecursionError) as error:
        return unstorable(seq, repr(payload).encode("utf-8", "backslashreplace"), str(error))
    if len(text) > MAX_PAYLOAD:
        return unstorable(seq, text.encode("ascii"), f"over {MAX_PAYLOAD} bytes")
    if not _TYPE.fullmatch(type_):
        return unstorable(seq, text.encode("ascii"), "its type isn't a name of at most 64 characters")
    return type_, text


def unstorable(seq: int | None, body: bytes, reason: str) -> tuple[str, str]:
    """What stands in the place of an event that no database takes."""
    told = {
        "seq": seq,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "reason": reason[:300],
    }
    return EventType.UNSTORABLE.value, _escaped(told)


def _metrics(payload: Mapping[str, Any]) -> Iterable[MetricRow]:
    points = payload.get("points")
    for i, point in enumerate(points if isinstance(points, list) else ()):
        if isinstance(point, dict):
            value, special = _number(point.get("value"))
            yield MetricRow(
                i=i,
                name=str(point.get("name", "")),
                value=value,
                special=special,
                step=_integer(point.get("step")),
                node_id=_text(point.get("node_id")),
            )


def _number(value: object) -> tuple[float | None, str | None]:
    """A number, or the word for one that isn't finite; ``{"__float__": "nan"}`` is how runs write those."""
    if isinstance(value, dict):
        word = value.get("__float__")
        return None, word if word in {"nan", "inf", "-inf"} else "nan"
    try:
        number = float(value)  # type: ignore[arg-type]  # anything may come; what isn't a number is none
    except (TypeError, ValueError):
        return None, "nan"
    except OverflowError:
        return None, "-inf" if str(value).startswith("-") else "inf"
    if math.isfinite(number):
        return number, None
    return None, "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"


def _integer(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if abs(value) <= MAX_INT else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _artifacts(payload: Mapping[str, Any]) -> Iterable[ArtifactRow]:
    artifact_id = payload.get("artifact_id")
    if not isinstance(artifact_id, str) or not artifact_id:
        return
    path = _text(payload.get("path"))
    meta, data = payload.get("meta"), payload.get("data")
    state = payload.get("state")
    sha256 = _text(payload.get("sha256"))
    yield ArtifactRow(
        artifact_id=artifact_key(artifact_id),
        kind=str(payload.get("kind", "output")),
        name=str(payload.get("name") or (path or artifact_id).replace("\\", "/").rsplit("/", 1)[-1]),
        backend=str(payload.get("backend") or "local")[:64],
        label=_text(payload.get("label")),
        relative_path=_text(payload.get("relative_path")),
        path=path,
        size_bytes=_integer(payload.get("size_bytes")),
        sha256=sha256 if sha256 is not None and len(sha256) == 64 else None,
        state=state if state in set(ArtifactState) else ArtifactState.STORED.value,
        node_id=_text(payload.get("node_id")),
        meta=meta if isinstance(meta, dict) else None,
        data=data if isinstance(data, dict) else None,
    )


def artifact_key(artifact_id: str) -> str:
    """The id as it is stored: itself, or its hash when it is longer than a key may be."""
    fits = len(artifact_id) <= MAX_ARTIFACT_ID and artifact_id.isascii() and artifact_id.isprintable()
    if fits:
        return artifact_id
    return hashlib.sha256(artifact_id.encode("utf-8", "backslashreplace")).hexdigest()
