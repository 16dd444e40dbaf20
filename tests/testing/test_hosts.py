"""Hosts keep what a half does, and raise what a plane would."""

import asyncio
from pathlib import Path

import pytest

from codefyui_core.errors import Refused, TransferStopped
from codefyui_core.ids import LinkId, RunId, WorkerId
from codefyui_core.plugin import AttemptView, PluginSettings, StoredObject
from codefyui_core.testing.hosts import (
    ControlLinkDouble,
    ControlStoreDouble,
    HostDouble,
    MemoryDocuments,
    OwnedTasks,
    ProgressDouble,
)
from codefyui_core.testing.ids import CountingIds


class Bucket(PluginSettings):
    s3_bucket: str = ""
    s3_parts: int = 4


def test_settings_are_those_given_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEFYUI_S3_BUCKET", "real")
    host = HostDouble(root=tmp_path)
    assert host.settings(Bucket).s3_bucket == ""
    host.given["s3_bucket"] = "tested"
    assert (host.settings(Bucket).s3_bucket, host.settings(Bucket).s3_parts) == ("tested", 4)


async def test_documents_know_which_are_sealed() -> None:
    documents = MemoryDocuments()
    await documents.put("a/1", {"x": 1}, sealed=True)
    await documents.put("b", {})
    assert (await documents.get("a/1"), await documents.keys("a/")) == ({"x": 1}, ["a/1"])
    assert documents.sealed == {"a/1"}
    await documents.delete("a/1")
    assert (await documents.get("a/1"), documents.sealed) == (None, set())


async def test_background_tasks_end_with_the_host_and_their_errors_show() -> None:
    tasks = OwnedTasks()
    waiting = tasks.start(asyncio.Event().wait(), name="waits")  # type: ignore[arg-type]
    await tasks.aclose()
    assert waiting.cancelled()

    async def fail() -> None:
        raise ValueError("a bug in a half")

    failing = tasks.start(fail(), name="fails")
    await asyncio.wait([failing], timeout=10)
    with pytest.raises(ValueError, match="a bug"):
        await tasks.aclose()


async def test_an_artifact_is_recorded_once_and_only_for_the_attempt_that_holds_the_run(
    tmp_path: Path,
) -> None:
    host = ControlStoreDouble(root=tmp_path)
    attempt = AttemptView(run_id=RunId("1"), number=1, worker_id=WorkerId("2"))
    stored = StoredObject(
        key="7", kind="checkpoint", name="a", relative_path="models/a", size_bytes=1, sha256=None
    )
    with pytest.raises(Refused):
        await host.record(attempt, stored)
    host.attempts[attempt.run_id] = attempt
    assert await host.record(attempt, stored) == await host.record(attempt, stored) == "7"
    assert list(await host.stored(attempt.run_id)) == [stored]


async def test_a_second_listener_closes_the_first(tmp_path: Path) -> None:
    host = ControlLinkDouble(root=tmp_path)
    first = await host.listen(LinkId("1"))
    assert (await host.listen(LinkId("1"), tcp=True)).address.startswith("127.0.0.1:")
    assert first.closed


async def test_tokens_are_fresh_each_time(tmp_path: Path) -> None:
    host = ControlLinkDouble(root=tmp_path)
    assert await host.token(LinkId("1")) != await host.token(LinkId("1"))


def test_progress_counts_and_stops() -> None:
    progress = ProgressDouble(stop_after=10)
    progress.advance(10)
    with pytest.raises(TransferStopped):
        progress.advance(1)
    assert progress.n_bytes == 11


def test_ids_count_up() -> None:
    ids = CountingIds()
    assert [ids(), ids()] == ["0" * 31 + "1", "0" * 31 + "2"]
