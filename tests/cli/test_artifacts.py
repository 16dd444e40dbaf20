"""``cdui artifacts`` and ``cdui run --download``: what is printed, and what comes onto the disk."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

RUN = "a" * 32


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def row(id_: str, data: bytes | None = b"weights", **more: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "kind": "checkpoint",
        "name": f"{id_}.pt",
        "backend": "transfer",
        "label": None,
        "relative_path": f"checkpoint/{id_}.pt",
        "path": f"/srv/{id_}.pt",
        "size_bytes": None if data is None else len(data),
        "sha256": None if data is None else sha(data),
        "state": "stored",
        "downloadable": True,
        **more,
    }


@dataclass
class Site:
    """A server with artifacts. ``breaks``: after how many bytes each of the next answers breaks off."""

    url: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    warning: str | None = None
    elsewhere: str | None = None
    """Downloads are sent there."""

    def add(self, id_: str, data: bytes = b"weights", **more: Any) -> None:
        self.rows.append(row(id_, data, **more))
        self.files[id_] = data

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path
        if path == "/api/health":
            self._json(request, {"status": "ready", "boot_id": "b1"})
        elif request.command == "DELETE":
            self.deleted.append(path)
            self._json(request, {"deleted": True} | ({"warning": self.warning} if self.warning else {}))
        elif path == f"/api/runs/{RUN}/artifacts":
            self._json(request, self.rows)
        elif found := re.fullmatch(rf"(?:/api/runs/{RUN})?/artifacts/([^/]+)/download", path):
            self._file(request, found[1])
        else:
            self._json(request, {"detail": "There is no such run.", "code": "run.not_found"}, 404)

    def _json(self, request: BaseHTTPRequestHandler, body: Any, status: int = 200) -> None:
        request.send_response(status)
        request.end_headers()
        request.wfile.write(json.dumps(body).encode())

    def _file(self, request: BaseHTTPRequestHandler, id_: str) -> None:
        self.ranges.append(request.headers.get("Range"))
        self.tokens.append(request.headers.get("X-CodefyUI-Token"))
        if self.elsewhere and request.path.startswith("/api/"):
            request.send_response(302)
            request.send_header("Location", f"{self.elsewhere}/artifacts/{id_}/download")
            request.end_headers()
            return
        data = self.files[id_]
        tag = f'"{sha(data)}"'
        start = 0
        if (asked := request.headers.get("Range")) and request.headers.get("If-Range", tag) == tag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        if start > len(data) or (asked and start == len(data)):
            self._json(request, {"detail": "past the end"}, 416)
            return
        request.send_response(206 if start else 200)
        request.send_header("ETag", tag)
        request.send_header("Content-Length", str(len(data) - start))
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        request.end_headers()
        most = self.breaks.pop(0) if self.breaks else len(data)
        request.wfile.write(data[start : start + most])


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made: list[Site] = []

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            made[0].answer(self)

        do_GET = do_DELETE = _serve  # noqa: N815  names that the base class looks for

        def log_message(self, *arguments: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.append(Site(f"http://127.0.0.1:{http.server_port}"))
    user = tmp_path / "user"
    user.mkdir()
    noted = {"pid": 1, "url": made[0].url, "boot_id": "b1", "version": "0.1.0"}
    (user / "server.json").write_text(json.dumps(noted))
    (user / "session.token").write_text("tok\n")
    monkeypatch.setattr("codefyui_core.cli.fetching.RETRY_S", 0)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield made[0]
    http.shutdown()
    http.server_close()


Cdui = Callable[..., Any]


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---------------------------------------------------------------- list, path, delete


def test_artifacts_are_listed_with_where_they_are(site: Site, cdui: Cdui) -> None:
    site.add("a")
    site.rows += [
        row("b", None, kind="tensorboard", name="board"),
        row("c", state="on_worker", path=None, label="lab", name="x\x1b[2J.pt", downloadable=False),
    ]
    ran = cdui("artifacts", "list", RUN)
    assert ran.status == 0
    assert re.search(r"a +checkpoint +a\.pt +7 B +stored +/srv/a\.pt", ran.out)
    assert re.search(r"b +tensorboard +board +folder", ran.out)
    assert "lab:checkpoint/c.pt" in ran.out
    assert "\x1b" not in ran.out
    only = cdui("artifacts", "list", RUN, "--kind", "tensorboard", "--json")
    assert [one["id"] for one in json.loads(only.out)["artifacts"]] == ["b"]


def test_a_file_that_its_backend_could_not_confirm_yet_is_said_to_be_there(
    site: Site, cdui: Cdui, tmp_path: Path
) -> None:
    site.rows.append(row("a", state="arriving", path="/far/a.pt", backend="s3", downloadable=False))
    waits = "the storage backend s3, which couldn't confirm it yet"
    listed = cdui("artifacts", "list", RUN)
    assert re.search(rf"a +checkpoint +a\.pt +7 B +arriving +{waits}", listed.out)
    place = cdui("artifacts", "path", RUN, "a")
    assert place.status == 1
    assert f"a.pt is with {waits}. Ask again in a while." in place.err
    left = cdui("artifacts", "download", RUN, "--all", "-o", str(tmp_path / "out"))
    assert f"not downloaded: a.pt is at {waits}" in left.err


def test_a_run_that_is_not_there_is_said_so(site: Site, cdui: Cdui) -> None:
    ran = cdui("artifacts", "list", "nothing")
    assert (ran.status, "run.not_found" in ran.err) == (1, True)


def test_a_path_is_printed_alone_or_what_is_known_instead(site: Site, cdui: Cdui) -> None:
    site.add("a")
    site.rows.append(row("b", path=None, label="lab"))
    assert cdui("artifacts", "path", RUN, "a.pt").out == "/srv/a.pt\n"
    ran = cdui("artifacts", "path", RUN, "b")
    assert (ran.status, "lab:checkpoint/b.pt" in ran.err) == (1, True)


def test_one_is_deleted_and_a_warning_is_shown(site: Site, cdui: Cdui) -> None:
    site.add("board/0")
    site.warning = "some files stay"
    ran = cdui("artifacts", "delete", RUN, "board/0")
    assert (ran.status, "some files stay" in ran.err) == (0, True)
    assert site.deleted == [f"/api/runs/{RUN}/artifacts/board%2F0"]


@pytest.mark.parametrize(("wanted", "words"), [("x", "no artifact x"), ("a", "more than one")])
def test_what_is_meant_has_to_be_one(site: Site, cdui: Cdui, wanted: str, words: str) -> None:
    site.add("ab")
    site.add("ac")
    ran = cdui("artifacts", "path", RUN, wanted)
    assert (ran.status, words in ran.err) == (1, True)
    assert cdui("artifacts", "path", RUN, "ab").status == 0


# ---------------------------------------------------------------- download


def test_one_comes_under_its_own_name_and_is_checked(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    site.add("a", b"w" * 3_000_000, name="deep/model.pt")
    ran = cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out"))
    assert ran.status == 0
    assert files_in(tmp_path / "out") == {"model.pt": b"w" * 3_000_000}
    assert ran.out == f"{tmp_path / 'out' / 'model.pt'}  2.86 MiB\n"


def test_all_come_apart_by_kind_and_equal_names_get_numbers(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    site.add("a", b"1", name="m.pt")
    site.add("b", b"2", name="m.pt")
    site.add("c", b"3", name="models/m.pt", kind="output")
    site.rows.append(row("d", state="on_worker", path="/far/d.pt", downloadable=False))
    ran = cdui("artifacts", "download", RUN, "--all", "-o", str(tmp_path / "out"), "--json")
    assert ran.status == 0
    assert files_in(tmp_path / "out") == {
        "checkpoint/m.pt": b"1",
        "checkpoint/m-1.pt": b"2",
        "output/models/m.pt": b"3",
    }
    told = json.loads(ran.out)
    assert [one["artifact_id"] for one in told["files"]] == ["a", "b", "c"]
    assert (told["failed"], list(told["elsewhere"])) == ({}, ["d"])


def test_a_folder_comes_as_a_zip(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    site.rows.append(row("a", None, name="board"))
    site.files["a"] = b"PK"
    assert cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out")).status == 0
    assert files_in(tmp_path / "out") == {"board.zip": b"PK"}


def test_a_line_that_breaks_is_taken_up_where_it_broke(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    site.add("a", data)
    site.breaks = [2_000_000, 1_500_000]
    assert cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out")).status == 0
    assert files_in(tmp_path / "out") == {"a.pt": data}
    assert site.ranges == [None, "bytes=2000000-", "bytes=3500000-"]


def test_the_next_command_goes_on_where_the_last_one_ended(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    data = bytes(range(256)) * 20_000
    site.add("a", data)
    site.breaks = [1_000_000, 0, 0, 0, 0, 0]
    ran = cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out"))
    assert (ran.status, "broke off after 1000000 bytes" in ran.err) == (1, True)
    assert "a.pt" not in files_in(tmp_path / "out")
    site.ranges.clear()
    assert cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out")).status == 0
    assert (site.ranges, files_in(tmp_path / "out")) == (["bytes=1000000-"], {"a.pt": data})


def test_a_beginning_of_another_file_is_found_out_and_begun_anew(
    site: Site, cdui: Cdui, tmp_path: Path
) -> None:
    site.add("a", b"x" * 100)
    site.breaks = [50, 0, 0, 0, 0, 0]
    assert cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out")).status == 1
    site.rows.clear()
    site.add("a", b"y" * 100)
    assert cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out")).status == 0
    assert files_in(tmp_path / "out") == {"a.pt": b"y" * 100}


def test_a_file_that_is_not_what_was_recorded_is_not_kept(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    site.add("a", b"weights")
    site.files["a"] = b"another"
    ran = cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out"))
    assert (ran.status, "damaged" in ran.err) == (1, True)
    assert files_in(tmp_path / "out") == {}


def test_the_same_file_is_left_and_another_one_kept_unless_forced(
    site: Site, cdui: Cdui, tmp_path: Path
) -> None:
    site.add("a", b"weights")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.pt").write_bytes(b"mine")
    command = ("artifacts", "download", RUN, "a", "-o", str(out))
    ran = cdui(*command)
    assert (ran.status, "--force" in ran.err, files_in(out)) == (1, True, {"a.pt": b"mine"})
    assert site.ranges == []
    assert cdui(*command, "--force").status == 0
    assert files_in(out) == {"a.pt": b"weights"}
    site.ranges.clear()
    again = cdui(*command)
    assert (again.status, "was here already" in again.out, site.ranges) == (0, True, [])


@pytest.mark.parametrize(
    "name",
    ["../x.pt", "/etc/x.pt", "a\\..\\..\\x.pt", "C:x.pt", "con", "x\0.pt", "a/../../x.pt", "", "x\n.pt"],
)
@pytest.mark.parametrize("apart", [True, False])
def test_a_hostile_name_is_written_nowhere(
    site: Site, cdui: Cdui, tmp_path: Path, name: str, apart: bool
) -> None:
    site.add("a", name=name)
    site.add("b")
    out = tmp_path / "deep" / "out"
    ran = cdui("artifacts", "download", RUN, *(("--all",) if apart else ("a",)), "-o", str(out))
    assert ran.status == 1
    assert "\n.pt" not in ran.err
    left = {path for path in files_in(tmp_path) if not path.startswith("user/")}
    assert left == ({"deep/out/checkpoint/b.pt"} if apart else set())


def test_a_hostile_kind_is_written_nowhere(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    site.add("a", kind="../..")
    assert cdui("artifacts", "download", RUN, "--all", "-o", str(tmp_path / "out")).status == 1
    assert not (tmp_path / "out").exists()


def test_a_link_in_the_folder_is_not_written_through(site: Site, cdui: Cdui, tmp_path: Path) -> None:
    site.add("a")
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "checkpoint").symlink_to(tmp_path / "elsewhere")
    ran = cdui("artifacts", "download", RUN, "--all", "-o", str(tmp_path / "out"))
    assert (ran.status, files_in(tmp_path / "elsewhere")) == (1, {})


@pytest.mark.spec("s3/download-presign-redirects")
def test_a_file_that_is_elsewhere_is_fetched_there_without_the_token(
    site: Site, cdui: Cdui, tmp_path: Path
) -> None:
    site.add("a", b"w" * 100)
    site.elsewhere = site.url
    site.breaks = [40]
    assert cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out")).status == 0
    assert files_in(tmp_path / "out") == {"a.pt": b"w" * 100}
    assert site.tokens == ["tok", None, "tok", None]
    assert site.ranges == [None, None, "bytes=40-", "bytes=40-"]


@pytest.mark.parametrize("address", ["file:///etc", "ftp://host"])
def test_only_web_addresses_are_followed(site: Site, cdui: Cdui, tmp_path: Path, address: str) -> None:
    site.add("a")
    site.elsewhere = address
    ran = cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out"))
    assert (ran.status, "no web address" in ran.err) == (1, True)


@pytest.mark.parametrize("words", [(), ("a", "--all")])
def test_one_or_all_has_to_be_said(site: Site, cdui: Cdui, words: tuple[str, ...]) -> None:
    assert cdui("artifacts", "download", RUN, *words).status == 2


def test_a_terminal_sees_how_far_each_file_is(
    site: Site, cdui: Cdui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("codefyui_core.cli.artifacts.sys", terminal)
    site.add("a", b"w" * 3_000_000, name="t[red]rain.pt")
    ran = cdui("artifacts", "download", RUN, "a", "-o", str(tmp_path / "out"), "--json")
    assert "t[red]rain.pt" in ran.err
    assert json.loads(ran.out)["files"][0]["size_bytes"] == 3_000_000


# ---------------------------------------------------------------- cdui run --download


def test_a_run_brings_its_artifacts_home_when_it_has_ended(
    site: Site, cdui: Cdui, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add("a")
    monkeypatch.setattr("codefyui_core.cli.run.submit", lambda *_, **__: RUN)
    ended = {"id": RUN, "status": "succeeded", "last_cursor": 0}
    monkeypatch.setattr("codefyui_core.cli.run.follow", lambda *_, **__: ended)
    graph = tmp_path / "g.json"
    graph.write_text('{"nodes": [], "edges": []}')
    ran = cdui("run", str(graph), "--download", str(tmp_path / "out"))
    assert (ran.status, ran.out.splitlines()[-1]) == (0, f"run {RUN} succeeded")
    assert files_in(tmp_path / "out") == {"checkpoint/a.pt": b"weights"}
    site.add("b", name="../b")
    assert cdui("run", str(graph), "--download", str(tmp_path / "out")).status == 1


def test_a_run_that_nobody_waits_for_downloads_nothing(cdui: Cdui, tmp_path: Path) -> None:
    graph = tmp_path / "g.json"
    graph.write_text('{"nodes": [], "edges": []}')
    assert cdui("run", str(graph), "--detach", "--download", str(tmp_path / "out")).status == 2
