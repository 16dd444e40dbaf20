"""Brings the folder with the pages."""

from pathlib import Path

from codefyui_core.plugin import hookimpl


@hookimpl
def codefyui_web_root() -> Path | None:
    return Path(__file__).parent / "static"
