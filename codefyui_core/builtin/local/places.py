"""Finds a recorded object below its family's folder, and nowhere else."""

from pathlib import Path, PurePosixPath

from codefyui_core.plugin import BadName, Family, Folders, Refused

from .models import StoredAt


def stored_at(folders: Folders, relative: str) -> StoredAt:
    """``models/iris/model.pt`` -> the models folder and ``iris/model.pt``.

    Raises: BadName for a name that climbs, or lies in none of the families.
    """
    path = folders.locate(relative)
    base = folders.of(Family(PurePosixPath(relative).parts[0]))
    if path == base:
        raise BadName(f"{relative}: a whole family of files can't be recorded; record a file below it")
    return StoredAt(base=str(base.absolute()), name=path.relative_to(base).as_posix())


def real_path(at: StoredAt) -> Path:
    """The path with every link followed. Blocking.

    Raises: BadName when it leads out of the family's folder; Refused when nothing is there.
    """
    base = Path(at.base).resolve()
    path = (base / at.name).resolve()
    if not path.is_relative_to(base) or path == base:
        raise BadName(f"{at.name}: leads out of {at.base}")
    if not path.exists():
        raise Refused(f"{at.path} is gone; it was moved or removed by hand", code="artifact.not_found")
    return path
