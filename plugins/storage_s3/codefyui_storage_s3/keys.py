"""Credentials in memory."""

from dataclasses import dataclass

from codefyui_core.plugin import SecretText

from .models import Links, S3Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """With the moment at which they run out."""

    access_key_id: SecretText
    secret_access_key: SecretText
    session_token: SecretText | None = None
    links: Links | None = None
    """By which objects are read; None: by the keys."""
    expires_at: float | None = None
    """By the host's monotonic clock."""

    @classmethod
    def of(cls, grant: S3Grant, now: float) -> "Keys":
        """As they arrive at ``now``."""
        return cls(
            access_key_id=grant.access_key_id,
            secret_access_key=grant.secret_access_key,
            session_token=grant.session_token,
            links=grant.links,
            expires_at=None if grant.expires_in_s is None else now + grant.expires_in_s,
        )

    @property
    def temporary(self) -> bool:
        return self.session_token is not None
