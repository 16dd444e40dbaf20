"""Column types that read the same on SQLite and PostgreSQL."""

import json
from typing import Any

from sqlalchemy import Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator


class JsonText(TypeDecorator[Any]):
    """JSON in a text column. ASCII only, so that NUL and lone surrogates are escapes on every database."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class SafeText(TypeDecorator[str]):
    """Text from outside. What a database can't hold (NUL, lone surrogates) is stored as ``\\uXXXX``."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else readable(value)


def readable(text: str) -> str:
    """``text`` with NUL and lone surrogates written as escapes."""
    if "\0" not in text and text.isascii():
        return text
    return "".join(f"\\u{ord(c):04x}" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
