"""Which files the parameters of nodes mean, and which they may touch."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from codefyui_core.errors import BadName, CodefyError
from codefyui_core.files import Family, SafeFolder, spelled_below
from codefyui_core.portable_names import check_name

from .job import Places

_SAMPLES = ("data", "samples")


def input_file(places: Places, family: Family, value: str) -> Path:
    """An upload by its name below the family's folder, else a plain path.

    Raises: CodefyError ``files.not_found``, ``files.outside``.
    """
    if not value.strip():
        raise CodefyError(f"no file is chosen; choose one of {family.value}/", code="files.not_found")
    upload = _below(places.folders.of(family), value)
    if upload is not None and upload.exists():
        return upload
    try:
        return input_path(places, value)
    except CodefyError as error:
        if error.code == "files.not_found" or (upload is not None and not (places.base / value).exists()):
            raise CodefyError(
                f"{value}: there is no such file in {family.value}/; upload it, or correct the name",
                code="files.not_found",
            ) from error
        raise


def input_path(places: Places, value: str) -> Path:
    """A plain reading path. Where it leads is decided before whether anything is there.

    Raises: CodefyError ``files.not_found``, ``files.outside``.
    """
    if not value.strip():
        raise CodefyError("no path is given; name a file below data/", code="files.not_found")
    try:
        path = Path(os.path.realpath(meant(places, value)))
        present = path.exists()
    except (OSError, ValueError) as error:
        raise CodefyError(f"{value!r} can't be a path here ({error})", code="files.not_found") from error
    if not any(path.is_relative_to(os.path.realpath(root)) for root in _readable(places)):
        raise CodefyError(
            f"{value} lies outside of the folders that runs may read; move it below the data folder, or add its "
            "folder to CODEFYUI_EXTRA_DATA_DIRS",
            code="files.outside",
        )
    if not present:
        raise CodefyError(
            f"{value}: there is no such file or folder; correct the path", code="files.not_found"
        )
    return path


def output_file(places: Places, family: Family, name: str) -> Path:
    """A place below the family's folder, never elsewhere, with its parent folders made.

    Raises: BadName.
    """
    root = places.folders.of(family)
    relative = check_name(name)
    with SafeFolder(root, create=True) as folder:
        if relative.parent.parts:
            folder.make_folder(str(relative.parent))
    path = root / relative
    if path.is_symlink():
        raise BadName(f"{name!r} is a symbolic link; remove it, or choose another name.")
    return path


def meant(places: Places, value: str) -> Path:
    """The path that a plain value stands for: ``data/...`` is the data folder wherever this run has it, and so is
    the server's own path of it.
    """
    path = Path(value)
    if path.is_absolute():
        if places.known_as is not None and ".." not in path.parts and path.is_relative_to(places.known_as):
            return places.folders.root / path.relative_to(places.known_as)
        return path
    parts = PurePosixPath(value.replace("\\", "/") if os.sep == "\\" else value).parts
    if parts[:2] == _SAMPLES and places.samples is not None:
        return places.samples.joinpath(*parts[2:])
    if parts[:1] == _SAMPLES[:1] and ".." not in parts and len(parts) > 1:
        try:
            return places.folders.locate("/".join(parts[1:]))
        except BadName:
            return places.folders.root.joinpath(*parts[1:])
    return places.base / path


def _readable(places: Places) -> Iterator[Path]:
    yield places.folders.root
    for _, moved in places.folders.moved:
        yield moved
    if places.samples is not None:
        yield places.samples
    yield places.downloads
    yield from places.extra


def _below(root: Path, value: str) -> Path | None:
    """None for what isn't a plain name, or leads out through a link."""
    try:
        path = spelled_below(root, check_name(value))
        real = os.path.realpath(path)
    except (BadName, OSError, ValueError):
        return None
    return path if Path(real).is_relative_to(os.path.realpath(root)) else None
