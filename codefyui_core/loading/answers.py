"""What a hook may answer. Its type is only promised by the plugin, so all of it is looked at once, here."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ..errors import CodefyError
from ..plugin import (
    Connector,
    Facts,
    Form,
    Grant,
    LinkConnector,
    LinkMemo,
    NodeCatalog,
    Plane,
    PluginSettings,
    Receipt,
    StorageBackend,
    StorageKind,
    Ticket,
)
from ..plugin.storage import AnyBackend

T = TypeVar("T")

NAME = re.compile(r"[a-z][a-z0-9_]*")
_PREFIX = "CODEFYUI_"


class WrongAnswer(CodefyError):
    """A hook answered what it may not; the plugin is listed as failed with this text."""

    default_code = "plugin.wrong_answer"


def connectors(answer: object) -> tuple[Connector, ...]:
    return _each(answer, "codefyui_connectors", "a Connector", _as_connector)


def backends(answer: object) -> tuple[AnyBackend, ...]:
    return _each(answer, "codefyui_storage_backends", "a StorageBackend", _as_backend)


def catalogs(answer: object) -> tuple[NodeCatalog, ...]:
    return _each(answer, "codefyui_node_catalogs", "a NodeCatalog", _as_catalog)


def settings(answer: object) -> tuple[type[PluginSettings], ...]:
    return _each(answer, "codefyui_settings", "a class derived from PluginSettings", _as_settings)


def web_root(answer: object) -> Path | None:
    if answer is None or isinstance(answer, Path):
        return answer
    raise WrongAnswer(f"codefyui_web_root answered {_shown(answer)}; a pathlib.Path or None is expected")


def variables(cls: type[PluginSettings]) -> tuple[str, ...]:
    """The environment variables that a settings class reads."""
    return tuple(f"{_PREFIX}{field.upper()}" for field in cls.model_fields)


def _each(answer: object, hook: str, expected: str, read: Callable[[object], T | None]) -> tuple[T, ...]:
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise WrongAnswer(f"{hook} answered {_shown(answer)}; a list or another iterable is expected")
    found = []
    for item in answer:
        value = read(item)
        if value is None:
            raise WrongAnswer(f"{hook} answered {_shown(item)}, which is not {expected}")
        found.append(value)
    return tuple(found)


def _as_connector(item: object) -> Connector | None:
    if not isinstance(item, Connector):
        return None
    _check_names(item)
    _check(item, "protocol", int)
    if isinstance(item, LinkConnector):
        _check_class(item, "form", Form)
        _check_class(item, "memo", LinkMemo)
        for attribute in ("line_title", "output_title", "submit_title"):
            _check(item, attribute, str)
    return item


def _as_backend(item: object) -> AnyBackend | None:
    if not isinstance(item, StorageBackend):
        return None
    _check_names(item)
    _check(item, "protocol", int)
    _check(item, "kind", StorageKind)
    _check(item, "preference", int)
    for attribute, base in (("ticket", Ticket), ("receipt", Receipt), ("grant", Grant), ("facts", Facts)):
        _check_class(item, attribute, base)
    _check_all(item, "worker_fields", str)
    return item


def _as_catalog(item: object) -> NodeCatalog | None:
    if not isinstance(item, NodeCatalog):
        return None
    _check_names(item)
    if item.namespace and not NAME.fullmatch(item.namespace):
        raise WrongAnswer(
            f"{_what(item)} has namespace {item.namespace!r}; small letters, digits and _ are allowed"
        )
    _check_all(item, "watch", Path)
    _check_all(item, "preload", str)
    _check_all(item, "data_types", str)
    _check(item, "gives_way", bool)
    return item


def _as_settings(item: object) -> type[PluginSettings] | None:
    if not isinstance(item, type) or not issubclass(item, PluginSettings):
        return None
    if item.model_config.get("env_prefix") != _PREFIX:
        raise WrongAnswer(f"settings class {item.__name__} changes env_prefix; keep {_PREFIX}")
    for name, field in item.model_fields.items():
        if field.alias or field.validation_alias:
            raise WrongAnswer(
                f"settings field {item.__name__}.{name} has an alias; name the field after its variable"
            )
    if not all(isinstance(plane, Plane) for plane in item.planes):
        raise WrongAnswer(f"{item.__name__}.planes holds something that is not a Plane")
    return item


def _check_names(item: object) -> None:
    name = getattr(item, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise WrongAnswer(
            f"{_what(item)} has name {name!r}; a small letter, then small letters, digits and _ are allowed"
        )
    _check(item, "title", str)


def _check(item: object, attribute: str, kind: type) -> None:
    value = getattr(item, attribute, None)
    if not isinstance(value, kind):
        raise WrongAnswer(f"{_what(item)}.{attribute} is {_shown(value)}, not of type {kind.__name__}")


def _check_class(item: object, attribute: str, base: type) -> None:
    value = getattr(item, attribute, None)
    if not isinstance(value, type) or not issubclass(value, base):
        raise WrongAnswer(
            f"{_what(item)}.{attribute} is {_shown(value)}, not a class derived from {base.__name__}"
        )


def _check_all(item: object, attribute: str, kind: type) -> None:
    values = getattr(item, attribute, None)
    if not isinstance(values, tuple) or not all(isinstance(value, kind) for value in values):
        raise WrongAnswer(f"{_what(item)}.{attribute} is {_shown(values)}, not a tuple of {kind.__name__}")


def _what(item: object) -> str:
    return type(item).__name__


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
