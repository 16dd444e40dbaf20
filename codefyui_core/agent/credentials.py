"""The credential file of an address: written whole, for this user alone, and read with care."""

import json
import logging
import secrets
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError

from codefyui_core.errors import StartProblem
from codefyui_core.files import write_private
from codefyui_core.plugin.values import JsonObject, Model

FORMAT = 1


class Kept(Model):
    """What connectors keep beside the credential; checked by each of them, as it may be damaged."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    connector: dict[str, Any] = Field(default_factory=dict)
    """Connector -> what its ``Dial.keep`` said."""


class CredentialFile(Model):
    """``<user data>/agent/<key>.token``. Before the enrollment is answered it holds the nonce alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: int = FORMAT
    url: str = ""
    name: str = ""
    worker_id: str = ""
    db_id: str = ""
    credential: str = Field(default="", repr=False)
    nonce: str = ""
    """Of the enrollment that is under way, so that a repeat of it is the same one."""
    keep: Kept = Kept()

    @property
    def enrolled(self) -> bool:
        return bool(self.credential)

    def kept(self, connector: str) -> JsonObject:
        kept = self.keep.connector.get(connector)
        return kept if isinstance(kept, dict) else {}

    def keeping(self, connector: str, keep: JsonObject) -> "CredentialFile":
        """With what that connector wants kept; nothing is kept of the others."""
        return self.model_copy(update={"keep": Kept(connector={connector: keep} if keep else {})})


def load(path: Path, log: logging.Logger) -> CredentialFile | None:
    """None when there is none, or nothing can be read of it (the log says so).

    Raises: StartProblem when it is there and can't be opened.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StartProblem(f"The credential file {path} can't be read: {error}.") from error
    try:
        return CredentialFile.model_validate(_repaired(json.loads(text), path, log))
    except (ValueError, ValidationError) as error:
        log.warning("the credential file %s is damaged and is ignored: %s", path, error)
        return None


def _repaired(value: Any, path: Path, log: logging.Logger) -> Any:
    """A damaged part that connectors keep doesn't cost the credential."""
    if isinstance(value, dict) and not _is_kept(value.get("keep", {})):
        log.warning("%s: what is kept for connectors is damaged and is ignored", path)
        return {**value, "keep": {}}
    return value


def _is_kept(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("connector", {}), dict)


def save(path: Path, credential: CredentialFile) -> None:
    """Mode 0600 from the moment it is made; whole or not at all. Blocking."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, json.dumps(credential.model_dump(mode="json"), indent=1).encode())


def forget(path: Path) -> bool:
    """Delete it. False: there was none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def new_nonce() -> str:
    return secrets.token_hex(16)
