"""Which storage backend gets a run's files to a worker, and what to say when none does."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from codefyui_core.plugin.storage import (
    AnyBackend,
    Because,
    Facts,
    Offer,
    Refusal,
    StorageControl,
    StorageKind,
)
from codefyui_core.plugin.values import JsonObject
from codefyui_core.plugin.views import RunFiles, WorkerView

log = logging.getLogger(__name__)
_KIND_ORDER = (StorageKind.SHARED, StorageKind.CARRIER)
_CLOSENESS = (Because.RUN, Because.WORKER, Because.OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A backend that offers. None: the run uses no files, so none is needed."""

    backend: str | None
    rank: int = 0
    """Shared folders before carriers, then by preference."""
    fallbacks: tuple[str, ...] = ()
    """Texts of ``storage_fallback`` warnings from those that were asked before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unserved:
    """No backend offers."""

    message: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Storages:
    """The backends of this server: what they are, and the halves that are running."""

    backends: Mapping[str, AnyBackend]
    stores: Mapping[str, StorageControl]

    def ordered(self) -> Sequence[AnyBackend]:
        """In the order in which they are asked."""
        return sorted(
            (backend for name, backend in self.backends.items() if name in self.stores),
            key=lambda backend: (_KIND_ORDER.index(backend.kind), backend.preference, backend.name),
        )

    def serve(
        self, files: RunFiles, worker: WorkerView, facts: Mapping[str, JsonObject | None]
    ) -> Served | Unserved:
        """The first backend that offers, or all refusals in one message."""
        if not files.uses_files:
            return Served(backend=None)
        refusals: list[tuple[AnyBackend, Refusal]] = []
        for rank, backend in enumerate(self.ordered()):
            answer = self._ask(backend, files, worker, facts.get(backend.name))
            if isinstance(answer, Offer):
                fallbacks = tuple(refusal.fallback for _, refusal in refusals if refusal.fallback)
                return Served(backend=backend.name, rank=rank, fallbacks=fallbacks)
            refusals.append((backend, answer))
        return compose(worker.name, refusals)

    def _ask(
        self, backend: AnyBackend, files: RunFiles, worker: WorkerView, facts: JsonObject | None
    ) -> Offer | Refusal:
        try:
            return self.stores[backend.name].offer(files, worker, self.read_facts(backend, facts))
        except Exception:
            log.exception("storage backend %s failed to answer whether it can serve a run", backend.name)
            return Refusal(because=Because.OFF, reason=f"the storage backend {backend.name} failed")

    @staticmethod
    def read_facts(backend: AnyBackend, facts: JsonObject | None) -> Facts | None:
        """As the backend's own model; None for none, and for those of another version."""
        if facts is None:
            return None
        try:
            read: Facts = backend.facts.model_validate(facts)
        except ValidationError:
            return None
        return read


def compose(worker: str, refusals: Sequence[tuple[AnyBackend, Refusal]]) -> Unserved:
    """``worker <name> <lack>; <remedy>, or <remedy>``: one refusal a kind, the closest, of equals the least
    preferred.
    """
    shown = [closest for kind in _KIND_ORDER if (closest := _closest(kind, refusals)) is not None]
    if not shown:
        message = (
            f"worker {worker} can't get this run's files: no storage backend is on; see cdui plugin list"
        )
        return Unserved(message=message, code="storage.refused")
    lacks = [refusal.lack for refusal in shown if refusal.lack]
    remedies = [refusal.remedy for refusal in shown if refusal.remedy]
    said = " and ".join(lacks) or f"can't get this run's files: {'; '.join(one.reason for one in shown)}"
    message = f"worker {worker} {said}" + (f"; {', or '.join(remedies)}" if remedies else "")
    return Unserved(message=message, code=shown[0].code)


def _closest(kind: StorageKind, refusals: Sequence[tuple[AnyBackend, Refusal]]) -> Refusal | None:
    of_kind = [refusal for backend, refusal in refusals if backend.kind is kind]
    if not of_kind:
        return None
    best = min(_CLOSENESS.index(refusal.because) for refusal in of_kind)
    return [refusal for refusal in of_kind if _CLOSENESS.index(refusal.because) == best][-1]
