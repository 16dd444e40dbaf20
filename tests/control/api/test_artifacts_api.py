"""Artifacts: listed with what can be fetched, sent whole and in parts, deleted one by one."""

import asyncio
import io
import os
import zipfile
from urllib.parse import quote

import pytest

from codefyui_core.errors import Busy, Refused
from codefyui_core.plugin.storage import (
    Arriving,
    DiscardReason,
    LocalFile,
    Place,
    Redirect,
    Stream,
)

SHA = "a" * 64


class Crate:
    """A storage backend whose bytes are in memory; it notes who closed what."""

    def __init__(self, data=b"0123456789"):
        self.data = data
        self.spans = []
        self.given = 0
        self.closed = 0
        self.orders = []
        self.failure = None
        self.downloadable = True

    def place(self, stored):
        return Place(path=f"crate://{stored.relative_path}", downloadable=self.downloadable)

    async def read(self, stored, span):
        self.spans.append(span)
        first, last = span or (0, None)
        return Stream(size_bytes=len(self.data[first:last]), chunks=self._chunks(self.data[first:last]))

    async def _chunks(self, data):
        try:
            for place in range(0, len(data), 65536):
                self.given += 1
                yield data[place : place + 65536]
        finally:
            self.closed += 1

    async def discard(self, order):
        self.orders.append(order)
        if self.failure is not None:
            raise self.failure


@pytest.fixture
def crate(app):
    made = app.plane.halves.stores["crate"] = Crate()
    return made


async def recorded(app, *, end=True, **payload):
    """A run with one artifact."""
    run_id, process = await app.running()
    said = {
        "artifact_id": "art-1",
        "kind": "checkpoint",
        "name": "e3.pt",
        "relative_path": "models/e3.pt",
        "backend": "crate",
        "size_bytes": 10,
        "sha256": SHA,
        "state": "stored",
    }
    process.say("artifact", **said | payload)
    if end:
        process.finish()
        await app.row_when(run_id, active=False)
    else:
        await app.row_when(run_id, last_cursor=2)
    return run_id


def path_of(run_id, artifact_id="art-1"):
    return f"/api/runs/{run_id}/artifacts/{quote(artifact_id, safe='')}"


async def the_row(app, run_id):
    (row,) = (await app.get(f"/api/runs/{run_id}/artifacts")).json
    return row


# ---------------------------------------------------------------- listing


@pytest.mark.parametrize(
    ("state", "path", "downloadable", "shown"),
    [
        ("stored", None, True, "crate://models/e3.pt"),
        ("stored", None, False, "crate://models/e3.pt"),
        ("on_worker", "/far/e3.pt", False, "/far/e3.pt"),
        ("arriving", "/far/e3.pt", False, "/far/e3.pt"),
        ("missing", None, False, None),
    ],
)
async def test_a_row_says_whether_it_can_be_fetched(app, crate, state, path, downloadable, shown):
    crate.downloadable = downloadable
    row = await the_row(app, await recorded(app, state=state, path=path))
    assert (row["state"], row["downloadable"], row["path"]) == (state, downloadable, shown)


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"state": "on_worker", "path": "/far/e3.pt"}, ["on worker", "/far/e3.pt"]),
        ({"state": "missing"}, ["gone"]),
        ({"backend": "s3"}, ["s3", "isn't on", "cdui plugin list"]),
    ],
)
async def test_what_is_not_here_is_said_to_be_where_it_is(app, crate, payload, words):
    answer = await app.get(f"{path_of(await recorded(app, **payload))}/download")
    detail = answer.refused(409, "artifact.not_here")["detail"]
    assert all(word in detail for word in words)


@pytest.mark.parametrize(
    ("backend", "words"),
    [
        ("crate", ["e3.pt", "storage backend crate", "goes on asking", "try again"]),
        ("s3", ["e3.pt", "s3", "isn't on", "cdui plugin list"]),
    ],
)
async def test_what_its_backend_could_not_confirm_yet_is_to_be_asked_for_again(app, crate, backend, words):
    answer = await app.get(f"{path_of(await recorded(app, state='arriving', backend=backend))}/download")
    detail = answer.refused(503, "artifact.arriving")["detail"]
    assert all(word in detail for word in words)


# ---------------------------------------------------------------- downloads


@pytest.mark.spec("s3/download-proxied-by-default")
async def test_bytes_from_elsewhere_have_a_tag_by_their_content_and_go_on_with_it(app, crate):
    path = f"{path_of(await recorded(app))}/download"
    whole = await app.get(path)
    assert (whole.status, whole.body, whole.headers["ETag"]) == (200, b"0123456789", f'"{SHA}"')
    rest = await app.get(path, headers={"Range": "bytes=4-", "If-Range": f'"{SHA}"'})
    assert (rest.status, rest.body, rest.headers["Content-Range"]) == (206, b"456789", "bytes 4-9/10")
    other = await app.get(path, headers={"Range": "bytes=4-", "If-Range": '"another"'})
    assert (other.status, other.body) == (200, b"0123456789")
    assert crate.spans == [None, (4, None), None]


async def test_a_range_past_the_end_is_refused_and_its_source_closed(app, crate, until):
    path = f"{path_of(await recorded(app))}/download"

    class Source:
        closed = False

        def __aiter__(self):
            return self

        async def __anext__(self):
            raise StopAsyncIteration

        async def aclose(self):
            self.closed = True

    source = Source()

    async def read(stored, span):
        return Stream(size_bytes=0, chunks=source)

    crate.read = read
    assert (await app.get(path, headers={"Range": "bytes=10-"})).status == 416
    assert source.closed


async def test_a_client_that_leaves_ends_the_reading(app, crate, until):
    crate.data = bytes(64 << 20)
    path = f"{path_of(await recorded(app, size_bytes=len(crate.data)))}/download"
    async with app.client.get(path) as response:
        await response.content.readexactly(1000)
    await until(lambda: crate.closed)
    assert crate.given < 1024


async def test_a_local_file_goes_on_only_while_it_is_the_same(app):
    file = app.plane.install.data / "models" / "e3.pt"
    file.write_bytes(b"0123456789")
    path = f"{path_of(await recorded(app, backend='local'))}/download"
    tag = (await app.get(path)).headers["ETag"]
    part = {"Range": "bytes=4-", "If-Range": tag}
    rest = await app.get(path, headers=part)
    assert (rest.status, rest.body) == (206, b"456789")
    file.write_bytes(b"another one")
    whole = await app.get(path, headers=part)
    assert (whole.status, whole.body) == (200, b"another one")


@pytest.mark.parametrize(
    "name", ["gr\u00f6\u00dfe \u30e2\u30c7\u30eb.pt", 'a"b;c.pt', "a\r\nX-Evil: 1.pt", "\ud800.pt"]
)
async def test_a_name_with_any_characters_is_sent(app, crate, name):
    answer = await app.get(f"{path_of(await recorded(app, name=name))}/download")
    assert answer.status == 200
    assert "X-Evil" not in answer.headers
    shown = answer.headers["Content-Disposition"]
    assert shown.startswith('attachment; filename="')
    if name.startswith("gr"):
        assert shown.endswith(f"filename*=UTF-8''{quote(name)}")


async def test_an_id_with_a_slash_is_found(app, crate):
    run_id = await recorded(app, artifact_id="board/0")
    assert (await app.get(f"{path_of(run_id, 'board/0')}/download")).body == b"0123456789"


async def test_a_folder_comes_as_a_zip_without_what_links_lead_to(app):
    folder = app.plane.install.data / "output" / "board"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "events").write_bytes(b"e" * 3_000_000)
    (folder / "empty").touch()
    os.utime(folder / "empty", (0, 0))
    (folder / "link").symlink_to(app.plane.install.user_data)
    said = {"backend": "local", "name": "board", "relative_path": "output/board", "size_bytes": None}
    run_id = await recorded(app, **said)
    assert (await the_row(app, run_id))["downloadable"]
    answer = await app.get(f"{path_of(run_id)}/download")
    assert 'filename="board.zip"' in answer.headers["Content-Disposition"]
    archive = zipfile.ZipFile(io.BytesIO(answer.body))
    assert archive.testzip() is None
    assert {info.filename: info.file_size for info in archive.infolist()} == {
        "train/events": 3_000_000,
        "empty": 0,
    }


async def test_a_client_that_leaves_ends_the_making_of_a_zip(app, monkeypatch, until):
    folder = app.plane.install.data / "output" / "board"
    folder.mkdir(parents=True)
    made, closed = [], []

    def endless(_folder):
        try:
            while True:
                made.append(1)
                yield bytes(1 << 20)
        finally:
            closed.append(True)

    monkeypatch.setattr("codefyui_core.control.api.sending.zipped", endless)
    said = {"backend": "local", "name": "board", "relative_path": "output/board", "size_bytes": None}
    async with app.client.get(f"{path_of(await recorded(app, **said))}/download") as response:
        await response.content.readexactly(1000)
    await until(lambda: closed)
    assert len(made) < 200


async def test_a_link_in_place_of_a_file_is_not_followed(app, crate, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link = tmp_path / "link"
    link.symlink_to(secret)

    async def read(stored, span):
        return LocalFile(path=link)

    crate.read = read
    answer = await app.get(f"{path_of(await recorded(app))}/download")
    assert answer.refused(400, "files.bad_name")
    assert answer.body != b"secret"


# ---------------------------------------------------------------- deleting


async def test_one_artifact_of_an_ended_run_is_deleted_whatever_its_kind(app, crate):
    run_id = await recorded(app, kind="output")
    answer = await app.ask("DELETE", path_of(run_id))
    assert (answer.status, answer.json) == (
        200,
        {"run_id": run_id, "artifact_id": "art-1", "deleted": True},
    )
    (order,) = crate.orders
    assert (order.why, [one.key for one in order.stored]) == (DiscardReason.ARTIFACT, ["art-1"])
    assert "output" not in order.keep_kinds
    assert (await app.get(f"/api/runs/{run_id}/artifacts")).json == []
    events = (await app.get(f"/api/runs/{run_id}/events")).json["events"]
    assert "artifact" in [event["type"] for event in events]
    (await app.ask("DELETE", path_of(run_id))).refused(404, "artifact.not_found")


async def test_of_a_run_that_goes_on_nothing_is_deleted(app, crate):
    run_id = await recorded(app, end=False)
    (await app.ask("DELETE", path_of(run_id))).refused(409, "run.active")
    assert crate.orders == []
    assert (await the_row(app, run_id))["state"] == "stored"


@pytest.mark.parametrize("failure", [Busy("the bucket is away"), Refused("no right"), RuntimeError("a bug")])
async def test_bytes_that_stay_are_a_warning_and_the_row_goes(app, crate, failure):
    crate.failure = failure
    run_id = await recorded(app)
    answer = await app.ask("DELETE", path_of(run_id))
    assert str(failure) in answer.json["warning"]
    assert (await app.get(f"/api/runs/{run_id}/artifacts")).json == []


async def test_what_is_on_a_worker_stays_there_and_its_backend_is_not_asked(app, crate):
    run_id = await recorded(app, state="on_worker", path="/far/e3.pt")
    assert "/far/e3.pt" in (await app.ask("DELETE", path_of(run_id))).json["warning"]
    assert crate.orders == []


async def test_a_backend_that_is_off_is_a_warning(app):
    answer = await app.ask("DELETE", path_of(await recorded(app)))
    assert "crate" in answer.json["warning"]


async def test_there_is_nothing_to_delete_of_a_run_that_is_not_there(app):
    (await app.ask("DELETE", path_of("0" * 32))).refused(404, "run.not_found")


async def test_a_local_file_goes_with_its_artifact(app):
    file = app.plane.install.data / "models" / "e3.pt"
    file.write_bytes(b"0123456789")
    sha256 = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882"
    run_id = await recorded(app, backend="local", sha256=sha256)
    assert (await app.ask("DELETE", path_of(run_id))).json["deleted"]
    assert not await asyncio.to_thread(file.exists)


async def test_what_came_in_half_goes_with_its_run_whichever_backend_had_it(app):
    run_id = await app.finished()
    folder = app.plane.install.run_files
    file = Arriving(run_id=run_id, key="k", folder=folder, name=f"{run_id}/checkpoint/e3.pt")

    async def chunks():
        yield b"half"

    await app.plane.receiving.append(file, 0, chunks())
    assert len(list(folder.iterdir())) == 1
    assert (await app.ask("DELETE", f"/api/runs/{run_id}")).json == {"run_id": run_id, "deleted": True}
    assert list(folder.iterdir()) == []


@pytest.mark.spec("s3/download-presign-redirects")
async def test_a_browser_is_sent_to_a_bucket_each_time_anew(app, crate):
    async def read(stored, span):
        return Redirect(url="https://bucket.example/x?sig=1")

    crate.read = read
    answer = await app.get(f"{path_of(await recorded(app))}/download", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (302, "https://bucket.example/x?sig=1")
    assert answer.headers["Cache-Control"] == "no-store"
