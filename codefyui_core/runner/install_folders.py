"""The folders of an installation, as a run process gets them."""

from codefyui_core.files import Family
from codefyui_core.settings import Install

from .api import FolderSpec


def folder_spec(install: Install) -> FolderSpec:
    """Its own data folder, with what is moved elsewhere."""
    folders = install.folders()
    return FolderSpec(
        base=str(install.base),
        data=str(folders.root),
        moved={family.value: str(path) for family, path in folders.moved},
        samples=str(install.samples),
        downloads=str(folders.of(Family.CACHE)),
        extra=tuple(str(path) for path in install.readable),
    )
