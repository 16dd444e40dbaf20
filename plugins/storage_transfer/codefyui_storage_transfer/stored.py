"""Objects of this backend as they are listed, and the files behind them. The file parts block."""

from pathlib import Path

from codefyui_core.plugin import (
    Arrived,
    Arriving,
    BadName,
    ControlStoreHost,
    Refused,
    SafeFolder,
    StoredObject,
)

from .models import OUTPUT, StoredAt, Uploaded
from .places import Target, place_of


def listed(key: str, kind: str, name: str, where: Target, arrived: Arrived) -> StoredObject:
    """What to record of a file that arrived."""
    at = StoredAt(base=str(where.folder.absolute()), name=arrived.relative_path)
    return StoredObject(
        key=key,
        kind=kind,
        name=name,
        relative_path=f"{where.prefix}/{arrived.relative_path}",
        size_bytes=arrived.size_bytes,
        sha256=arrived.sha256,
        data=at.model_dump(mode="json"),
    )


def found(host: ControlStoreHost, file: Arriving, arrived: Arrived) -> StoredObject:
    """What to record of a file that came without a receipt: kind and name follow from its place."""
    where = place_of(host, file)
    if file.folder.name == file.run_id:
        kind, _, name = file.name.partition("/")
    else:
        kind, name = OUTPUT, f"{where.prefix}/{file.name}"
    return listed(file.key, kind, name, where, arrived)


def uploaded(where: Target, arrived: Arrived) -> Uploaded:
    """What to answer whoever sent it."""
    return Uploaded(
        offset=arrived.size_bytes,
        placed=True,
        relative_path=f"{where.prefix}/{arrived.relative_path}",
        size_bytes=arrived.size_bytes,
        sha256=arrived.sha256,
    )


def path_of(stored: StoredObject) -> Path:
    """From memory."""
    at = StoredAt.model_validate(stored.data)
    return Path(at.base) / at.name


def check_there(path: Path, base: Path, size_bytes: int | None) -> None:
    """Raises: Refused when the file isn't below its folder, is reached by a link, or has become another one."""
    name = path.relative_to(base).as_posix()
    try:
        with SafeFolder(base) as folder, folder.read(name) as file:
            size = file.seek(0, 2)
    except (BadName, OSError) as error:
        raise Refused(
            f"{path} is gone; it was moved or removed by hand", code="artifact.not_found"
        ) from error
    if size_bytes is not None and size != size_bytes:
        raise Refused(f"{path} was changed since the run wrote it", code="artifact.not_found")


def remove_object(stored: StoredObject) -> None:
    """One file, unless it was placed in the data folder: there it is its owner's. Absent is fine."""
    if stored.kind == OUTPUT:
        return
    at = StoredAt.model_validate(stored.data)
    _remove(Path(at.base), at.name)


def remove_run(run_files: Path, run: str, keep_kinds: frozenset[str]) -> None:
    """The run's own folder, but for the kinds that stay. Absent is fine."""
    own = run_files / run
    kept = [kind for kind in keep_kinds if (own / kind).is_dir()]
    if not kept:
        _remove(run_files, run)
        return
    for name in [path.name for path in own.iterdir() if path.name not in kept]:
        _remove(own, name)


def _remove(base: Path, name: str) -> None:
    if base.is_dir():
        with SafeFolder(base) as folder:
            folder.remove(name)
