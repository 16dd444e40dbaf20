"""Files over HTTP between a real server and real agents that share no folder with it."""

import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from e2e_site import Process, Site, graph, wait_for

from cdui_faults.proxy import Proxy
from codefyui_core.cli.errors import CodefyError

pytestmark = pytest.mark.service

KIB, MIB = 1024, 1 << 20
LIMIT = 4 * MIB
SETTINGS = {
    "CODEFYUI_PLUGINS_BLOCK": "nodes_torch,storage_mount,storage_s3",
    "CODEFYUI_MAX_UPLOAD_SIZE": str(LIMIT),
    "CODEFYUI_TRANSFER_CHUNK_BYTES": str(3 * MIB // 2),
    "CODEFYUI_WORKER_RESUME_GRACE_S": "24",  # a try waits for a quarter of it at most
    "CODEFYUI_RUN_RETENTION_KEEP_LAST": "-1",
}


def content(seed: int, n_bytes: int) -> bytes:
    """What the node writes."""
    return random.Random(seed).randbytes(n_bytes)


def agent(site: Site, name: str, *words: str, **env: str) -> Process:
    """On a machine of its own, with a data folder of its own."""
    return site.start_agent(
        name,
        *words,
        elsewhere=True,
        CODEFYUI_DATA_DIR=str(site.root / f"own-{name}"),
        CODEFYUI_CUSTOM_NODES_DIR=str(site.data / "custom_nodes"),
        **env,
    )


def carry(site: Site, *steps: Any, file: str = "", target: Any = "far") -> str:
    document = graph("TrialCarry", {"file": file, "steps": json.dumps(steps)})
    return site.submit(document, target=target)


def artifacts(site: Site, run_id: str) -> dict[str, dict[str, Any]]:
    """By the last part of their names."""
    return {row["name"].rpartition("/")[2]: row for row in site.get(f"/api/runs/{run_id}/artifacts")}


def download(site: Site, run_id: str, row: dict[str, Any]) -> bytes:
    path = f"/api/runs/{run_id}/artifacts/{row['id']}/download"
    return b"".join(site.api().fetch(path).pieces)


def told(site: Site, run_id: str, kind: str) -> list[str]:
    return [
        event["payload"]["detail"]
        for event in site.events(run_id)
        if event["type"] == "run_warning" and event["payload"]["kind"] == kind
    ]


def logged(site: Site, run_id: str) -> str:
    events = [event for event in site.events(run_id) if event["type"] == "log"]
    return "\n".join(line for event in events for line in event["payload"]["lines"])


def parts(site: Site) -> list[Path]:
    """Unfinished files on the server."""
    return list(site.data.rglob(".cdui-*.part"))


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server, and a worker named far that shares nothing with it."""
    site = Site(root=tmp_path_factory.mktemp("far"), settings=dict(SETTINGS))
    try:
        site.start_server()
        site.keep_port()
        (site.data / "files").mkdir(exist_ok=True)
        (site.data / "files" / "train.csv").write_text("1,2,3")
        agent(site, "far")
        yield site
    finally:
        site.aclose()


@pytest.fixture(scope="module")
def carried(far: Site) -> str:
    """A run that read an upload, recorded a checkpoint and a folder, wrote outputs, and wrote over its input."""
    (far.data / "models").mkdir(exist_ok=True)
    (far.data / "models" / "best.pt").write_bytes(b"mine")
    (far.data / "models" / "same.pt").write_bytes(content(4, 1000))
    run_id = carry(
        far,
        ("read",),
        ("write", "models/deep/epoch-1.pt", 1, 3 * MIB),
        ("record", "checkpoint", "models/deep/epoch-1.pt", {"epoch": 1}),
        ("write", "output/board/train/events.0", 2, 5000),
        ("write", "output/board/empty", 2, 0),
        ("record", "tensorboard", "output/board", None),
        ("write", "models/best.pt", 3, 2000),
        ("write", "models/same.pt", 4, 1000),
        ("write", "media/clip é #1.mp4", 5, 3000),
        ("write", "files/notes.txt", 6, 10),
        ("write", "files/train.csv", 7, 20),
        file="train.csv",
    )
    far.wait_status(run_id, "succeeded")
    return run_id


@pytest.mark.spec(
    "transfer/used-when-named-worker-lacks-mount",
    "transfer/download-routes-and-worker-token",
    "transfer/plain-http-sends-files-unencrypted",
    "placement/named-non-mount-worker-takes-uploads-run-by-transfer",
)
def test_an_upload_gets_to_the_worker_and_into_a_folder_of_the_runs_own(far: Site, carried: str) -> None:
    own = far.root / "agent-far" / "agent-runs" / carried / "data" / "files" / "train.csv"
    assert f"read 1,2,3 from {own}" in logged(far, carried)
    assert told(far, carried, "transfer_progress")[0] == "fetching inputs 1/1: train.csv (5 B, fetched)"
    assert [path for path in (far.root / "own-far").rglob("*") if path.is_file()] == []


@pytest.mark.spec(
    "transfer/recorded-artifact-path-on-control-plane",
    "transfer/artifacts-list-backend-transfer",
    "transfer/artifact-download-route",
)
def test_what_a_run_records_lies_below_its_kind_on_the_server(far: Site, carried: str) -> None:
    row = artifacts(far, carried)["epoch-1.pt"]
    own = far.data / "runs" / carried
    assert (row["backend"], row["kind"], row["meta"]) == ("transfer", "checkpoint", {"epoch": 1})
    assert Path(row["path"]).is_relative_to(own / "checkpoint")
    assert row["node_id"] == "node"
    data = content(1, 3 * MIB)
    assert Path(row["path"]).read_bytes() == download(far, carried, row) == data
    assert row["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.spec("transfer/tensorboard-folder-file-by-file")
def test_a_recorded_folder_keeps_its_layout(far: Site, carried: str) -> None:
    board = far.data / "runs" / carried / "tensorboard"
    found = {
        path.relative_to(board).as_posix(): path.read_bytes() for path in board.rglob("*") if path.is_file()
    }
    assert {name.partition("/")[2]: data for name, data in found.items()} == {
        "train/events.0": content(2, 5000),
        "empty": b"",
    }


@pytest.mark.spec(
    "transfer/other-written-files-uploaded-after-run",
    "transfer/writer-output-placed-where-local-run-writes",
    "transfer/name-collision-keeps-existing-and-adds-suffix",
    "transfer/identical-content-not-stored-twice",
    "transfer/writer-outputs-have-kind-output",
    "transfer/overwritten-input-is-uploaded",
)
def test_what_a_run_writes_is_placed_where_a_local_run_writes_it(far: Site, carried: str) -> None:
    outputs = {
        row["relative_path"]: row for row in artifacts(far, carried).values() if row["kind"] == "output"
    }
    assert {path: Path(row["path"]).read_bytes() for path, row in outputs.items()} == {
        "models/best-1.pt": content(3, 2000),
        "models/same.pt": content(4, 1000),
        "media/clip é #1.mp4": content(5, 3000),
        "files/train-1.csv": content(7, 20),
    }
    assert (far.data / "models" / "best.pt").read_bytes() == b"mine"
    assert (far.data / "files" / "train.csv").read_text() == "1,2,3"
    assert {path.name for path in (far.data / "models").iterdir()} == {"best.pt", "best-1.pt", "same.pt"}
    for row in outputs.values():
        assert download(far, carried, row) == Path(row["path"]).read_bytes()


@pytest.mark.spec("transfer/outputs-uploaded-before-end-is-reported")
def test_the_end_of_a_run_comes_after_its_files(far: Site, carried: str) -> None:
    types = [event["type"] for event in far.events(carried)]
    assert types.index("execution_complete") == len(types) - 1
    assert types.count("artifact") == len(artifacts(far, carried))
    assert parts(far) == []


@pytest.mark.spec(
    "transfer/cached-input-not-downloaded-again",
    "transfer/progress-says-cached",
    "transfer/agent-cache-location-and-name",
)
def test_an_input_is_fetched_once(far: Site, carried: str) -> None:
    cache = far.root / "agent-far" / "agent-cache"
    assert (cache / hashlib.sha256(b"1,2,3").hexdigest()).read_bytes() == b"1,2,3"
    (far.data / "files" / "again.csv").write_text("1,2,3")
    run_id = carry(far, ("read",), file="again.csv")
    far.wait_status(run_id, "succeeded")
    assert told(far, run_id, "transfer_progress") == ["fetching inputs 1/1: again.csv (5 B, cached)"]


@pytest.mark.spec(
    "transfer/oversize-output-stays-on-worker",
    "transfer/undelivered-file-listed-at-worker-path",
    "transfer/undelivered-file-warns-transfer-failed",
)
def test_a_file_over_the_limit_stays_on_the_worker_and_the_run_succeeds(far: Site) -> None:
    run_id = carry(far, ("write", "models/huge.pt", 1, LIMIT + 1), ("write", "models/fits.pt", 2, LIMIT))
    far.wait_status(run_id, "succeeded")
    huge, fits = (artifacts(far, run_id)[name] for name in ("huge.pt", "fits.pt"))
    assert huge["state"] == "on_worker"
    assert huge["path"].startswith(str(far.root / "agent-far"))
    assert Path(huge["path"]).stat().st_size == LIMIT + 1
    assert download(far, run_id, fits) == content(2, LIMIT)
    (warning,) = told(far, run_id, "transfer_failed")
    assert "huge.pt" in warning
    assert "CODEFYUI_MAX_UPLOAD_SIZE" in warning


@pytest.mark.spec(
    "transfer/interrupt-checkpoint-uploaded-last", "transfer/cancelled-run-can-resume-from-control-plane"
)
def test_a_cancelled_run_has_its_resume_point_on_the_server(far: Site) -> None:
    run_id = carry(
        far,
        ("write", "models/a.pt", 1, MIB),
        (
            "hold",
            str(far.root / "never"),
            ("write", "models/interrupt.pt", 2, MIB),
            ("record", "checkpoint", "models/interrupt.pt", {"interrupted": True}),
        ),
    )
    wait_for(lambda: "holding" in logged(far, run_id), 60, "the run to hold")
    far.post(f"/api/runs/{run_id}/cancel")
    far.wait_status(run_id, "cancelled")
    listed = far.get(f"/api/runs/{run_id}/artifacts")
    assert [row["name"].rpartition("/")[2] for row in listed] == ["a.pt", "interrupt.pt"]
    assert listed[-1]["path"].startswith(str(far.data / "runs" / run_id / "checkpoint"))
    assert download(far, run_id, listed[-1]) == content(2, MIB)


@pytest.mark.spec("transfer/uploads-do-not-block-the-run")
def test_a_file_is_listed_while_the_run_goes_on(far: Site) -> None:
    go_on = far.root / "go-on"
    run_id = carry(
        far,
        ("write", "models/e.pt", 1, 1000),
        ("record", "checkpoint", "models/e.pt", None),
        ("hold", str(go_on)),
    )
    row = wait_for(lambda: artifacts(far, run_id).get("e.pt"), 60, "the checkpoint to be listed")
    assert download(far, run_id, row) == content(1, 1000)
    assert far.run(run_id)["status"] == "running"
    go_on.touch()
    far.wait_status(run_id, "succeeded")


@pytest.mark.spec("transfer/delete-removes-run-folder", "transfer/placed-outputs-survive-clean-up")
def test_a_deleted_run_takes_its_folder_along_and_leaves_what_was_placed(far: Site) -> None:
    run_id = carry(
        far,
        ("write", "models/c.pt", 1, 100),
        ("record", "checkpoint", "models/c.pt", None),
        ("write", "output/kept.bin", 2, 100),
    )
    far.wait_status(run_id, "succeeded")
    assert (far.data / "runs" / run_id).is_dir()
    far.api().call("DELETE", f"/api/runs/{run_id}")
    assert not (far.data / "runs" / run_id).exists()
    assert (far.data / "output" / "kept.bin").read_bytes() == content(2, 100)


@pytest.mark.spec("transfer/refuse-upload-server-lacks")
def test_an_upload_that_is_not_there_is_refused_when_a_run_is_submitted(far: Site) -> None:
    with pytest.raises(CodefyError, match="make the run fit the transfer backend") as refused:
        carry(far, ("read",), file="absent.csv")
    assert "absent.csv" in str(refused.value)


# ------------------------------------------------------------ a worker that means harm


def credential(site: Site, name: str) -> str:
    (file,) = (site.root / f"agent-{name}" / "agent").glob("*.token")
    return str(json.loads(file.read_text())["credential"])


def post(site: Site, run_id: str, data: bytes, **params: str) -> tuple[int, dict[str, Any]]:
    """As a person's own script with a worker's credential would."""
    query = urllib.parse.urlencode({"kind": "checkpoint", "name": "x.pt"} | params)
    request = urllib.request.Request(
        f"{site.url}/api/runs/{run_id}/artifacts/upload?{query}",
        data=data,
        headers={"Authorization": f"Bearer {credential(site, 'far')}"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def tree(site: Site) -> set[Path]:
    """Every file near the server's data, but for its own and its database's."""
    return {path for path in site.data.rglob("*") if path.is_file()} | set(site.root.glob("*"))


@pytest.mark.spec("transfer/same-address-and-worker-token", "trust/worker-may-write-outputs")
def test_an_enrolled_worker_writes_for_its_own_runs_and_there_alone(far: Site, carried: str) -> None:
    go_on = far.root / "go-on-2"
    run_id = carry(far, ("hold", str(go_on)))
    wait_for(lambda: "holding" in logged(far, run_id), 60, "the run to hold")
    before = tree(far)
    names = ["../x", "..\\x", "/etc/x", "C:/x", "\\\\h\\s\\x", "a\0b", "x" * 300, "a/../../../x", "..", "con"]
    for name in names:
        for params in ({"name": name}, {"kind": "output", "relative_path": f"models/{name}"}):
            if params.get("relative_path") != "models//etc/x":
                assert post(far, run_id, b"x", **params)[0] == 400, params
    for params in (
        {"kind": ".."},
        {"kind": "a/b"},
        {"kind": "output", "relative_path": "custom_nodes/evil.py"},
        {"kind": "output", "relative_path": "graphs/evil.json"},
    ):
        assert post(far, run_id, b"x", **params)[0] == 400, params
    assert post(far, carried, b"x")[0] == 403, "a run that it no longer holds"
    assert post(far, "0" * 32, b"x")[0] == 403, "a run that there never was"
    assert post(far, run_id, bytes(LIMIT + 1))[0] == 413
    assert tree(far) == before
    status, answer = post(far, run_id, b"mine", name="a#b?c;d%2e%2e.pt")
    assert status == 200, answer
    row = artifacts(far, run_id)["a#b?c;d%2e%2e.pt"]
    assert Path(row["path"]).read_bytes() == b"mine"
    go_on.touch()
    far.wait_status(run_id, "succeeded")
    assert post(far, run_id, b"late")[0] in {403, 410}
    assert tree(far) - before == {go_on, Path(row["path"])}


# ------------------------------------------------------------ kills, and a proxy


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


NGINX = """
daemon off; error_log {root}/error.log info; pid {root}/nginx.pid; worker_processes 1;
events {{ worker_connections 64; }}
http {{
  client_body_temp_path {root}/b; proxy_temp_path {root}/p; fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;
  log_format told '$status $request_method $uri $http_authorization';
  access_log {root}/access.log told;
  map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass {upstream}; proxy_http_version 1.1; proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
    }}
  }}
}}
"""


@contextmanager
def nginx(site: Site) -> Iterator[tuple[str, Path]]:
    """The address of an nginx in front of the server, with its default limits, and its folder."""
    root = site.root / "proxy"
    root.mkdir()
    port = free_port()
    (root / "nginx.conf").write_text(NGINX.format(root=root, port=port, upstream=site.url))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    command = [program, "-c", str(root / "nginx.conf"), "-p", str(root), "-e", str(root / "error.log")]
    if os.geteuid() == 0:
        command += ["-g", "user root;"]
    process = subprocess.Popen(command)
    try:
        wait_for((root / "nginx.pid").exists, 20, "nginx")
        yield f"http://127.0.0.1:{port}", root
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.needs("nginx")
@pytest.mark.spec("transfer/same-address-and-worker-token", "transfer/retry-when-control-plane-unreachable")
def test_a_proxy_with_default_limits_and_a_server_that_dies_behind_it_cost_no_file(far: Site) -> None:
    with nginx(far) as (address, root):
        agent(far, "proxied", "--control", address)
        (far.data / "files" / "through.csv").write_text("4,5,6")
        go_on = far.root / "go-on-3"
        run_id = carry(
            far,
            ("read",),
            ("write", "models/p.pt", 1, 3 * MIB),
            ("record", "checkpoint", "models/p.pt", None),
            ("hold", str(go_on)),
            ("write", "output/q.bin", 2, 3 * MIB),
            file="through.csv",
            target="proxied",
        )
        row = wait_for(lambda: artifacts(far, run_id).get("p.pt"), 60, "the checkpoint to be listed")
        assert download(far, run_id, row) == content(1, 3 * MIB)
        assert far.server is not None
        far.server.kill()
        go_on.touch()
        log = root / "access.log"
        wait_for(
            lambda: "502 POST" in log.read_text() or "502 GET" in log.read_text(), 60, "the proxy to say 502"
        )
        far.start_server()
        far.wait_status(run_id, "succeeded")
        rows = artifacts(far, run_id)
        assert download(far, run_id, rows["p.pt"]) == content(1, 3 * MIB)
        assert download(far, run_id, rows["q.bin"]) == content(2, 3 * MIB)
        assert told(far, run_id, "transfer_failed") == []
        lines = log.read_text().splitlines()
    assert [line for line in lines if line.startswith("413 POST")], "the default limit of 1 MB was met"
    files = [line for line in lines if "/upload " in line or "/inputs/parcel " in line]
    assert {line.rpartition(" ")[2] for line in files} == {credential(far, "proxied")}
    assert [line for line in files if f"POST /api/runs/{run_id}/inputs/parcel" in line]


@pytest.mark.spec("transfer/downloaded-input-hash-verified")
def test_a_wrong_byte_on_the_way_never_reaches_a_run(far: Site) -> None:
    data = content(9, 8 * MIB)
    (far.data / "files" / "large.csv").write_bytes(data)
    proxy = Proxy(int(far.url.rpartition(":")[2]))
    try:
        shaky = agent(far, "shaky", "--control", f"http://127.0.0.1:{proxy.open('line')}")
        line = proxy.lines["line"]
        proxy.do("line", lambda line: setattr(line, "rate", 4.0 * MIB))
        run_id = carry(far, ("write", "models/ok.bin", 1, 10), file="large.csv", target="shaky")
        cache = far.root / "agent-shaky" / "agent-cache"

        def under_way() -> bool:
            return any(path.stat().st_size > MIB for path in cache.rglob("*") if path.is_file())

        wait_for(under_way, 60, "the input to be under way")
        proxy.do("line", lambda line: setattr(line, "corrupt", 1))
        wait_for(lambda: line.corrupted, 60, "a byte to be wrong")
        proxy.do("line", lambda line: setattr(line, "rate", 0.0))
        far.wait_status(run_id, "succeeded")
        assert (cache / hashlib.sha256(data).hexdigest()).read_bytes() == data
        placed = far.root / "agent-shaky" / "agent-runs" / run_id / "data" / "files" / "large.csv"
        assert placed.read_bytes() == data
        assert "large.csv" in shaky.said(), "it says what it fetched again"
        shaky.terminate()
    finally:
        proxy.close()


@pytest.mark.spec("restart/transfer-uploads-continue", "restart/transfer-received-files-stay")
@pytest.mark.parametrize("killed", ["server", "agent"])
def test_whoever_is_killed_while_files_travel_each_listed_one_is_whole(far: Site, killed: str) -> None:
    site = far
    names = {f"{killed}-{n}.bin": (n, 200 * KIB + n) for n in range(12)}
    names |= {f"{killed}-large-{n}.bin": (n, LIMIT) for n in range(4)}
    steps = [("write", f"output/{name}", seed, size) for name, (seed, size) in names.items()]
    run_id = carry(site, *steps)
    listed: set[str] = set()
    for n_listed in (1, 7):
        wait_for(lambda n=n_listed: len(artifacts(site, run_id)) >= n, 60, f"{n_listed} files to be listed")
        if killed == "server":
            assert site.server is not None
            site.server.kill()
            site.start_server()
        else:
            next(one for one in reversed(site.processes) if one.log.name.startswith("agent-far")).kill()
            agent(site, "far")
        assert listed <= artifacts(site, run_id).keys(), "what was received stays"
        listed = set(artifacts(site, run_id))
    site.wait_status(run_id, "succeeded")
    rows = artifacts(site, run_id)
    assert rows.keys() == names.keys()
    for name, (seed, size) in names.items():
        assert download(site, run_id, rows[name]) == content(seed, size), name
    assert told(site, run_id, "transfer_failed") == []
    wait_for(lambda: not parts(site), 20, "nothing unfinished to be left")
