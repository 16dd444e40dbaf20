"""The IDX file format of MNIST: a magic number, the sizes, the bytes (Y. LeCun's page of the database)."""

import gzip
import math
import struct
from pathlib import Path

import torch
from torch import Tensor

from codefyui_core.plugin import CodefyError

_UNSIGNED_BYTES = 0x08
_GZIP = b"\x1f\x8b"


def read_idx(path: Path) -> Tensor:
    """The uint8 tensor of an IDX file, compressed with gzip or not.

    Raises: CodefyError ``files.unreadable`` for anything else, or a file that is cut short.
    """
    data = path.read_bytes()
    try:
        if data[:2] == _GZIP:
            data = gzip.decompress(data)
        zeros, kind, axes = struct.unpack_from(">HBB", data)
        sizes = struct.unpack_from(f">{axes}I", data, 4)
    except (OSError, EOFError, struct.error) as problem:
        raise _unreadable(path, str(problem)) from problem
    if zeros or kind != _UNSIGNED_BYTES:
        raise _unreadable(path, "no IDX file of bytes")
    count, start = math.prod(sizes), 4 + 4 * axes
    if len(data) != start + count:
        raise _unreadable(path, f"{len(data) - start} bytes where {count} should be")
    return torch.frombuffer(bytearray(data[start:]), dtype=torch.uint8).reshape(sizes)


def _unreadable(path: Path, why: str) -> CodefyError:
    return CodefyError(
        f"{path.name} can't be read ({why}); fetch it anew and put it at {path}", code="files.unreadable"
    )
