"""Pictures into files of the output folder."""

from collections.abc import Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import torch
from PIL import Image
from typing_extensions import override

from codefyui_core.plugin import DataType, Family, FileRole, NodeContext, Param, ParamKind, Port

from ..base import TorchNode, shape_of
from .whole_file import write_whole

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "PNG": (".png",),
    "JPEG": (".jpg", ".jpeg"),
    "BMP": (".bmp",),
    "TIFF": (".tiff", ".tif"),
}
"""The endings of each format; the first is added to a name that has none of them."""
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_ALPHA_WRITERS = ("PNG", "TIFF")


class ImageWriter(TorchNode):
    """Fractions count from 0 to 1, whole numbers from 0 to 255. What lies outside is cut off, and the log
    says how much. A batch becomes one file an image: ``name_0.png``, ``name_1.png``… and ``path`` holds
    their paths, one a line.
    """

    type = "ImageWriter"
    category = "IO"
    description = "Writes an image, or each image of a batch, into the output folder."
    cacheable = False
    inputs = (Port(name="image", type=DataType.IMAGE, description="(C, H, W), (H, W) or (N, C, H, W)"),)
    outputs = (Port(name="path", type=DataType.STRING, description="Absolute; of a batch, one a line"),)
    params = (
        Param(
            name="path",
            kind=ParamKind.STRING,
            default="output.png",
            path=FileRole.WRITES,
            family=Family.OUTPUT,
            description="A name below the output folder; its ending follows from the format",
        ),
        Param(
            name="format",
            kind=ParamKind.SELECT,
            default="PNG",
            options=tuple(SUFFIXES),
            description="JPEG loses detail, the others lose none",
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        if not params["path"].strip():
            raise self.unfit("path is empty; write a file name")
        kind = params["format"]
        images = self._images(self.tensor(inputs, "image", context), kind)
        paths = [
            context.output_file(Family.OUTPUT, name) for name in _names(params["path"], kind, len(images))
        ]
        pictures = [_picture(self._bytes(image, context)) for image in images]
        for path, picture in zip(paths, pictures, strict=True):
            write_whole(path, partial(picture.save, format=kind, quality=95))
        return {"path": "\n".join(str(path.absolute()) for path in paths)}

    def _images(self, tensor: torch.Tensor, kind: str) -> list[torch.Tensor]:
        """Each image as (C, H, W) on the CPU."""
        self.check_rank("image", tensor, "C, H, W", "H, W", "N, C, H, W")
        batch = tensor.detach().cpu()[(None,) * (4 - tensor.dim())]
        channels = batch.shape[1]
        if channels not in _MODES or not batch.numel():
            raise self.unfit(
                f"image needs 1, 3 or 4 channels, and pixels, before its height; it got {shape_of(tensor)}"
            )
        if channels == 4 and kind not in _ALPHA_WRITERS:
            raise self.unfit(f"image has transparency, which {kind} can't hold; set format to PNG or TIFF")
        return list(batch)

    def _bytes(self, image: torch.Tensor, context: NodeContext) -> torch.Tensor:
        if image.dtype is torch.uint8:
            return image
        if image.is_complex() or not torch.isfinite(image).all():
            raise self.unfit(f"image holds values that aren't finite numbers; it got {shape_of(image)}")
        highest = 1 if image.is_floating_point() or image.dtype is torch.bool else 255
        values = image.to(torch.float64)
        outside = int(((values < 0) | (values > highest)).sum())
        if outside:
            context.log(
                f"{outside} of {values.numel()} values lie outside 0 to {highest} and are cut off "
                f"(lowest {values.min():g}, highest {values.max():g})"
            )
        return (values.clamp(0, highest) * (255 / highest)).round().to(torch.uint8)


def _names(path: str, kind: str, count: int) -> list[str]:
    """The file names for ``count`` images, with the ending of the format."""
    name = PurePosixPath(path.strip())
    every = {suffix for suffixes in SUFFIXES.values() for suffix in suffixes}
    known = name.suffix.lower() in every
    suffix = name.suffix if name.suffix.lower() in SUFFIXES[kind] else SUFFIXES[kind][0]
    stem = str(name.with_suffix("")) if known else str(name)
    if count == 1:
        return [stem + suffix]
    width = len(str(count - 1))
    return [f"{stem}_{index:0{width}}{suffix}" for index in range(count)]


def _picture(pixels: torch.Tensor) -> Image.Image:
    if pixels.shape[0] == 1:
        return Image.fromarray(pixels[0].numpy())
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
