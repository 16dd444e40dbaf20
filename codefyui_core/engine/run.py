"""A run from its document to its outcome."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from codefyui_core.files import Family
from codefyui_core.graph import Document, GraphInvalid, Plan, expand, plan, secret_params, validate
from codefyui_core.plugin.values import JsonObject
from codefyui_core.runs.status import Cause, Outcome

from .cache import ResultCache
from .execution import Execution
from .job import Job, NodeSet
from .preset_runs import PresetRuns
from .recording import Recorder
from .reporter import Reporter
from .shared import Shared
from .speaker import Emit, Speaker
from .summaries import Summaries
from .tensors import usable

NOT_HERE_YET = ("backward_mode", "auto_backward", "weights_persistent")
"""Options that need a session; one run by itself has none to offer."""


def run(
    job: Job,
    nodes: NodeSet,
    emit: Emit,
    should_stop: Callable[[], bool],
    cache: ResultCache | None = None,
    recorder: Recorder | None = None,
) -> JsonObject:
    """Execute it, saying what happens; the answer is the payload of the outcome line, which isn't written.

    ``cache`` is a session's; without one nothing is kept. ``recorder`` gets the outputs of every node.
    """
    speaker = Speaker(emit, job.limits.payload_bytes)
    try:
        document = Document.parse(job.document)
        issues = validate(document, nodes.definitions)
        if issues:
            raise GraphInvalid(issues)
        planned = plan(expand(document, nodes.definitions), nodes.definitions)
    except GraphInvalid as error:
        speaker.event("execution_start", {"run_id": job.run_id})
        return _outcome(Outcome.FAILED, error.message, Cause.REFUSED)
    return _execute(job, nodes, document, planned, speaker, should_stop, cache, recorder)


def _execute(
    job: Job,
    nodes: NodeSet,
    document: Document,
    planned: Plan,
    speaker: Speaker,
    should_stop: Callable[[], bool],
    cache: ResultCache | None,
    recorder: Recorder | None,
) -> JsonObject:
    containers = {node.id: node.container for node in planned.nodes.values() if node.container is not None}
    reporter = Reporter(speaker, containers)
    reporter.start(job.run_id)
    shared = Shared(
        job=job,
        nodes=nodes,
        document=document,
        device=usable(job.device),
        seed=job.options.seed if job.options.seed is not None else document.settings_seed,
        reporter=reporter,
        summaries=Summaries(job.limits, job.places.folders.of(Family.MODELS)),
        asked_to_stop=should_stop,
        secrets=_secrets(document, nodes),
        recorder=recorder,
    )
    _warn(shared)
    verbose = job.options.verbose or job.options.backward_mode
    execution = Execution(
        shared=shared,
        plan=planned,
        run_preset=PresetRuns(shared=shared).run,
        cache=None if verbose else cache,
    )
    with deterministic(on=job.options.deterministic):
        execution.run()
    reporter.close()
    return _concluded(execution)


def _concluded(execution: Execution) -> JsonObject:
    """A failure stands, whatever stop came meanwhile."""
    if execution.failures:
        first, *others = execution.failures
        more = f" ({len(others)} more failed)" if others else ""
        return _outcome(Outcome.FAILED, first.message + more, first.cause)
    return _outcome(Outcome.SUCCEEDED if execution.is_through() else Outcome.STOPPED)


def _outcome(outcome: Outcome, error: str | None = None, cause: Cause | None = None) -> JsonObject:
    return {
        "outcome": outcome.value,
        "error": error,
        "cause": None if cause is None else cause.value,
    }


def _secrets(document: Document, nodes: NodeSet) -> tuple[str, ...]:
    """Values of SECRET params wherever the document holds them, the longest first so that one which holds
    another is starred whole.
    """
    values = set()
    for secret in secret_params(document, nodes.definitions):
        place: Any = document.raw
        for key in secret.path:
            place = place[key]
        values.add(str(place))
    return tuple(sorted(values, key=len, reverse=True))


def _warn(shared: Shared) -> None:
    if shared.device.partition(":")[0] != shared.job.device.partition(":")[0]:
        shared.reporter.warning(
            "device_unavailable", f"{shared.job.device} can't be used here; computing on {shared.device}"
        )
    for name in NOT_HERE_YET:
        if getattr(shared.job.options, name):
            shared.reporter.warning("option_ignored", f"{name} has no effect in this version")
    if shared.job.options.record_outputs and shared.recorder is None:
        shared.reporter.warning("option_ignored", "record_outputs has no effect without a server or a worker")


@contextmanager
def deterministic(*, on: bool) -> Iterator[None]:
    """Torch's deterministic algorithms, warning where there are none; afterwards as before.

    https://docs.pytorch.org/docs/stable/notes/randomness.html
    """
    torch = sys.modules.get("torch")
    if not on or torch is None:
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = before[2]
