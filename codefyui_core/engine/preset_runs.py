"""Runs a preset inside of a node, as Map does for each item."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codefyui_core.errors import CodefyError
from codefyui_core.graph import GraphInvalid, PresetPlan

from . import seeds
from .cache import ResultCache
from .execution import Execution
from .failures import Stopped
from .shared import Shared

SEPARATOR = "__"
_DEEPEST = 10


@dataclass(slots=True, kw_only=True)
class PresetRuns:
    """All preset runs of one run. Each label (a Map node) has a seed and a cache of its own: nodes of the
    preset that don't depend on the item run once, and equal items give equal results.
    """

    shared: Shared
    _caches: dict[str, ResultCache] = field(default_factory=dict)
    _hidden: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _depth: threading.local = field(default_factory=threading.local)

    def run(self, name: str, inputs: Mapping[str, Any], label: str) -> Mapping[str, Any]:
        """Exposed outputs by name, the first exposed one first.

        Raises: CodefyError naming the inner node that failed.
        """
        depth = getattr(self._depth, "now", 0)
        if depth >= _DEEPEST:
            raise CodefyError(f"presets run one another more than {_DEEPEST} deep; take {name} apart")
        self._depth.now = depth + 1
        try:
            return self._run(self._planned(name), inputs, label)
        finally:
            self._depth.now = depth

    def _planned(self, name: str) -> PresetPlan:
        try:
            return self.shared.preset(name)
        except GraphInvalid as error:
            raise CodefyError(error.message, code="preset.not_found") from error

    def _run(self, preset: PresetPlan, inputs: Mapping[str, Any], label: str) -> Mapping[str, Any]:
        given = _given(preset, inputs)
        with self._lock:
            limits = self.shared.job.limits
            cache = self._caches.setdefault(
                label, ResultCache(entries=limits.cache_entries, bytes=limits.cache_bytes)
            )
            hidden = self._hidden.setdefault(label, seeds.fresh())
        ends = preset.outputs
        execution = Execution(
            shared=self.shared,
            plan=preset.plan,
            run_preset=self.run,
            prefix=f"{label}{SEPARATOR}",
            given=given,
            keep=frozenset(end.node for end in ends.values()),
            quiet=True,
            cache=cache,
            hidden_seed=hidden,
        )
        execution.run()
        if execution.failures:
            raise execution.failures[0]
        if not execution.is_through():
            raise Stopped("the run was stopped before the preset was through")
        return {port: execution.results.get(end.node, {}).get(end.port) for port, end in ends.items()}


def _given(preset: PresetPlan, inputs: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    given: dict[str, dict[str, Any]] = {}
    for name, value in inputs.items():
        end = preset.inputs.get(name) if name else preset.input
        if end is None:
            raise CodefyError(
                f"preset {preset.name} exposes no input {name}; it has {', '.join(preset.inputs)}"
            )
        given.setdefault(end.node, {})[end.port] = value
    return given
