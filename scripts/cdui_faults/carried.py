"""What must hold of the files of runs: what is listed is there and is what the run wrote, and nothing that it wrote is missing
without a word.
"""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from .findings import Findings
from .journal import Journal
from .schedule import SERVER
from .site import Site
from .stored import Artifact, StoredRun
from .uploads import HASHES
from .watcher import Asked, Watcher

HIDDEN = ".cdui-*.part"
DELIVERED = frozenset({"user_code", "signal", "host_oom"})
"""Causes of failures after which the agent still delivers what there is."""
OWN = "local"
"""The backend of the server's own runs, whose files it doesn't hash."""
BESIDE = ".tmp"
"""A file that wasn't renamed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Got:
    """An artifact as a person gets it."""

    row: Artifact
    status: int
    digest: str

    @property
    def is_stored(self) -> bool:
        return self.row.state == "stored"


def check(site: Site, rows: Sequence[StoredRun], watcher: Watcher, found: Findings) -> None:
    """Of all runs that have ended; the server answers."""
    for run in rows:
        asked = watcher.asked.get(run.name)
        if asked is None or asked.files is None:
            continue
        journal, got = watcher.journal(asked), [_get(site, run, row) for row in run.artifacts]
        found.written += len(journal.wrote)
        found.delivered.update(one.row.backend for one in got if one.is_stored)
        found.left += sum(one.row.state == "on_worker" for one in got)
        found.replaced += sum(_is_replaced(one, journal) for one in got)
        problems = [
            *_inputs(journal, asked),
            *(problem for one in got for problem in _listed(one, journal)),
            *_twice(got, journal),
            *_missing(run, journal, asked, got),
            *_unlisted(run, journal, got, site.carrying.kept(run.run_id)),
            *_unsaid(run, got),
        ]
        sync = "synced" if asked.files.sync else "not synced"
        found.violations += [
            f"{run.name} {run.run_id} on {asked.target} ({run.status}, {sync}): {problem}"
            for problem in problems
        ]


def unfinished(site: Site) -> list[str]:
    """What came in half, here and in the store."""
    data = site.data(SERVER)
    hidden = [str(path.relative_to(data)) for path in data.rglob(HIDDEN)]
    return hidden + site.carrying.unfinished()


# ---------------------------------------------------------------- one run


def _inputs(journal: Journal, asked: Asked) -> Iterator[str]:
    assert asked.files is not None
    for name, digest in journal.inputs:
        if (name, digest) != (asked.files.input, HASHES[asked.files.input]):
            yield f"it read {name} with other content"


def _listed(one: Got, journal: Journal) -> Iterator[str]:
    """A row, its bytes, and what the run noted."""
    row = one.row
    if row.state not in {"stored", "on_worker"}:
        yield f"{row.name} is {row.state} after the end"
    if not one.is_stored:
        return
    if one.status != 200:
        yield f"{row.name} is listed and can't be got: status {one.status}"
        return
    if one.digest != row.sha256 and (row.sha256 is not None or row.backend != OWN):
        yield f"{row.name} is listed with another hash than it has"
    meant = [_base(name) for name, digest in journal.begun if digest == one.digest]
    if row.wanted is not None and one.digest != row.wanted and not _is_replaced(one, journal):
        yield f"{row.name} isn't what was recorded"
    elif row.name.endswith(BESIDE):
        return
    elif meant:
        if _base(row.name) not in meant:
            yield f"{row.name} has the content of {meant[0]}"
    else:
        yield f"{row.name} has a content that the run never wrote"


def _is_replaced(one: Got, journal: Journal) -> bool:
    """The run wrote over it after it recorded it, and before its agent came to look."""
    if one.row.wanted is None or one.digest in {"", one.row.wanted}:
        return False
    versions = [digest for name, digest in journal.begun if _base(name) == _base(one.row.name)]
    return one.row.wanted in versions and one.digest in versions[versions.index(one.row.wanted) + 1 :]


def _twice(got: Sequence[Got], journal: Journal) -> Iterator[str]:
    """One row a file: by where it lies, and for what was recorded by what was recorded. A checkpoint that was replaced lies
    where the one lies that replaced it.
    """
    own = [one.row for one in got if one.is_stored and not _is_replaced(one, journal)]
    places = [(row.backend, row.relative_path) for row in own]
    for _, place in {place for place in places if places.count(place) > 1}:
        yield f"{place} is listed more than once"
    recorded = [(one.row.kind, one.row.name, one.row.wanted) for one in got if one.row.wanted is not None]
    for _, name, _ in {key for key in recorded if recorded.count(key) > 1}:
        yield f"{name} was recorded once and is listed more often"


def _missing(run: StoredRun, journal: Journal, asked: Asked, got: Sequence[Got]) -> Iterator[str]:
    if not _delivers(run, journal):
        return
    stored = {one.digest for one in got if one.is_stored} | {one.row.wanted for one in got}
    left = {_base(one.row.name) for one in got if not one.is_stored}
    replaced = {
        digest for number, (name, digest) in enumerate(journal.wrote) if _later(journal, number, name)
    }
    for name, digest in journal.wrote:
        if asked.target == SERVER and not _base(name).startswith("step-"):
            continue  # in the server's own folders only what was recorded is listed
        if digest in stored or _base(name) in left:
            continue
        if digest in replaced and run.status != "succeeded":
            continue  # its report may have been lost with the process, and what replaced it is there
        yield f"{name} was written and isn't listed"


def _unlisted(run: StoredRun, journal: Journal, got: Sequence[Got], kept: Sequence[str]) -> Iterator[str]:
    """Of a file that was given up, nobody knows whether the last try reached the store."""
    if not _delivers(run, journal) or any(not one.is_stored for one in got):
        return
    listed = {one.row.relative_path for one in got}
    for key in kept:
        if key not in listed:
            yield f"{key} is in the store and isn't listed"


def _delivers(run: StoredRun, journal: Journal) -> bool:
    """Its end was recorded as it happened: no agent was lost meanwhile."""
    return (
        run.status == "succeeded"
        or (run.status == "failed" and run.cause in DELIVERED)
        or (run.status == "cancelled" and journal.over)
    )


def _later(journal: Journal, number: int, name: str) -> bool:
    return any(later == name for later, _ in journal.wrote[number + 1 :])


def _unsaid(run: StoredRun, got: Sequence[Got]) -> Iterator[str]:
    left = [one.row.name for one in got if one.row.state == "on_worker"]
    warned = any(
        isinstance(payload, dict) and payload.get("kind") == "transfer_failed"
        for kind, payload in zip(run.types, run.payloads, strict=True)
        if kind == "run_warning"
    )
    if left and not warned:
        yield f"{left[0]} stays on the worker without a warning"


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _get(site: Site, run: StoredRun, row: Artifact) -> Got:
    """Only what is stored is asked for."""
    if row.state != "stored":
        return Got(row=row, status=0, digest="")
    artifact = quote(row.artifact_id, safe="")
    url = f"http://127.0.0.1:{site.port}/api/runs/{run.run_id}/artifacts/{artifact}/download"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return Got(row=row, status=answer.status, digest=hashlib.sha256(answer.read()).hexdigest())
    except urllib.error.HTTPError as error:
        return Got(row=row, status=error.code, digest="")
