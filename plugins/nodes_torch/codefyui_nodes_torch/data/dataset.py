"""Data sets by name: scikit-learn's own at once, the large ones from files that a person put there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import torch
from torch.utils.data import Dataset as TorchDataset
from typing_extensions import override

from codefyui_core.plugin import CodefyError, DataType, Node, NodeContext, Param, ParamKind, Port

from ..base import UnfitError
from .bundled import BUNDLED, bundled
from .cifar import read_binary, read_python
from .idx import read_idx
from .sources import Pictures

_WHITE = 255.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A data set that is read from its makers' files."""

    title: str
    folders: tuple[str, ...]
    """Below ``data_dir``, the first that holds all files is taken."""
    source: str
    """Where a person gets it."""


RAW: Mapping[str, Raw] = {
    "MNIST": Raw(
        title="MNIST",
        folders=("MNIST/raw", "MNIST", "."),
        source="https://yann.lecun.com/exdb/mnist/ or a mirror of it",
    ),
    "FashionMNIST": Raw(
        title="FashionMNIST",
        folders=("FashionMNIST/raw", "FashionMNIST"),
        source="https://github.com/zalandoresearch/fashion-mnist",
    ),
    "CIFAR10": Raw(
        title="CIFAR-10",
        folders=("cifar-10-batches-bin", "cifar-10-batches-py", "CIFAR10"),
        source="https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
}

_IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_CIFAR_FILES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}


class Dataset(Node):
    type = "Dataset"
    category = "Data"
    description = (
        "Digits, Iris, Wine and BreastCancer come with scikit-learn. MNIST, FashionMNIST and CIFAR10 are read"
        " from files in the machine's cache folder; nothing is downloaded by itself. Pictures are float32 in"
        " [-1,1], table rows as measured; labels are ints."
    )
    outputs = (Port(name="dataset", type=DataType.DATASET, description="Items (tensor, label)"),)
    params = (
        Param(
            name="name",
            kind=ParamKind.SELECT,
            default="MNIST",
            options=("MNIST", "CIFAR10", "FashionMNIST", *BUNDLED),
            description="Which data set",
        ),
        Param(
            name="split",
            kind=ParamKind.SELECT,
            default="train",
            options=("train", "test"),
            description="The part to train on, or the one held back",
        ),
        Param(
            name="data_dir",
            kind=ParamKind.STRING,
            default="./data",
            description="Folder of the raw files, below the machine's cache folder",
            visible_when={"name": list(RAW)},
        ),
    )

    @override
    def execute(
        self, inputs: Mapping[str, Any], params: Mapping[str, Any], context: NodeContext
    ) -> Mapping[str, Any]:
        name, split = params["name"], params["split"]
        if name in BUNDLED:
            return {"dataset": bundled(name, split)}
        return {"dataset": _from_files(name, split, _root(params["data_dir"], context))}


def _root(data_dir: str, context: NodeContext) -> Path:
    named = PurePath(data_dir)
    if named.is_absolute():
        return context.input_path(data_dir)
    if ".." in named.parts:
        raise UnfitError(
            f"Dataset: data_dir is a folder below the cache folder, without ..; it is {data_dir!r}"
        )
    return context.downloads / named


def _from_files(name: str, split: str, root: Path) -> TorchDataset[Any]:
    if name == "CIFAR10":
        paths = _found(name, root, _CIFAR_FILES[split], ("", ".bin"))
        batches = [read_binary(path) if path.suffix == ".bin" else read_python(path) for path in paths]
        pixels, labels = (torch.cat(parts) for parts in zip(*batches, strict=True))
        return Pictures(pixels, labels, white=_WHITE)
    images, labels = (read_idx(path) for path in _found(name, root, _IDX_FILES[split], ("", ".gz")))
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise CodefyError(
            f"The {name} files in {root} hold {tuple(images.shape)} pictures and {tuple(labels.shape)} labels;"
            " fetch them anew.",
            code="files.unreadable",
        )
    return Pictures(images.unsqueeze(1), labels, white=_WHITE)


def _found(name: str, root: Path, files: Sequence[str], endings: Sequence[str]) -> list[Path]:
    """The files, from the first folder that has them all.

    Raises: CodefyError ``files.not_found`` that says what to fetch and where to put it.
    """
    raw = RAW[name]
    for folder in raw.folders:
        found = [_first(root / folder, file, endings) for file in files]
        if all(found):
            return [path for path in found if path is not None]
    raise CodefyError(
        f"This needs the {raw.title} download, and nothing is downloaded by itself: fetch"
        f" {', '.join(f'{file}{endings[-1]}' for file in files)} from {raw.source} and put them into"
        f" {root / raw.folders[0]} on the machine that runs this. Digits is a data set that needs no download.",
        code="files.not_found",
    )


def _first(folder: Path, file: str, endings: Sequence[str]) -> Path | None:
    return next((path for ending in endings if (path := folder / f"{file}{ending}").is_file()), None)
