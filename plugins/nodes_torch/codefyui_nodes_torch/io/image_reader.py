"""One picture from a file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from pydantic import JsonValue
from typing_extensions import override

from codefyui_core.plugin import DataType, Family, Folders, NodeContext, Param, ParamKind, Port

from ..base import TorchNode
from .fingerprint import of_file


class ImageReader(TorchNode):
    """float32 (C, H, W) in [0, 1], turned upright as its EXIF orientation says.

    Resizing is Pillow's bilinear, which averages when it makes smaller. Both ports hold the same tensor.
    """

    type = "ImageReader"
    category = "IO"
    description = "Reads a picture as (C, H, W) with values from 0 to 1."
    outputs = (Port(name="image", type=DataType.IMAGE), Port(name="tensor", type=DataType.TENSOR))
    params = (
        Param(
            name="path",
            kind=ParamKind.IMAGE_FILE,
            default="",
            family=Family.IMAGES,
            description="A picture of the images folder",
        ),
        Param(
            name="mode",
            kind=ParamKind.SELECT,
            default="RGB",
            options=("RGB", "L", "RGBA"),
            description="Three channels, one of grey, or three and transparency",
        ),
        Param(
            name="resize",
            kind=ParamKind.INT,
            default=0,
            minimum=0,
            description="Side of the square that it is resized to; 0 keeps its size",
        ),
    )

    @classmethod
    @override
    def fingerprint(cls, params: Mapping[str, JsonValue], folders: Folders) -> str | None:
        name = str(params.get("path"))
        return of_file(folders.of(Family.IMAGES) / name, Path(name))

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        if not params["path"].strip():
            raise self.unfit("path is empty; choose a picture")
        path = context.input_file(Family.IMAGES, params["path"])
        try:
            tensor = read_image(path, params["mode"], params["resize"])
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise self.unfit(f"path {params['path']} can't be read as a picture: {_reason(error)}") from error
        placed = tensor.to(context.device)
        return {"image": placed, "tensor": placed}


def read_image(path: Path, mode: str, side: int = 0) -> torch.Tensor:
    """A picture as float32 (C, H, W) in [0, 1]; ``side`` 0 keeps its size.

    Raises: OSError, ValueError, SyntaxError or PIL's DecompressionBombError for a file that is no picture or
    only a part of one.
    """
    with Image.open(path) as opened:
        _check_size(opened)
        image = _eight_bit(ImageOps.exif_transpose(opened)).convert(mode)
    if side:
        image = image.resize((side, side), Image.Resampling.BILINEAR)
    pixels = np.array(image, dtype=np.uint8).reshape(image.height, image.width, -1)
    return torch.from_numpy(pixels).permute(2, 0, 1).to(torch.float32).div(255).contiguous()


def _check_size(image: Image.Image) -> None:
    """By the header, before anything is decoded."""
    given = os.environ.get("CODEFYUI_MAX_IMAGE_PIXELS", "")
    limit = int(given) if given.isascii() and given.isdecimal() else 25_000_000
    if image.width * image.height > limit:
        raise ValueError(
            f"it has {image.width} x {image.height} pixels, more than {limit} (CODEFYUI_MAX_IMAGE_PIXELS)"
        )


def _eight_bit(image: Image.Image) -> Image.Image:
    """Grey of 16 bits as 8: Pillow's own conversion would cut at 255 instead of dividing."""
    if not image.mode.startswith("I"):
        return image
    values = np.asarray(image, dtype=np.int64).clip(0, 0xFFFF)
    return Image.fromarray((values >> 8).astype(np.uint8))


def _reason(error: Exception) -> str:
    return "its format isn't known" if isinstance(error, UnidentifiedImageError) else str(error)
