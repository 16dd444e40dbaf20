"""Settings of the control plane; workers get all they need with each run and read none of these."""

import re
from enum import StrEnum
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from codefyui_core.plugin import PluginSettings

from .models import Style

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9!_.'()-][A-Za-z0-9!_.'()/-]*")
"""The characters that Amazon calls safe in keys, without those that mean something in a policy ("Naming Amazon
S3 objects")."""


class Credentials(StrEnum):
    """What a worker gets."""

    AUTO = "auto"
    """Temporary ones, else the control plane's own keys."""
    STS = "sts"
    """Temporary ones, limited to the run."""
    STATIC = "static"
    """The control plane's own keys."""


class Download(StrEnum):
    """How a person gets a file of the bucket."""

    PROXY = "proxy"
    PRESIGN = "presign"


class Addressing(StrEnum):
    """Where the bucket's name stands in an address."""

    AUTO = "auto"
    PATH = "path"
    VIRTUAL = "virtual"

    @property
    def style(self) -> Style | None:
        return None if self is Addressing.AUTO else Style(self.value)


class S3Settings(PluginSettings):
    """The bucket, and what workers may do with it."""

    s3_enabled: bool = False
    s3_endpoint_url: str = ""
    """Of the API, such as ``http://minio.lab:9000``; empty: AWS S3."""
    s3_region: str = Field(default="us-east-1", pattern=r"^[A-Za-z0-9-]+$")
    s3_bucket: str = ""
    s3_prefix: str = ""
    """Put in front of every key."""
    s3_addressing_style: Addressing = Addressing.AUTO
    s3_access_key_id: SecretStr = SecretStr("")
    s3_secret_access_key: SecretStr = SecretStr("")
    s3_credentials: Credentials = Credentials.AUTO
    s3_sts_role_arn: str = ""
    """The role to assume, for AWS."""
    s3_sts_duration_s: int = Field(default=3600, ge=900, le=43200)
    s3_download: Download = Download.PROXY
    s3_presign_ttl_s: int = Field(default=900, ge=1, le=604800)

    @field_validator("s3_endpoint_url")
    @classmethod
    def _endpoint(cls, value: str) -> str:
        if not value:
            return value
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("it has to be an http:// or https:// address, such as http://minio.lab:9000")
        if parts.username is not None or parts.password is not None:
            raise ValueError("leave the keys out of it; they have settings of their own")
        return value

    @field_validator("s3_bucket")
    @classmethod
    def _bucket(cls, value: str) -> str:
        if value and not _BUCKET.fullmatch(value):
            raise ValueError("it has to be a bucket's name alone, such as codefyui")
        return value

    @field_validator("s3_prefix")
    @classmethod
    def _prefix(cls, value: str) -> str:
        if value and (
            not _PREFIX.fullmatch(value) or len(value) > 200 or {"..", "."} & set(value.split("/"))
        ):
            raise ValueError(
                "use letters, digits and _ - . / only, with no / at its beginning, such as codefyui/"
            )
        return value
