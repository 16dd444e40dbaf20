"""Images as arguments of a graph: from base64 or a file to a float32 tensor (3, height, width) in [0, 1]."""

import base64
import binascii
import io
import os
from pathlib import Path
from typing import Any

from codefyui_core.plugin import CodefyError, Family, Folders

from .coercion import BadArgument, InputType, refuse

DEFAULT_MAX_PIXELS = 25_000_000


def max_pixels() -> int:
    """The largest image that is decoded (``CODEFYUI_MAX_IMAGE_PIXELS``, which the planes hand to runs)."""
    given = os.environ.get("CODEFYUI_MAX_IMAGE_PIXELS", "")
    return int(given) if given.isascii() and given.isdecimal() else DEFAULT_MAX_PIXELS


def image_path(folders: Folders, name: str) -> Path:
    """The file below the images folder.

    Raises: BadArgument when it leads out of the folder, or isn't there.
    """
    if not name:
        raise BadArgument("the image has no default; name a file below the images folder")
    base = folders.of(Family.IMAGES).resolve()
    path = (base / name).resolve()
    if not path.is_relative_to(base):
        raise BadArgument(
            f"{name}: leads out of the images folder; upload the image and name it", code="files.outside"
        )
    if not path.is_file():
        raise BadArgument(
            f"{name}: no such file in the images folder; upload it first", code="files.not_found"
        )
    return path


def image_from_base64(name: str, value: Any) -> Any:
    """``value`` may be a data URL and may have line breaks.

    Raises: BadArgument.
    """
    if not isinstance(value, str):
        refuse(name, InputType.IMAGE, value)
    text = value.partition(",")[2] if value.startswith("data:") else value
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadArgument(f"input {name}: not base64 ({error})") from error
    return _tensor(name, io.BytesIO(data))


def image_from_file(name: str, path: Path) -> Any:
    """Raises: BadArgument."""
    with path.open("rb") as file:
        return _tensor(name, file)


def _tensor(name: str, source: Any) -> Any:
    try:
        import numpy as np
        import torch
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise CodefyError(f"an image as input needs codefyui-nodes-torch here ({error})") from error
    try:
        with Image.open(source) as image:
            limit = max_pixels()
            if image.width * image.height > limit:
                raise BadArgument(
                    f"input {name}: {image.width} x {image.height} pixels are more than {limit:,}; scale it down"
                )
            pixels = np.asarray(image.convert("RGB"), dtype=np.float32)
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as error:
        raise BadArgument(f"input {name}: not an image that can be read ({error})") from error
    return torch.from_numpy(pixels / 255.0).permute(2, 0, 1).contiguous()
