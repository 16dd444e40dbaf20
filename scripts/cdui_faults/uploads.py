"""What runs of a schedule read and write, where a site carries files."""

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

SIZES = {"empty.bin": 0, "small.bin": 40, "middle.bin": 60_000, "large.bin": 700_000}
"""Of the uploads, in bytes."""


def content(name: str) -> bytes:
    return random.Random(f"upload {name}").randbytes(SIZES[name])


HASHES = {name: hashlib.sha256(content(name)).hexdigest() for name in SIZES}


def put(folder: Path) -> None:
    """All of them, as if people had uploaded them."""
    folder.mkdir(parents=True)
    for name in SIZES:
        (folder / name).write_bytes(content(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlan:
    """Of one run. Sizes in bytes."""

    input: str
    checkpoints: tuple[int, ...]
    """Recorded on the way."""
    outputs: tuple[int, ...]
    """Left at the end without a word."""
    latest: bool
    """One further checkpoint is replaced each time."""
    shared: bool
    """A file whose name other runs give to theirs, too."""
    folder: bool
    """A recorded folder."""
    sync: bool
    """It syncs what it writes."""

    def text(self) -> str:
        return json.dumps(asdict(self))


def draw(rng: random.Random, *, carried: bool) -> FilePlan:
    """``carried``: the run has a folder of its own. In a shared one, nothing is written over, as only the last would be
    left, and nothing is found that wasn't recorded.
    """
    return FilePlan(
        input=rng.choice(tuple(SIZES)),
        checkpoints=tuple(_size(rng) for _ in range(rng.randint(1, 3))),
        outputs=tuple(_size(rng) for _ in range(rng.randint(0, 2))),
        latest=rng.random() < 0.3 and carried,
        shared=rng.random() < 0.3 and carried,
        folder=rng.random() < 0.3 and carried,
        sync=rng.random() < 0.5,
    )


def _size(rng: random.Random) -> int:
    """Mostly small; some are sent in several pieces."""
    return rng.choice((0, 300, 20_000, 150_000, 400_000))
