"""Encrypts what must be kept readable for this install alone; the key is a 0600 file in the user data.

Fernet (AES-128-CBC with HMAC-SHA256, https://github.com/fernet/spec), so that a changed byte is noticed.
"""

from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from codefyui_core.errors import StartProblem
from codefyui_core.files import write_private

KEY_FILE = "secret.key"


class Seal:
    """Reads or makes the key on first use."""

    def __init__(self, user_data: Path) -> None:
        self._path = user_data / KEY_FILE
        self._fernet: Fernet | None = None

    def close(self, data: bytes) -> bytes:
        return self._key().encrypt(data)

    def open(self, sealed: bytes) -> bytes:
        """Raises: StartProblem when the key isn't the one that it was sealed with."""
        try:
            return self._key().decrypt(sealed)
        except InvalidToken:
            raise StartProblem(
                f"A stored secret can't be read with the key in {self._path}. Restore the key that belongs to this "
                "database, or remove and add again what needs the secret."
            ) from None

    def _key(self) -> Fernet:
        if self._fernet is None:
            try:
                key = self._path.read_bytes()
            except FileNotFoundError:
                key = Fernet.generate_key()
                write_private(self._path, key)
            try:
                self._fernet = Fernet(key)
            except ValueError:
                raise StartProblem(f"{self._path} isn't a key. Restore it from a backup.") from None
        return self._fernet
