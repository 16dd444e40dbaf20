"""Finds a recorded object below its family's folder, and nowhere else."""

from pathlib import Path, PurePosixPath

from codefyui_core.plugin import BadName, Family, Folders, Refused

from .models import StoredAt


def stored_at(folders: Folders, relative: str) -> StoredAt:
    """``models/iris/model.pt`` -> the models folder and ``iris/model.pt``.

    Raises: BadName; Refused for what lies in none of the families.
    """
    path = folders.locate(relative)
    family = PurePosixPath(relative).parts[0]
    if family not in {one.value for one in Family} or path == folders.of(Family(family)):
        raise Refused(
            f"{relative}: only files below {', '.join(one.value for one in Family)} can be recorded"
        )
    base = folders.of(Family(family)).absolute()
    return StoredAt(base=str(base), name=path.absolute().relative_to(base).as_posix())


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
