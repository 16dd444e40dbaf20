"""Small inputs that go together: what a worker asks for, and what is said of each file before the bytes of all."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from codefyui_core.plugin import Sha256

from .models import MIB

INPUTS_PATH = "/api/runs/{run_id}/inputs/parcel"
MOST_FILES = 256
FILE_BYTES = MIB
"""A larger file goes alone."""
DETAIL_CHARACTERS = 200
"""Of each refusal: the manifest is one line, which a client reads whole."""


class Asked(BaseModel):
    """Which files of the run, by their hashes; each once."""

    inputs: Annotated[
        list[Annotated[Sha256, Field(pattern=r"^[0-9a-f]{64}$")]], Field(min_length=1, max_length=MOST_FILES)
    ]

    @field_validator("inputs")
    @classmethod
    def _each_once(cls, inputs: list[Sha256]) -> list[Sha256]:
        if len(set(inputs)) < len(inputs):
            raise ValueError("a file is named twice")
        return inputs


class Listed(BaseModel):
    """One file: its size when it comes, else why it doesn't."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    sha256: Sha256
    size: Annotated[int, Field(ge=0, le=FILE_BYTES)] | None = None
    """Its bytes follow, in the order of the list, with nothing between."""
    code: str | None = None
    detail: str | None = None


class Manifest(BaseModel):
    """The first line of the answer."""

    files: list[Listed]
