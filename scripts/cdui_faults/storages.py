"""How files of a site's runs travel: settings of its server, and the store beside it."""

import signal
from collections.abc import Mapping
from contextlib import ExitStack
from enum import StrEnum
from importlib.util import find_spec

from codefyui_core.errors import CodefyError

PIECE_BYTES = 64 * 1024
"""The smallest that the transfer backend takes: most files go in several."""


class StorageKind(StrEnum):
    """Of a site."""

    NONE = "none"
    """Its runs use no files."""
    TRANSFER = "transfer"
    S3 = "s3"


class Carrying:
    """Nothing is carried."""

    kind = StorageKind.NONE
    blocked: tuple[str, ...] = ()
    """Plugins that would serve in place of the one that is meant."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Of the server."""
        return {}

    def unfinished(self) -> list[str]:
        """Uploads that the store holds by halves."""
        return []

    def kept(self, run_id: str) -> list[str]:
        """What of a run lies in a store that nobody sees but by what is listed."""
        return []

    @property
    def up(self) -> bool:
        """Something can be done to a process of it."""
        return False

    def close(self) -> None:
        pass


class Transfer(Carrying):
    """Over HTTP, by the line of the agent."""

    kind = StorageKind.TRANSFER
    blocked = ("storage_mount", "storage_s3")

    @property
    def settings(self) -> Mapping[str, str]:
        return {"CODEFYUI_TRANSFER_CHUNK_BYTES": str(PIECE_BYTES)}


class Bucket(Carrying):
    """A server of the site's own, past its lines; the transfer backend takes over while it doesn't work."""

    kind = StorageKind.S3
    blocked = ("storage_mount",)
    name = "faults"

    def __init__(self) -> None:
        """Raises: CodefyError when it isn't installed."""
        if find_spec("boto3") is None:
            raise CodefyError("boto3 isn't installed; run ./cdui install --dev")
        from cdui_develop.seaweedfs import SeaweedFS

        self.paused = False
        self.server = SeaweedFS()
        with ExitStack() as undo:
            undo.callback(self.server.remove)
            self.server.start()
            self.server.client().create_bucket(Bucket=self.name)
            undo.pop_all()

    @property
    def settings(self) -> Mapping[str, str]:
        from cdui_develop.seaweedfs import ACCESS_KEY_ID, REGION, ROLE_ARN, SECRET_ACCESS_KEY

        return {
            "CODEFYUI_TRANSFER_CHUNK_BYTES": str(PIECE_BYTES),
            "CODEFYUI_S3_ENABLED": "1",
            "CODEFYUI_S3_ENDPOINT_URL": self.server.endpoint_url,
            "CODEFYUI_S3_REGION": REGION,
            "CODEFYUI_S3_BUCKET": self.name,
            "CODEFYUI_S3_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "CODEFYUI_S3_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
            "CODEFYUI_S3_STS_ROLE_ARN": ROLE_ARN,
        }

    def unfinished(self) -> list[str]:
        found = self.server.client().list_multipart_uploads(Bucket=self.name)
        return [str(one["Key"]) for one in found.get("Uploads", ())]

    def kept(self, run_id: str) -> list[str]:
        found = self.server.client().list_objects_v2(Bucket=self.name, Prefix=f"runs/{run_id}/")
        return [str(one["Key"]) for one in found.get("Contents", ())]

    @property
    def up(self) -> bool:
        return self.server.up and not self.paused

    def pause(self) -> None:
        self.paused = True
        self.server.send(signal.SIGSTOP)

    def wake(self) -> None:
        self.paused = False
        self.server.send(signal.SIGCONT)

    def close(self) -> None:
        self.server.remove()


def open_storage(kind: StorageKind) -> Carrying:
    """Raises: CodefyError when what it needs isn't installed."""
    return {StorageKind.NONE: Carrying, StorageKind.TRANSFER: Transfer, StorageKind.S3: Bucket}[kind]()
