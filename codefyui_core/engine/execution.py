"""Executes one plan: level by level, a few nodes at once, each once."""

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Self

from codefyui_core.errors import CodefyError
from codefyui_core.graph import Plan, PlanNode, ports
from codefyui_core.runs.options import ErrorMode
from codefyui_core.runs.status import NodeStatus

from . import seeds
from .cache import Result, ResultCache, result_key
from .context import RunContext, RunPreset
from .failures import NodeFailure, Stopped, redacted
from .selection import needed
from .shared import Shared
from .tensors import aligned

RETRY_PAUSE_S = 0.5
"""Times the number of the attempt."""
_SLICE_S = 0.05


class End(Enum):
    """How a node ended for those that follow it."""

    GAVE = auto()
    FAILED = auto()
    """Or was skipped."""
    LEFT_OUT = auto()
    STOPPED = auto()


@dataclass(slots=True, kw_only=True)
class Execution:
    """One plan's way through. ``given`` are values that come from outside, by node and port."""

    shared: Shared
    plan: Plan
    run_preset: RunPreset
    prefix: str = ""
    """Of the ids that the nodes go by, in statuses and seeds."""
    given: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    keep: frozenset[str] = frozenset()
    """Nodes whose results are wanted at the end; others are let go once all that follow have run."""
    quiet: bool = False
    """Without statuses: inside of a node."""
    cache: ResultCache | None = None
    hidden_seed: int | None = None
    failures: list[NodeFailure] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    _ends: dict[str, End] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    _waiting: dict[str, int] = field(default_factory=dict)
    _needed: frozenset[str] = frozenset()
    _matter: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Afterwards ``failures`` and ``results`` say how it went."""
        self._needed, self._matter = needed(self.plan, self.shared.nodes.classes, self.keep)
        for node in self.plan.nodes.values():
            for source in {source.node_id for source in node.inputs.values()}:
                self._waiting[source] = self._waiting.get(source, 0) + 1
        limit = self.shared.job.limits.parallel_nodes
        with _Pool(limit) as pool:
            for level in self.plan.levels:
                if self.is_over():
                    break
                self._level(level, pool)

    def is_over(self) -> bool:
        """Stopped, or ended by a failure."""
        if self.shared.should_stop():
            return True
        goes_on = self.shared.job.options.error_mode is ErrorMode.CONTINUE and not self.quiet
        return bool(self.failures) and not goes_on

    def is_through(self) -> bool:
        """Every node has ended, and none was stopped."""
        return len(self._ends) == len(self.plan.nodes) and End.STOPPED not in self._ends.values()

    def _level(self, level: Sequence[str], pool: "_Pool") -> None:
        ready = [node for node_id in level if self._is_ready(node := self.plan.nodes[node_id])]
        if len(ready) > 1 and not self._one_by_one(ready):
            pool.each(self._unless_over, ready)
        else:
            for node in ready:
                self._unless_over(node)

    def _one_by_one(self, nodes: Iterable[PlanNode]) -> bool:
        """Nodes that share generators mustn't run beside others: all of a seeded run, and those that run a
        preset several times with the same weights.
        """
        if self.shared.seed is not None or self.quiet:
            return True
        return any(param.preset for node in nodes for param in node.definition.params)

    def _unless_over(self, node: PlanNode) -> None:
        if not self.is_over():
            self._node(node)

    def _is_ready(self, node: PlanNode) -> bool:
        if node.id not in self._needed:
            self._finish(node, End.LEFT_OUT, NodeStatus.NOT_SELECTED)
            return False
        if any(self._ends.get(source) is End.FAILED for _, source, _ in self._sources(node)):
            self._finish(node, End.FAILED, NodeStatus.SKIPPED)
            return False
        return True

    def _sources(self, node: PlanNode) -> Iterator[tuple[str, str, str]]:
        """Port, source and its port, of the inputs that matter."""
        matter = self._matter.get(node.id)
        for port, source in node.inputs.items():
            if matter is None or port in matter:
                yield port, source.node_id, source.port

    def _node(self, node: PlanNode) -> None:
        """Never raises for what a node does."""
        shown = self.prefix + node.id
        if not self.quiet:
            self.shared.reporter.running(shown)
        try:
            key = self._key(node)
            result = self.cache.get(key) if self.cache is not None and key is not None else None
            if result is not None:
                self._done(node, result, (), NodeStatus.CACHED)
                return
            result, lines = self._attempts(node, shown)
            if result.get("__interrupted__") and self.shared.should_stop():
                self._finish(node, End.STOPPED, NodeStatus.INTERRUPTED)
                return
            if self.cache is not None and key is not None:
                self.cache.put(key, result)
            self._done(node, result, lines, NodeStatus.COMPLETED)
        except Stopped:
            self._finish(node, End.STOPPED, NodeStatus.INTERRUPTED)
        except (Exception, SystemExit) as error:
            self._failed(node, shown, error)

    def _done(self, node: PlanNode, result: Result, lines: Sequence[str], status: NodeStatus) -> None:
        self.results[node.id] = result
        outputs = None
        if not self.quiet:
            declared = self._output_ports(node)
            verbose = self.shared.job.options.verbose
            outputs = self.shared.summaries.of(declared, result, [*lines, *_logged(result)], verbose=verbose)
            if self.shared.recorder is not None:
                shown = self.prefix + node.id
                self.shared.recorder.node(shown, node.type, node.container, declared, result)
        self._finish(node, End.GAVE, status, outputs=outputs or None)

    def _output_ports(self, node: PlanNode) -> Iterable[Any]:
        declared = node.definition.outputs
        if not any(port.repeat for port in declared):
            return declared
        return ports(node.definition, node.params)[1]

    def _failed(self, node: PlanNode, shown: str, error: BaseException) -> None:
        failure = self.shared.failure(shown, node.type, error)
        self.failures.append(failure)
        if self.shared.job.options.error_mode is not ErrorMode.CONTINUE and not self.quiet:
            self.shared.aborted.set()
        if not isinstance(error, CodefyError):
            _print_traceback(error, self.shared.secrets)
        self._finish(node, End.FAILED, NodeStatus.ERROR, error=failure.message)

    def _finish(self, node: PlanNode, end: End, status: NodeStatus, **said: Any) -> None:
        self._ends[node.id] = end
        if not self.quiet:
            self.shared.reporter.ended(self.prefix + node.id, status, **said)
        with self._lock:
            for source in {source.node_id for source in node.inputs.values()}:
                self._waiting[source] -= 1
                if self._waiting[source] == 0 and source not in self.keep:
                    self.results.pop(source, None)

    def _attempts(self, node: PlanNode, shown: str) -> tuple[Result, list[str]]:
        options = self.shared.job.options
        retries = options.error_mode is ErrorMode.RETRY and not self.quiet
        tries = 1 + (options.max_retries if retries else 0)
        for attempt in range(1, tries):
            try:
                return self._once(node, shown)
            except Stopped:
                raise
            except (Exception, SystemExit) as error:
                text = redacted(f"attempt {attempt} of {tries} failed: {error}", self.shared.secrets)
                self.shared.reporter.log(shown, text.splitlines())
            if not _slept(RETRY_PAUSE_S * attempt, self.shared.should_stop):
                return {"__interrupted__": True}, []
        return self._once(node, shown)

    def _once(self, node: PlanNode, shown: str) -> tuple[Result, list[str]]:
        """A fresh instance, and generators that depend on run and node alone."""
        cls = self.shared.nodes.classes[node.type]
        inputs = self._inputs(node)
        if cls.align_inputs:
            inputs = {port: aligned(value, self.shared.device) for port, value in inputs.items()}
        hidden = self.hidden_seed if cls.stateful else None
        base = self.shared.seed if self.shared.seed is not None else hidden
        if base is not None:
            seeds.seed_libraries(seeds.derive(base, shown), self.shared.device)
        context = RunContext(self.shared, shown, self.run_preset, hidden)
        result = cls().execute(inputs, dict(node.params), context)
        if not isinstance(result, Mapping):
            raise CodefyError(
                f"execute returned {type(result).__name__}, not a mapping of outputs by port name"
            )
        return result, context.lines

    def _inputs(self, node: PlanNode) -> dict[str, Any]:
        """Values by port. What an upstream node didn't give is absent, like an input that isn't wired.

        Raises: CodefyError for a required one.
        """
        values: dict[str, Any] = dict(self.given.get(node.id, {}))
        for port, source, source_port in self._sources(node):
            value = self.results.get(source, {}).get(source_port)
            if value is not None:
                values[port] = value
        matter = self._matter.get(node.id)
        for declared in node.input_ports:
            name = declared.name
            if not declared.optional and name not in values and (matter is None or name in matter):
                raise CodefyError(_missing(name, node))
        return values

    def _key(self, node: PlanNode) -> str | None:
        """None: its result must not be taken from the cache; this spreads downstream."""
        if self.cache is None or not node.definition.cacheable or node.id in self.given:
            return None
        sources = []
        for port, source, source_port in self._sources(node):
            if source not in self._keys:
                return None
            sources.append((port, self._keys[source], source_port))
        shared = self.shared
        cls = shared.nodes.classes[node.type]
        self._keys[node.id] = result_key(
            type_name=node.type,
            params=node.params,
            sources=sources,
            device=shared.device,
            seed=None if shared.seed is None else seeds.derive(shared.seed, self.prefix + node.id),
            fingerprint=cls.fingerprint(node.params, shared.job.places.folders),
        )
        return self._keys[node.id]


class _Pool:
    """Threads, made when a level needs them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)

    def each(self, work: Callable[[PlanNode], None], nodes: Sequence[PlanNode]) -> None:
        """Waits for all."""
        if self._limit == 1:
            for node in nodes:
                work(node)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._limit, thread_name_prefix="node")
        for done in [self._threads.submit(work, node) for node in nodes]:
            done.result()


def _logged(result: Result) -> list[str]:
    """The reserved key ``__log__``: a text or lines of it."""
    log = result.get("__log__")
    if log is None:
        return []
    if isinstance(log, str):
        return log.splitlines()
    return [str(line) for line in log] if isinstance(log, list | tuple) else [str(log)]


def _missing(port: str, node: PlanNode) -> str:
    source = node.inputs.get(port)
    if source is None:
        return f"the required input {port} isn't wired; wire it"
    return f"the required input {port} got nothing: {source.node_id} gave no {source.port}"


def _slept(seconds: float, should_stop: Callable[[], bool]) -> bool:
    """False when it was asked to stop meanwhile."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if should_stop():
            return False
        time.sleep(min(left, _SLICE_S))
    return not should_stop()


def _print_traceback(error: BaseException, secrets: Sequence[str]) -> None:
    """On standard error, which becomes log lines; never in a status."""
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(redacted(text, secrets))
    sys.stderr.flush()
