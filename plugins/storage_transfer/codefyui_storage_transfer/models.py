"""What the two halves of the transfer backend say to each other, and its settings."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import SettingsConfigDict

from codefyui_core.plugin import Facts, Model, PluginSettings, Sha256, Ticket

KIB, MIB = 1024, 1024 * 1024
LEAST_BLOCK_BYTES = 64 * KIB
UPLOAD_PATH = "/api/runs/{run_id}/artifacts/upload"
PARCEL_PATH = "/api/runs/{run_id}/artifacts/parcel"
MANIFEST_BYTES = 256 * KIB
"""The first line of a parcel has no more."""
PARCEL_FILES = 256
PARCEL_BYTES = 32 * MIB
"""A parcel's files have no more together."""
KIND = r"[a-z0-9_-]{1,64}"
"""No dot and no slash: it is the name of a folder."""
OUTPUT = "output"
"""The kind of files that go where a run on the server would have written them."""


class TransferSettings(PluginSettings):
    """Read by the control plane."""

    model_config = SettingsConfigDict(use_attribute_docstrings=True)

    transfer_enabled: bool = True
    """Send files over HTTP to workers that share no folder with the server; 0: don't."""
    transfer_chunk_bytes: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB)] = 8 * MIB
    """How much of an output a worker sends with one request; up to 8 times as much while the line holds."""


class TransferTicket(Ticket):
    """What an agent keeps to while it sends outputs."""

    max_upload_bytes: int
    chunk_bytes: int


class TransferFacts(Facts):
    """Given by every agent that has this plugin."""


class StoredAt(Model):
    """Where an object of this backend lies, whatever the settings say by now."""

    base: str
    """The run's own folder, or a family's; absolute."""
    name: str
    """Below it."""


class UploadQuery(BaseModel):
    """Of both upload routes: which file is meant, and which part of it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    kind: Annotated[str, Field(pattern=f"^{KIND}$")]
    """``checkpoint``, ``tensorboard``, ...; ``output``: it goes into the data folder."""
    name: str
    """Below the run's folder of that kind. May have folders."""
    relative_path: str | None = None
    """For kind ``output``: where in the data folder, ``models/best.pt``. Default: the name."""
    key: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The id of the artifact, so that a repetition is the same file. Default: follows from kind and name."""
    offset: Annotated[int, Field(ge=0)] | None = None
    """Where in the file the body belongs. Without it the body is the whole file."""
    size: Annotated[int, Field(ge=0)] | None = None
    """Of the whole file, in bytes; with the piece that reaches it, or with ``sha256``, it says that this was the last."""
    sha256: Annotated[Sha256, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the whole file. It can do without where a broken line or a restart didn't cut it in two."""
    block_bytes: Annotated[int, Field(ge=LEAST_BLOCK_BYTES, le=4 * MIB)] | None = None
    """The body comes in blocks of so many bytes, the last one may have fewer, each behind its CRC-32C (4 bytes, the most
    significant first). A damaged one and what follows is refused. Without it the body is the file's bytes."""


class Uploaded(BaseModel):
    """How much of a file is here and, once it is whole, where it lies."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    offset: int
    """Where to go on."""
    placed: bool = False
    relative_path: str | None = None
    """Below the data folder, with the number that its name may have got."""
    size_bytes: int | None = None
    sha256: Sha256 | None = None
    artifact_id: str | None = None
    """It is listed under this id."""


class Announced(BaseModel):
    """One file of a parcel."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    kind: str
    """``checkpoint``, ``tensorboard``, ...; ``output``: it goes into the data folder."""
    name: str
    """Below the run's folder of that kind. May have folders."""
    relative_path: str
    """For kind ``output``: where in the data folder."""
    key: Annotated[str, Field(min_length=1, max_length=128)]
    """The id of the artifact, so that a repetition is the same file."""
    size: Annotated[int, Field(ge=0)]
    """In bytes."""
    sha256: Annotated[Sha256, Field(pattern=r"^[0-9a-f]{64}$")]


class ParcelQuery(BaseModel):
    """Beside a parcel."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the first line, with its end: what a line damages is found out before anything is stored."""


class Manifest(BaseModel):
    """The first line of a parcel. The bytes of its files follow in this order, with nothing between."""

    files: Annotated[list[Announced], Field(min_length=1, max_length=PARCEL_FILES)]


class Failed(BaseModel):
    """Why a file of a parcel isn't here: it fails alone."""

    code: str
    detail: str


class ParcelAnswer(BaseModel):
    """What came of the files of a parcel."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    files: list[Uploaded | Failed]
    """In the order of the manifest."""
