"""What the two halves say to each other, and what is kept of an object."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from codefyui_core.plugin import Facts, Grant, JsonObject, Model, Receipt, SecretText, Sha256, Ticket


class Style(StrEnum):
    """Where the bucket's name stands in an address."""

    PATH = "path"
    """``<endpoint>/<bucket>/<key>``"""
    VIRTUAL = "virtual"
    """``<bucket>.<endpoint>/<key>``"""


class Bucket(Model):
    """A bucket and the one way in which it is reached, the same for both sides."""

    name: str
    endpoint_url: str
    """As it is set; empty: AWS S3 of the region."""
    region: str
    style: Style

    @property
    def address(self) -> str:
        """For people."""
        return self.endpoint_url or f"AWS S3 ({self.region})"


class S3Ticket(Ticket):
    """The place of one attempt; holds for it whatever the settings say later."""

    bucket: Bucket
    prefix: str


class Links(Model):
    """Signed addresses of the inputs of a run whose keys can't name them all. Who has one reads that object, until they
    expire together.
    """

    query: SecretText
    """What is the same in all of them, behind the address of the object."""
    signatures: dict[Sha256, SecretText]


class S3Grant(Grant):
    """Keys for the bucket: temporary ones with a token, or the control plane's own."""

    access_key_id: SecretText
    secret_access_key: SecretText
    session_token: SecretText | None = None
    links: Links | None = None
    """None: the keys read the inputs."""


Key = Annotated[str, Field(max_length=2048)]
MOST_TAKEN = 16


class S3Receipt(Receipt):
    """What the bucket answered to an upload."""

    key: Key = ""
    """Of the object; empty: the one that follows from its name."""
    etag: str = Field(default="", max_length=256)
    upload_id: str = Field(default="", max_length=2048)
    """Of a multipart upload; empty for a file sent in one piece."""
    mark: str = Field(default="", max_length=64)
    """That the object bears, and no object of another output."""
    taken: tuple[Key, ...] = Field(default=(), max_length=MOST_TAKEN)
    """Keys of its name that weren't free: what is there may be this output, from a try whose answer was lost."""


class S3Facts(Facts):
    """Given by an agent that has boto3."""

    boto3: str
    """Its version."""


class UploadBegun(Model):
    """Told before the first part goes, so that the control plane can abort what a worker leaves."""

    key: Key
    upload_id: str = Field(min_length=1, max_length=2048)

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")


class UploadNotes(Model):
    """Where a multipart upload stands, on the agent's disk."""

    bucket: Bucket
    key: str
    upload_id: str
    size_bytes: int
    part_bytes: Annotated[int, Field(gt=0)]
    etags: dict[int, str] = Field(default_factory=dict)
    """Part number (from 1) -> what the bucket answered."""
    taken: tuple[Key, ...] = ()
    """Keys that weren't free before this one was tried."""

    @property
    def n_parts(self) -> int:
        return -(-self.size_bytes // self.part_bytes)

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")


class StoredIn(Model):
    """Where an object went, kept with its row; its key is the row's relative path."""

    bucket: str
    prefix: str

    def to_json(self) -> JsonObject:
        return self.model_dump(mode="json")


def input_key(prefix: str, sha256: Sha256) -> str:
    """Named by its content, so one object serves all runs."""
    return f"{prefix}inputs/{sha256}"


def run_folder(prefix: str, run_id: str) -> str:
    """All that a run may write, with the slash at its end."""
    return f"{prefix}runs/{run_id}/"


def output_key(prefix: str, run_id: str, *, kind: str, name: str, relative_path: str) -> str:
    """``runs/<run id>/<kind>/<name>``; what was found after the run keeps its place in the data folder."""
    return f"{run_folder(prefix, run_id)}{kind}/{relative_path if kind == 'output' else name}"
