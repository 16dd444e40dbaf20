"""``docs/settings.md`` against the settings classes."""

import json
import re
from pathlib import Path

from pydantic import JsonValue
from pydantic_settings import BaseSettings

from codefyui_core.settings import AgentSettings, ControlSettings, FolderSettings, PlaneSettings, describe
from codefyui_core.settings.layers import Layers

TEXT = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[BaseSettings]] = {
    "Folders": FolderSettings,
    "Server and agent": PlaneSettings,
    "Server": ControlSettings,
    "Agent": AgentSettings,
}


WITHOUT_EFFECT = "Without effect in this version"


def rows(section: str) -> dict[str, str]:
    """Name and default of each row in a section."""
    text = re.split(rf"^## {section}$", TEXT, flags=re.MULTILINE)[1].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(CODEFYUI_\w+)` \| (.+?) \|", text, re.MULTILINE))


def shown(value: JsonValue) -> str:
    """A default as the page has it."""
    match value:
        case None:
            return "unset"
        case "":
            return "empty"
        case bool():
            return f"`{int(value)}`"
        case float() if value.is_integer():
            return f"`{int(value)}`"
        case str():
            return f"`{value}`"
    return f"`{json.dumps(value)}`"


def expected(section: str) -> dict[str, str]:
    cls = SECTIONS[section]
    shared = set() if cls is PlaneSettings else set(PlaneSettings.model_fields)
    names = {f"CODEFYUI_{field.upper()}" for field in set(cls.model_fields) - shared}
    return {row.name: shown(row.default) for row in describe(cls, Layers()) if row.name in names}


def test_every_setting_has_a_row_with_its_default_and_no_row_is_left_over() -> None:
    idle = rows(WITHOUT_EFFECT)
    shown = {section: rows(section) for section in SECTIONS}
    for section in SECTIONS:
        shown[section] |= {name: idle.pop(name) for name in list(idle) if name in expected(section)}
    assert (shown, idle) == ({section: expected(section) for section in SECTIONS}, {})


def test_settings_that_are_shown_without_effect_are_used_nowhere() -> None:
    root = Path(__file__).parents[2]
    sources = [*root.glob("codefyui_core/**/*.py"), *root.glob("plugins/*/codefyui_*/**/*.py")]
    text = "\n".join(
        path.read_text("utf-8") for path in sources if path.parts[-2:] != ("settings", "core.py")
    )
    fields = [name.removeprefix("CODEFYUI_") for name in rows(WITHOUT_EFFECT)]
    assert fields
    assert [name for name in fields if re.search(rf"\b({name.lower()}|(CODEFYUI_)?{name})\b", text)] == []


def test_every_variable_that_the_launcher_and_the_installer_read_has_a_row() -> None:
    root = Path(__file__).parents[2]
    files = [root / "cdui", root / "install.sh", *root.glob("scripts/cdui_setup/*.py")]
    read = {name for file in files for name in re.findall(r"CODEFYUI_[A-Z_]*[A-Z]", file.read_text("utf-8"))}
    assert read - set(re.findall(r"`(CODEFYUI_\w+)`", TEXT)) == set()
