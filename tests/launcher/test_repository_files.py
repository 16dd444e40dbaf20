"""Files that installing depends on."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[2]


def pins() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_constraints_are_names_and_versions_only() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!]+", line)] == []


def test_torch_is_pinned_without_a_build() -> None:
    assert pins()["torch"] == "2.13.0"


def requirements() -> list[Requirement]:
    found: list[str] = []
    for path in (REPOSITORY / "pyproject.toml", *REPOSITORY.glob("plugins/*/pyproject.toml")):
        data = tomllib.loads(path.read_text())
        project = data["project"]
        found += project.get("dependencies", [])
        extras = project.get("optional-dependencies", {})
        found += [one for extra in ("agent", "control") for one in extras.get(extra, [])]
        found += data.get("dependency-groups", {}).get("dev", [])
    return [Requirement(text) for text in found if not text.startswith("codefyui-")]


def test_every_installed_library_has_a_version_that_satisfies_its_users() -> None:
    known = pins()
    wrong = [
        str(one)
        for one in requirements()
        if canonicalize_name(one.name) not in known or known[canonicalize_name(one.name)] not in one.specifier
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["cdui", "install.sh", ".ci/run"])
def test_scripts_parse_and_can_be_run(name: str) -> None:
    path = REPOSITORY / name
    assert path.stat().st_mode & 0o111
    shell = "bash" if "bash" in path.read_text().splitlines()[0] else "sh"
    subprocess.run([shell, "-n", path], check=True)


def test_the_sets_of_fragments_and_the_changelog_fit() -> None:
    config = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["towncrier"]
    kinds = {kind["directory"] for kind in config["type"]}
    fragments = [
        path.name for path in (REPOSITORY / config["directory"]).glob("*.md") if path.name != "README.md"
    ]
    assert [name for name in fragments if name.split(".")[-2] not in kinds] == []
    assert config["start_string"].strip() in (REPOSITORY / config["filename"]).read_text()
