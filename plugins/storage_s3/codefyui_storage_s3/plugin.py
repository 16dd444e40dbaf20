"""The entry point: the backend ``s3`` and its settings. Loads without boto3, which is an extra."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from codefyui_core.plugin import AnyBackend, PluginSettings, StorageBackend, StorageKind, hookimpl

from .models import S3Facts, S3Grant, S3Receipt, S3Ticket
from .settings import S3Settings

if TYPE_CHECKING:
    from codefyui_core.plugin import AgentStoreHost, ControlStoreHost

    from .agent import S3Agent
    from .control import S3Control


class S3Backend(StorageBackend[S3Ticket, S3Receipt, S3Grant, S3Facts]):
    """Asked before the transfer through the control plane, after shared folders."""

    name = "s3"
    title = "An S3 or MinIO bucket"
    summary = "Workers fetch inputs from a bucket and upload what runs write to it."
    kind = StorageKind.CARRIER
    protocol = 2
    preference = 40
    ticket = S3Ticket
    receipt = S3Receipt
    grant = S3Grant
    facts = S3Facts

    def control(self, host: "ControlStoreHost") -> "S3Control":
        from .control import S3Control

        return S3Control(host)

    def agent(self, host: "AgentStoreHost") -> "S3Agent":
        from .agent import S3Agent

        return S3Agent(host)


@hookimpl
def codefyui_storage_backends() -> Iterable[AnyBackend]:
    return (S3Backend(),)


@hookimpl
def codefyui_settings() -> Iterable[type[PluginSettings]]:
    return (S3Settings,)
