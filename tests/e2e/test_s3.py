"""Files of runs through a bucket: a real S3 server, a server, and agents as on other machines."""

import hashlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from e2e_site import Process, Site, graph, wait_for

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from cdui_develop.seaweedfs import ACCESS_KEY_ID, ROLE_ARN, SECRET_ACCESS_KEY, SeaweedFS
from codefyui_core.errors import CodefyError

pytestmark = pytest.mark.service

NODES = """
import json
import os
import sys
import time
from pathlib import Path

from codefyui_core.plugin import DataType, Family, Node, Param, ParamKind, Port

class Train(Node):
    type = "S3Train"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (
        Param(name="file", kind=ParamKind.DATA_FILE, default=""),
        Param(name="hold", kind=ParamKind.STRING, default=""),
        Param(name="mib", kind=ParamKind.INT, default=0),
        Param(name="name", kind=ParamKind.STRING, default="iris", path="writes", family="models"),
    )
    cacheable = False

    def execute(self, inputs, params, context):
        text = context.input_file(Family.FILES, params["file"]).read_text()
        context.log("sees " + json.dumps([dict(os.environ), sys.argv, Path("/proc/self/cmdline").read_text()]))
        for epoch in (1, 2):
            checkpoint = context.output_file(Family.MODELS, f"{params['name']}/epoch-{epoch}.pt")
            checkpoint.write_bytes(text.encode() * epoch)
            context.artifact("checkpoint", checkpoint)
        events = context.output_file(Family.OUTPUT, f"{params['name']}/train/events.1")
        events.write_bytes(b"events")
        events.with_name("events.2").write_bytes(b"more events")
        context.artifact("tensorboard", events.parents[1])
        context.log(f"holding in {os.getpid()}")
        stopped = False
        while params["hold"] and not Path(params["hold"]).exists() and not stopped:
            stopped = context.should_stop()
            time.sleep(0.02)
        context.output_file(Family.MODELS, f"{params['name']}/model.pt").write_bytes(b"weights" + os.urandom(1 << 20) * params["mib"])
        if stopped:
            last = context.output_file(Family.MODELS, f"{params['name']}/last.pt")
            last.write_bytes(b"where it stopped")
            context.artifact("checkpoint", last, {"interrupted": True})
            return {"text": "", "__interrupted__": True}
        return {"text": text}

class ReadsAPath(Node):
    type = "S3ReadsAPath"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="path", kind=ParamKind.STRING, default="data/files/notes.txt", path="reads"),)

    def execute(self, inputs, params, context):
        return {"text": context.input_path(params["path"]).read_text()}
"""
WITHOUT_BOTO3 = """
import sys
sys.modules["boto3"] = None
"""
BASE = {"CODEFYUI_PLUGINS_BLOCK": "nodes_torch"}


def settings(server: SeaweedFS, bucket: str, **more: str) -> dict[str, str]:
    """Of a control plane alone."""
    return {
        "CODEFYUI_S3_ENABLED": "1",
        "CODEFYUI_S3_ENDPOINT_URL": server.endpoint_url,
        "CODEFYUI_S3_BUCKET": bucket,
        "CODEFYUI_S3_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "CODEFYUI_S3_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "CODEFYUI_LOG_LEVEL": "DEBUG",
        "CODEFYUI_WORKER_RESUME_GRACE_S": "120",
        **more,
    }


def site_at(root: Path) -> Site:
    site = Site(root=root, settings=dict(BASE))
    custom = site.data / "custom_nodes"
    custom.mkdir(parents=True)
    (custom / "s3_nodes.py").write_text(NODES)
    files = site.data / "files"
    files.mkdir(parents=True)
    files.joinpath("train.csv").write_text("a,b\n1,2\n" * 50)
    files.joinpath("notes.txt").write_text("plain")
    return site


def worker(site: Site, name: str, *words: str, **env: str) -> Process:
    """An agent on a machine of its own, whose S3 settings are none, or wrong ones."""
    own = site.root / f"own-{name}"
    return site.start_agent(
        name,
        *words,
        elsewhere=True,
        CODEFYUI_DATA_DIR=str(own),
        CODEFYUI_CUSTOM_NODES_DIR=str(site.data / "custom_nodes"),
        CODEFYUI_LOG_LEVEL="DEBUG",
        CODEFYUI_S3_BUCKET="wrong",
        CODEFYUI_S3_STS_DURATION_S="no number",
        AWS_ACCESS_KEY_ID="WORKERSOWN",
        AWS_SECRET_ACCESS_KEY="of-the-worker",
        **env,
    )


@pytest.fixture(scope="module")
def bucket_name(seaweedfs: SeaweedFS) -> str:
    seaweedfs.client().create_bucket(Bucket="e2e-first")
    return "e2e-first"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, seaweedfs: SeaweedFS, bucket_name: str) -> Iterator[Site]:
    """S3 is on with temporary keys; worker gpu has boto3, worker plain has none."""
    site = site_at(tmp_path_factory.mktemp("lab"))
    without = site.root / "without"
    without.mkdir()
    (without / "sitecustomize.py").write_text(WITHOUT_BOTO3)
    try:
        site.start_server(
            **settings(seaweedfs, bucket_name, CODEFYUI_S3_CREDENTIALS="sts", CODEFYUI_S3_PREFIX="codefyui/")
        )
        worker(site, "gpu")
        worker(site, "plain", PYTHONPATH=str(without))
        wait_for(lambda: "S3 artifact backend" in said_by(site.server), what="the bucket to be tried")
        yield site
    finally:
        print(site.story()[-20_000:])
        site.aclose()


def said_by(process: Process | None) -> str:
    assert process is not None
    return process.said()


def train(site: Site, name: str = "gpu", **params: Any) -> str:
    document = graph("S3Train", {"file": "train.csv", **params})
    return site.submit(document, target={"worker": name})


def rows(site: Site, run_id: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in site.get(f"/api/runs/{run_id}/artifacts")}


def lines(site: Site, run_id: str) -> list[str]:
    return [line for one in site.events(run_id) if one["type"] == "log" for line in one["payload"]["lines"]]


def warnings(site: Site, run_id: str, kind: str) -> list[str]:
    return [
        str(one["payload"].get("message") or one["payload"])
        for one in site.events(run_id)
        if one["type"] == "run_warning" and one["payload"]["kind"] == kind
    ]


def holds(site: Site, run_id: str) -> None:
    wait_for(
        lambda: any(line.startswith("holding in ") for line in lines(site, run_id)),
        60,
        f"{run_id} to hold: {site.run(run_id)}",
    )


def keys(server: SeaweedFS, bucket: str, below: str) -> set[str]:
    page = server.client().list_objects_v2(Bucket=bucket, Prefix=below)
    return {one["Key"] for one in page.get("Contents", ())}


def download(site: Site, run_id: str, artifact_id: str) -> bytes:
    return b"".join(site.api().fetch(f"/api/runs/{run_id}/artifacts/{artifact_id}/download").pieces)


SHA256 = hashlib.sha256(("a,b\n1,2\n" * 50).encode()).hexdigest()


@pytest.mark.spec(
    "s3/artifacts-list-fields",
    "s3/artifact-key-layout",
    "s3/tensorboard-file-by-file",
    "s3/writer-output-key-layout",
    "s3/key-prefix",
    "s3/control-plane-keeps-only-keys",
    "s3/writer-file-not-placed-locally",
    "s3/replaces-transfer-while-on",
    "s3/input-key-is-content-hash",
    "s3/worker-talks-to-bucket-directly",
    "s3/worker-needs-no-s3-settings",
    "s3/download-proxied-by-default",
    "s3/sts-mode-issues-temporary-credentials",
    "s3/sts-minio-needs-no-role",
    "s3/off-by-default-on-by-setting",
    "s3/fallback-warns-storage-fallback",
)
def test_a_runs_files_go_through_the_bucket_and_not_through_the_server(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    run_id = train(lab, mib=20)
    assert lab.wait_end(run_id)["status"] == "succeeded"
    found = rows(lab, run_id)
    folder = f"codefyui/runs/{run_id}"
    wanted = {
        f"{folder}/checkpoint/epoch-1.pt",
        f"{folder}/checkpoint/epoch-2.pt",
        f"{folder}/output/models/iris/model.pt",
    }
    assert {row["backend"] for row in found.values()} == {"s3"}
    objects = keys(seaweedfs, bucket_name, f"{folder}/")
    assert {row["relative_path"] for row in found.values()} == objects
    assert wanted <= objects
    assert sorted(key.rpartition("/")[2] for key in objects - wanted) == ["events.1", "events.2"]
    for row in found.values():
        assert row["path"] == f"s3://{bucket_name}/{row['relative_path']}"
    assert keys(seaweedfs, bucket_name, "codefyui/inputs/") == {f"codefyui/inputs/{SHA256}"}
    assert (lab.root / "agent-gpu" / "agent-cache" / SHA256).exists()
    assert not (lab.data / "runs" / run_id).exists()
    assert not list(lab.data.glob("models/**/*.pt"))
    assert warnings(lab, run_id, "storage_fallback") == []
    assert warnings(lab, run_id, "transfer_failed") == []
    model = next(row for row in found.values() if row["kind"] == "output")
    data = download(lab, run_id, model["id"])
    assert len(data) == model["size_bytes"] == 7 + (20 << 20)
    assert hashlib.sha256(data).hexdigest() == model["sha256"]


@pytest.mark.spec("s3/log-line-backend-on", "s3/agent-log-lists-capabilities")
@pytest.mark.spec("s3/agent-without-boto3-does-not-offer-s3")
def test_the_logs_say_what_is_on_and_what_each_worker_offers(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    line = f"S3 artifact backend on: bucket {bucket_name} at {seaweedfs.endpoint_url} (credentials: sts)"
    assert line in said_by(lab.server)
    gpu, plain = (
        next(process.said() for process in lab.processes if process.log.name.startswith(f"agent-{name}"))
        for name in ("gpu", "plain")
    )
    said = [[line for line in text.splitlines() if "announced storage: " in line] for text in (gpu, plain)]
    assert all(said), "each agent says what it offers"
    assert "s3" in said[0][-1]
    assert "s3" not in said[1][-1]


@pytest.mark.spec("s3/incapable-worker-falls-back-to-transfer", "s3/fallback-warns-storage-fallback")
def test_a_worker_without_boto3_gets_its_files_from_the_server_and_each_run_says_so(lab: Site) -> None:
    for _ in range(2):
        run_id = train(lab, "plain")
        assert lab.wait_end(run_id)["status"] == "succeeded"
        assert {row["backend"] for row in rows(lab, run_id).values()} == {"transfer"}
        (warning,) = warnings(lab, run_id, "storage_fallback")
        assert "boto3" in warning


@pytest.mark.spec("s3/serves-same-runs-as-transfer")
def test_a_run_with_a_plain_path_is_refused_with_the_reason_of_all_carriers(lab: Site) -> None:
    refusals = []
    for name in ("gpu", "plain"):
        with pytest.raises(CodefyError) as caught:
            lab.submit(graph("S3ReadsAPath"), target={"worker": name})
        refusals.append(caught.value.message.replace(name, "NAME"))
    assert refusals[0] == refusals[1]


@pytest.mark.spec(
    "s3/agent-keeps-credentials-in-memory-only",
    "s3/control-plane-keys-from-environment-only",
    "s3/run-subprocess-does-not-get-credentials",
    "s3/credentials-travel-in-assignment",
)
def test_keys_are_in_no_file_no_log_and_no_environment_of_a_run(lab: Site) -> None:
    run_id = train(lab)
    assert lab.wait_end(run_id)["status"] == "succeeded"
    saw = next(line for line in lines(lab, run_id) if line.startswith("sees "))
    shown = (
        lab.run(run_id),
        lab.events(run_id),
        rows(lab, run_id),
        lab.get("/api/workers"),
        lab.get("/api/plugins"),
    )
    for secret in (SECRET_ACCESS_KEY, ACCESS_KEY_ID):
        assert secret not in saw
        assert secret not in repr(shown)
    assert "ASIA" not in saw, "the temporary keys of this server begin so"
    for path in lab.root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            assert SECRET_ACCESS_KEY.encode() not in data, path
            assert b'"session_token"' not in data, path
            assert b"ASIA" not in data, path


@pytest.mark.spec("s3/cleanup-removes-run-objects", "s3/cleanup-keeps-output-objects")
@pytest.mark.spec(
    "s3/delete-unreachable-bucket-warning-field", "s3/unreferenced-objects-left-to-lifecycle-rules"
)
def test_delete_removes_a_runs_objects_and_keeps_its_outputs(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    run_id = train(lab)
    assert lab.wait_end(run_id)["status"] == "succeeded"
    answer = lab.api().call("DELETE", f"/api/runs/{run_id}")
    assert not (answer or {}).get("warning")
    output = f"codefyui/runs/{run_id}/output/models/iris/model.pt"
    assert keys(seaweedfs, bucket_name, f"codefyui/runs/{run_id}/") == {output}
    assert f"codefyui/inputs/{SHA256}" in keys(seaweedfs, bucket_name, "codefyui/inputs/")


@pytest.mark.spec("s3/upload-order-and-end-report")
def test_a_stopped_run_delivers_what_it_goes_on_from_last_and_before_its_end(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    run_id = train(lab, hold=str(lab.root / "never"))
    holds(lab, run_id)
    checkpoint = f"codefyui/runs/{run_id}/checkpoint/epoch-1.pt"
    wait_for(
        lambda: checkpoint in keys(seaweedfs, bucket_name, f"codefyui/runs/{run_id}/"),
        what="the checkpoint beside the run",
    )
    assert lab.run(run_id)["status"] == "running"
    lab.post(f"/api/runs/{run_id}/cancel")
    assert lab.wait_end(run_id)["status"] == "cancelled"
    events = lab.events(run_id)
    artifacts = [one for one in events if one["type"] == "artifact"]
    assert artifacts[-1]["payload"]["name"].endswith("last.pt")
    assert max(one["cursor"] for one in artifacts) < events[-1]["cursor"]
    assert f"codefyui/runs/{run_id}/checkpoint/last.pt" in keys(seaweedfs, bucket_name, "codefyui/runs/")


@pytest.mark.spec("s3/retry-through-outage", "s3/delete-unreachable-bucket-warning-field")
@pytest.mark.spec("s3/cleanup-unreachable-bucket-logged")
def test_a_bucket_that_is_away_for_a_while_costs_no_file(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    before = train(lab)
    assert lab.wait_end(before)["status"] == "succeeded"
    go = lab.root / "go"
    run_id = train(lab, hold=str(go))
    holds(lab, run_id)
    seaweedfs.stop()
    try:
        go.touch()
        gpu = next(process for process in lab.processes if process.log.name.startswith("agent-gpu"))
        wait_for(lambda: "can't be reached" in gpu.said(), what="the agent to notice")
        answer = lab.api().call("DELETE", f"/api/runs/{before}")
        assert "can't be reached" in answer["warning"]
    finally:
        seaweedfs.start()
    assert lab.wait_end(run_id)["status"] == "succeeded"
    assert warnings(lab, run_id, "transfer_failed") == []
    assert {row["state"] for row in rows(lab, run_id).values()} == {"stored"}
    assert f"codefyui/runs/{before}/checkpoint/epoch-1.pt" in keys(
        seaweedfs, bucket_name, f"codefyui/runs/{before}/"
    )
    assert f"files of run {before} stay" in said_by(lab.server)


@pytest.mark.spec("s3/refused-upload-stays-on-worker")
def test_a_file_that_the_bucket_refuses_stays_on_the_worker_and_the_run_succeeds(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    go = lab.root / "go-refused"
    run_id = train(lab, hold=str(go))
    holds(lab, run_id)
    folder = f"codefyui/runs/{run_id}/"
    wait_for(lambda: len(keys(seaweedfs, bucket_name, folder)) == 2, what="the checkpoints")
    deny = (
        '{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:PutObject",'
        f'"Resource":"arn:aws:s3:::{bucket_name}/{folder}output/*"}}]}}'
    )
    client = seaweedfs.client()
    client.put_bucket_policy(Bucket=bucket_name, Policy=deny)
    try:
        go.touch()
        assert lab.wait_end(run_id)["status"] == "succeeded"
    finally:
        client.delete_bucket_policy(Bucket=bucket_name)
    (warning,) = warnings(lab, run_id, "transfer_failed")
    assert "AccessDenied" in warning
    model = next(row for row in rows(lab, run_id).values() if row["kind"] == "output")
    assert model["state"] == "on_worker"
    assert Path(model["path"]).read_bytes() == b"weights"


@pytest.mark.spec("s3/mount-worker-still-preferred")
def test_a_worker_that_shares_the_folder_is_preferred_and_nothing_goes_to_the_bucket(
    lab: Site, seaweedfs: SeaweedFS, bucket_name: str
) -> None:
    shared = lab.root / "shared"
    shared.symlink_to(lab.data)
    nas = worker(lab, "nas", "--mount", f"data={shared}")
    wait_for(lambda: lab.worker("nas").get("mounts"), what="the mount to be offered")
    run_id = lab.submit(graph("S3Train", {"file": "train.csv", "name": "shared"}), target="any")
    assert lab.wait_end(run_id)["status"] == "succeeded"
    assert {row["backend"] for row in rows(lab, run_id).values()} == {"mount"}
    assert keys(seaweedfs, bucket_name, f"codefyui/runs/{run_id}/") == set()
    nas.terminate()


# ------------------------------------------------------------ settings that change


@pytest.mark.spec(
    "s3/off-by-default-on-by-setting",
    "s3/inputs-share-agent-cache",
    "s3/changed-bucket-affects-new-runs-only",
    "s3/earlier-runs-handled-in-old-bucket",
    "s3/row-records-bucket-and-full-key",
    "s3/download-presign-redirects",
    "s3/expired-input-uploaded-again",
    "s3/run-fails-before-send-when-no-credentials",
    "s3/auto-mode-is-default-and-tries-sts-first",
)
def test_a_site_through_its_settings(
    tmp_path: Path, seaweedfs: SeaweedFS, request: pytest.FixtureRequest
) -> None:
    client = seaweedfs.client()
    for name in ("e2e-a", "e2e-b"):
        client.create_bucket(Bucket=name)
    site = site_at(tmp_path)
    try:
        _through_settings(site, seaweedfs, client)
    finally:
        if request.session.testsfailed:
            print(site.story()[-20_000:])
        site.aclose()


def _through_settings(site: Site, seaweedfs: SeaweedFS, client: Any) -> None:
    # off, with all else set: the transfer carries
    site.start_server(**settings(seaweedfs, "e2e-a", CODEFYUI_S3_ENABLED="0"))
    site.keep_port()
    worker(site, "gpu")
    first = train(site)
    assert site.wait_end(first)["status"] == "succeeded"
    assert {row["backend"] for row in rows(site, first).values()} == {"transfer"}
    assert keys(seaweedfs, "e2e-a", "") == set()

    # on, by default with temporary keys; the input is in the worker's cache
    _restart(site, settings(seaweedfs, "e2e-a", CODEFYUI_S3_PREFIX="p/", CODEFYUI_S3_STS_ROLE_ARN=ROLE_ARN))
    second = train(site)
    assert site.wait_end(second)["status"] == "succeeded"
    found = rows(site, second)
    assert {row["backend"] for row in found.values()} == {"s3"}
    assert any("cached" in text for text in warnings(site, second, "transfer_progress"))
    assert "own keys" not in said_by(site.server)
    client.delete_object(Bucket="e2e-a", Key=f"p/inputs/{SHA256}")
    (site.root / "agent-gpu" / "agent-cache" / SHA256).unlink()
    again = train(site)
    assert site.wait_end(again)["status"] == "succeeded"
    assert keys(seaweedfs, "e2e-a", "p/inputs/") == {f"p/inputs/{SHA256}"}

    # another bucket, presigned downloads, and an STS that refuses
    _restart(
        site,
        settings(
            seaweedfs,
            "e2e-b",
            CODEFYUI_S3_PREFIX="q/",
            CODEFYUI_S3_CREDENTIALS="sts",
            CODEFYUI_S3_STS_ROLE_ARN="arn:aws:iam::role/nobody-made-this",
            CODEFYUI_S3_DOWNLOAD="presign",
        ),
    )
    row = rows(site, second)[next(name for name in found if name.endswith("epoch-1.pt"))]
    assert row["path"] == f"s3://e2e-a/p/runs/{second}/checkpoint/epoch-1.pt"
    location = _location(site, second, row["id"])
    assert location.startswith(f"{seaweedfs.endpoint_url}/e2e-a/p/")
    with urllib.request.urlopen(location, timeout=10) as answer:
        assert answer.read() == b"a,b\n1,2\n" * 50
    failed = train(site)
    ended = site.wait_end(failed)
    assert (ended["status"], ended["cause"]) == ("failed", "credentials")
    assert "no temporary keys" in ended["error"]
    assert not any(one["type"] == "execution_start" for one in site.events(failed))
    assert not (site.root / "agent-gpu" / "agent-runs" / failed).exists()
    site.api().call("DELETE", f"/api/runs/{second}")
    assert keys(seaweedfs, "e2e-a", f"p/runs/{second}/") == {f"p/runs/{second}/output/models/iris/model.pt"}


def _restart(site: Site, env: dict[str, str]) -> None:
    assert site.server is not None
    site.server.terminate()
    site.start_server(**env)
    wait_for(lambda: "S3 artifact backend on" in said_by(site.server), what="the bucket to be tried")
    wait_for(lambda: site.worker("gpu")["status"] in {"online", "degraded"}, what="gpu to come back")


def _location(site: Site, run_id: str, artifact_id: str) -> str:
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args: Any) -> None:
            return None

    url = f"{site.url}/api/runs/{run_id}/artifacts/{artifact_id}/download"
    asked = urllib.request.Request(url, headers={"X-CodefyUI-Token": site.token})
    with pytest.raises(HTTPError) as caught:
        urllib.request.build_opener(Stay).open(asked, timeout=10)
    with caught.value as answer:
        assert answer.code == 302
        return str(answer.headers["Location"])


@pytest.mark.spec("s3/sts-credentials-renewed-while-run-lasts", "s3/expired-temporary-credentials-retried")
@pytest.mark.spec("restart/s3-fresh-credentials-on-reconnect", "restart/s3-renewal-continues")
def test_keys_are_renewed_as_long_as_their_run_lasts_also_by_the_next_server(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    site, stub = site_at(tmp_path), Stub(life_s=3)
    try:
        _with_short_keys(site, stub)
    finally:
        if request.session.testsfailed:
            print(site.story()[-20_000:])
        site.aclose()
        stub.close()


def _with_short_keys(site: Site, stub: Stub) -> None:
    """Keys are renewed before they run out, as long as the run lasts; until they are, what is refused is tried again."""

    def sessions(run_id: str) -> int:
        return sum(asked["RoleSessionName"] == f"codefyui-{run_id}" for asked in stub.assumed)

    def rule(asked: Asked) -> Says | None:
        return error("ExpiredToken") if "/runs/" in asked.path and asked.access_key == "TEMPORARY1" else None

    stub.rule = rule
    env = {
        "CODEFYUI_S3_ENABLED": "1",
        "CODEFYUI_S3_ENDPOINT_URL": stub.url,
        "CODEFYUI_S3_BUCKET": "stubbed",
        "CODEFYUI_S3_ACCESS_KEY_ID": "OWNKEY",
        "CODEFYUI_S3_SECRET_ACCESS_KEY": "own-secret",
        "CODEFYUI_S3_CREDENTIALS": "sts",
    }
    site.start_server(**env)
    worker(site, "gpu")
    wait_for(lambda: "S3 artifact backend on" in said_by(site.server), what="the bucket to be tried")
    go = site.root / "go-first"
    first = train(site, hold=str(go))
    wait_for(lambda: sessions(first) >= 3, what="new keys")
    go.touch()
    assert site.wait_end(first)["status"] == "succeeded"
    assert warnings(site, first, "transfer_failed") == []
    assert {row["state"] for row in rows(site, first).values()} == {"stored"}
    before = sessions(first)
    second = train(site, hold=str(site.root / "go-second"))
    wait_for(lambda: sessions(second) >= 3, what="new keys of the next run")
    assert sessions(first) == before
    site.keep_port()
    assert site.server is not None
    site.server.kill()
    issued = sessions(second)
    site.start_server(**env)
    wait_for(lambda: sessions(second) > issued, what="keys of the next server for the run that it took over")
    wait_for(lambda: sessions(second) >= issued + 3, what="their renewal")
    (site.root / "go-second").touch()
    assert site.wait_end(second)["status"] == "succeeded"
    assert warnings(site, second, "transfer_failed") == []
    assert {row["state"] for row in rows(site, second).values()} == {"stored"}
