"""What every node of one run shares."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from codefyui_core.graph import Document, PresetPlan, preset_plan

from .cache import ResultCache
from .failures import NodeFailure
from .job import Job, NodeSet
from .recording import Recorder
from .reporter import Reporter
from .summaries import Summaries


@dataclass(slots=True, kw_only=True)
class Shared:
    """Safe from any thread."""

    job: Job
    nodes: NodeSet
    document: Document
    device: str
    seed: int | None
    reporter: Reporter
    summaries: Summaries
    asked_to_stop: Callable[[], bool]
    cache: ResultCache | None = None
    recorder: Recorder | None = None
    secrets: tuple[str, ...] = ()
    aborted: threading.Event = field(default_factory=threading.Event)
    """A node failed and the rest isn't wanted."""
    _presets: dict[str, PresetPlan] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def should_stop(self) -> bool:
        return self.aborted.is_set() or self.asked_to_stop()

    def preset(self, name: str) -> PresetPlan:
        """Planned once a run.

        Raises: GraphInvalid.
        """
        with self._lock:
            if name not in self._presets:
                self._presets[name] = preset_plan(name, self.document, self.nodes.definitions)
            return self._presets[name]

    def failure(self, node_id: str, type_name: str, error: BaseException) -> NodeFailure:
        return NodeFailure(node_id, type_name, error, self.secrets)
