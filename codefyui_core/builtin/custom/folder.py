"""Where people's own node files are."""

from collections.abc import Mapping
from pathlib import Path


def custom_nodes_folder(environ: Mapping[str, str]) -> Path:
    """``CODEFYUI_CUSTOM_NODES_DIR``, else ``custom_nodes`` in the data folder: the moved one, the launcher's
    install, or below the user data of an install from wheels. An empty variable counts as not set.
    """
    for variable, below in (
        ("CODEFYUI_CUSTOM_NODES_DIR", "."),
        ("CODEFYUI_DATA_DIR", "custom_nodes"),
        ("CODEFYUI_DIR", "backend/data/custom_nodes"),
        ("CODEFYUI_USER_DATA_DIR", "backend/data/custom_nodes"),
    ):
        if environ.get(variable):
            return (Path(environ[variable]).expanduser() / below).absolute()
    return Path.home() / ".codefyui" / "backend" / "data" / "custom_nodes"
