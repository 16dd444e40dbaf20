"""Distributions that look installed: metadata and modules in a folder of the test."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

from codefyui_core.plugin.markers import PROJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeSite:
    """A folder like ``site-packages``. Put it on ``sys.path`` before what is in it is imported."""

    folder: Path

    def install(
        self,
        distribution: str,
        source: str,
        *,
        plugin: str | None = None,
        version: str = "1.0",
        commit: str | None = None,
    ) -> str:
        """Write a distribution with one module that holds ``source``, and an entry point for it. The module's
        name is the distribution's with ``_``, the entry point's is ``plugin`` or the module's. ``commit``: it was
        installed from a repository at that commit. Answers the module's name.
        """
        module = distribution.replace("-", "_")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{module}.py").write_text(source, encoding="utf-8")
        info = self.folder / f"{module}-{version}.dist-info"
        info.mkdir()
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n",
            "entry_points.txt": f"[{PROJECT}]\n{plugin or module} = {module}\n",
        }
        if commit is not None:
            files["direct_url.json"] = json.dumps(_direct_url(distribution, commit))
        for name, text in files.items():
            (info / name).write_text(text, encoding="utf-8")
        return module

    def entry_points(self) -> tuple[EntryPoint, ...]:
        """Of the distributions in this folder alone, for ``load(entry_points=…)``."""
        return tuple(
            point
            for distribution in distributions(path=[str(self.folder)])
            for point in distribution.entry_points
            if point.group == PROJECT
        )


def _direct_url(distribution: str, commit: str) -> Mapping[str, object]:
    """As PEP 610 has it."""
    return {
        "url": f"https://example.invalid/{distribution}.git",
        "vcs_info": {"vcs": "git", "commit_id": commit, "requested_revision": "main"},
    }
