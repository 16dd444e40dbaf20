"""Enrollment tokens and worker credentials: how they look, how they are kept. Only hashes are stored."""

import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass

TOKEN = re.compile(r"^[a-z0-9]{6}\.[a-z0-9]{16}$")
CREDENTIAL = re.compile(r"^cdw_[A-Za-z0-9_-]{43}$")
_ALPHABET = string.ascii_lowercase + string.digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """``abcdef.0123456789abcdef``: an id to look it up by, and a secret of 82 random bits."""

    id: str
    text: str

    def __repr__(self) -> str:
        return f"Token(id={self.id!r})"


def make_token() -> Token:
    text = _letters(6) + "." + _letters(16)
    return Token(id=text[:6], text=text)


def read_token(text: str) -> Token | None:
    """None for what doesn't look like one."""
    return Token(id=text[:6], text=text) if TOKEN.match(text) else None


def make_credential() -> str:
    """``cdw_`` and 43 url-safe characters: 256 random bits."""
    return "cdw_" + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """What is stored of a secret: its SHA-256. They are random, so nothing slower is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def fits(secret: str, stored: str) -> bool:
    return hmac.compare_digest(digest(secret), stored)


def _letters(count: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(count))
