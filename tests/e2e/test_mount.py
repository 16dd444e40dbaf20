"""A folder that server and workers share, each at a path of its own: real servers and agents, two symbolic links."""

import io
import json
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_site import Process, Site, graph, wait_for

from codefyui_core.errors import CodefyError

pytestmark = pytest.mark.service

NODES = """
from codefyui_core.plugin import DataType, Family, Node, Param, ParamKind, Port

class ReadUpload(Node):
    type = "MountRead"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="file", kind=ParamKind.DATA_FILE, default=""),)
    cacheable = False

    def execute(self, inputs, params, context):
        path = context.input_file(Family.FILES, params["file"])
        context.log(f"read {path.read_text()} from {path}")
        return {"text": path.read_text()}

class Train(Node):
    type = "MountTrain"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="name", kind=ParamKind.STRING, default="iris", path="writes", family="models"),)
    cacheable = False

    def execute(self, inputs, params, context):
        checkpoint = context.output_file(Family.MODELS, f"{params['name']}/epoch-1.pt")
        checkpoint.write_bytes(b"weights " * 1000)
        context.artifact("checkpoint", checkpoint)
        events = context.output_file(Family.OUTPUT, f"{params['name']}/train/events")
        events.write_bytes(b"events")
        context.artifact("tensorboard", events.parents[1])
        context.output_file(Family.IMAGES, "curve.png").write_bytes(b"image")
        context.output_file(Family.MEDIA, "clip.mp4").write_bytes(b"video")
        return {"text": str(checkpoint)}
"""
WITHOUT_CARRIERS = {"CODEFYUI_PLUGINS_BLOCK": "nodes_torch,storage_transfer,storage_s3"}


def link(path: Path, to: Path) -> Path:
    path.symlink_to(to)
    return path


def elsewhere(site: Site, name: str, *words: str, **env: str) -> Process:
    """An agent on a machine of its own, with a data folder of its own."""
    return site.start_agent(
        name,
        *words,
        elsewhere=True,
        CODEFYUI_DATA_DIR=str(site.root / f"own-{name}"),
        CODEFYUI_CUSTOM_NODES_DIR=str(site.data / "custom_nodes"),
        **env,
    )


def cdui(site: Site, *words: str, user_data: Path) -> tuple[int, str]:
    process = site.spawn("cdui", ["-m", "codefyui_core.cli", *words], user_data=user_data)
    return process.wait(90), process.said()


def upload(site: Site, name: str, data: bytes) -> None:
    body = (
        b"--x\r\n"
        + f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
        + data
        + b"\r\n--x--\r\n"
    )
    request = urllib.request.Request(
        f"{site.url}/api/files/upload",
        data=body,
        headers={"X-CodefyUI-Token": site.token, "Content-Type": "multipart/form-data; boundary=x"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status in {200, 201}


def download(site: Site, run_id: str, artifact_id: str) -> bytes:
    return b"".join(site.api().fetch(f"/api/runs/{run_id}/artifacts/{artifact_id}/download").pieces)


def said(site: Site, run_id: str) -> str:
    events = site.events(run_id)
    return "\n".join(line for one in events if one["type"] == "log" for line in one["payload"]["lines"])


def warnings(site: Site, run_id: str) -> list[str]:
    return [one["payload"]["kind"] for one in site.events(run_id) if one["type"] == "run_warning"]


def rows(site: Site, run_id: str) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in site.get(f"/api/runs/{run_id}/artifacts")}


def saved(site: Site, name: str) -> dict[str, Any]:
    path = site.root / f"agent-{name}" / "agent.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def mounts(site: Site, name: str) -> dict[str, str]:
    return dict(site.worker(name).get("mounts") or {})


@pytest.fixture(scope="module")
def nas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The server's data folder is on the share; worker gpu has the same one elsewhere, and its own data apart."""
    root = tmp_path_factory.mktemp("nas")
    site = Site(root=root, settings=dict(WITHOUT_CARRIERS))
    (root / "share").mkdir()
    link(site.data, root / "share")
    (site.data / "custom_nodes").mkdir()
    (site.data / "custom_nodes" / "mounted.py").write_text(NODES)
    try:
        site.start_server()
        site.keep_port()
        elsewhere(site, "gpu", "--mount", f"data={link(root / 'b', root / 'share')}")
        yield site
    finally:
        site.aclose()


@pytest.fixture(scope="module")
def trained(nas: Site) -> str:
    """A run on gpu that recorded a checkpoint and a TensorBoard folder."""
    run_id = nas.submit(graph("MountTrain"), target="gpu")
    nas.wait_status(run_id, "succeeded")
    return run_id


@pytest.mark.spec("placement/mount-worker-takes-uploads-run", "mount/paths-may-differ-between-machines")
def test_a_run_reads_an_upload_where_its_worker_has_the_share(nas: Site) -> None:
    upload(nas, "train.csv", b"1,2")
    run_id = nas.submit(graph("MountRead", {"file": "train.csv"}), target="gpu")
    nas.wait_status(run_id, "succeeded")
    assert f"read 1,2 from {nas.root}/b/files/train.csv" in said(nas, run_id)
    assert warnings(nas, run_id) == []


@pytest.mark.spec("placement/mount-worker-takes-runs-transfer-cannot-carry")
@pytest.mark.spec(
    "usesfiles/reader-path-inside-data-folder-counts", "mount/paths-may-differ-between-machines"
)
def test_a_run_reads_a_plain_path_even_by_the_servers_own_name_of_it(nas: Site) -> None:
    (nas.data / "files").mkdir(exist_ok=True)
    (nas.data / "files" / "notes.txt").write_text("a note")
    for path in ("data/files/notes.txt", str(nas.data / "files" / "notes.txt")):
        run_id = nas.submit(graph("TrialReadFile", {"path": path}), target="gpu")
        nas.wait_status(run_id, "succeeded")
        assert "a note" in said(nas, run_id)


@pytest.mark.spec("mount/worker-folders-derived-from-mount-path")
def test_what_a_run_writes_is_in_the_servers_folders_at_once(nas: Site, trained: str) -> None:
    for name in ("models/iris/epoch-1.pt", "output/iris/train/events", "images/curve.png", "media/clip.mp4"):
        assert (nas.data / name).is_file()
    assert not list((nas.root / "own-gpu").rglob("*.pt"))


@pytest.mark.spec("mount/artifact-stored-relative-with-backend-mount")
@pytest.mark.spec("mount/artifact-listed-at-control-plane-path")
def test_artifacts_are_listed_at_the_servers_path_and_can_be_downloaded(nas: Site, trained: str) -> None:
    checkpoint, board = rows(nas, trained)["checkpoint"], rows(nas, trained)["tensorboard"]
    for row, relative in ((checkpoint, "models/iris/epoch-1.pt"), (board, "output/iris")):
        assert (row["backend"], row["label"], row["relative_path"]) == ("mount", "data", relative)
        assert row["path"] == str(nas.data / relative)
        assert Path(row["path"]).exists()
    assert download(nas, trained, checkpoint["id"]) == b"weights " * 1000
    with zipfile.ZipFile(io.BytesIO(download(nas, trained, board["id"]))) as archive:
        assert [Path(name).name for name in archive.namelist()] == ["events"]


@pytest.mark.spec("mount/agent-flag-label-equals-path", "agent/mount-flag-names-folder")
@pytest.mark.spec("mount/saved-in-agent-json-and-reused")
def test_the_label_and_the_workers_path_are_shown_and_saved(nas: Site) -> None:
    assert mounts(nas, "gpu") == {"data": f"{nas.root}/b"}
    assert saved(nas, "gpu") == {"mount": {"mounts": {"data": f"{nas.root}/b"}}}


@pytest.mark.spec("mount/same-host-agent-holds-data-without-flag")
@pytest.mark.spec("mount/same-host-artifacts-are-ordinary-local")
@pytest.mark.spec("mount/same-host-workers-api-shows-server-path")
def test_a_worker_on_the_servers_machine_has_the_folder_without_a_flag(nas: Site) -> None:
    nodes = str(nas.data / "custom_nodes")
    own = str(nas.root / "own-here")
    agent = nas.start_agent("here", CODEFYUI_DATA_DIR=own, CODEFYUI_CUSTOM_NODES_DIR=nodes)
    wait_for(lambda: mounts(nas, "here"), 30, "the mounts of here")
    assert mounts(nas, "here") == {"data": str(nas.data)}
    by_worker, by_server = (
        nas.submit(graph("TrialSave", {"name": f"{target}.bin"}), target=target)
        for target in ("here", "server")
    )
    for run_id in (by_worker, by_server):
        nas.wait_status(run_id, "succeeded")
    (one,), (other,) = (rows(nas, run_id).values() for run_id in (by_worker, by_server))
    assert one["backend"] == other["backend"] == "local"
    assert (one["path"], other["path"]) == tuple(
        str(nas.data / "models" / f"{name}.bin") for name in ("here", "server")
    )
    agent.terminate()


@pytest.mark.spec("mount/flag-refused-while-agent-runs")
def test_mounts_can_not_change_while_an_agent_runs(nas: Site) -> None:
    user_data, other = nas.root / "agent-back", nas.root / "other"
    other.mkdir()
    start = ("agent", "start", "--control", nas.url)
    share = f"data={nas.root / 'share'}"
    words = (*start, "--token", nas.enroll_token(), "--name", "back", "--mount", share)
    assert cdui(nas, *words, user_data=user_data)[0] == 0
    try:
        before = (user_data / "agent.json").read_bytes()
        for change in (f"data={other}", "data="):
            status, text = cdui(nas, *start, "--mount", change, user_data=user_data)
            assert (status, "cdui agent stop" in text) == (1, True)
            assert (user_data / "agent.json").read_bytes() == before
    finally:
        assert cdui(nas, "agent", "stop", user_data=user_data)[0] == 0
    status, _ = cdui(
        nas, *start, "--foreground", "--one-shot", "--mount", "data=/no/such", user_data=user_data
    )
    assert (status, (user_data / "agent.json").read_bytes()) == (4, before)


def test_a_mount_of_another_folder_gets_no_runs(nas: Site) -> None:
    other = nas.root / "not-the-share"
    other.mkdir()
    agent = elsewhere(nas, "wrong", "--mount", f"data={other}")
    with pytest.raises(CodefyError) as refused:
        nas.submit(graph("MountTrain"), target="wrong")
    assert str(refused.value) == (
        "worker wrong has a `data` mount that holds another folder than the server's; point "
        f"`--mount data=...` at the server's folder {nas.data}"
    )
    wait_for(lambda: "is not the folder that the server shares" in agent.said(), 30, "the agent to say so")
    agent.terminate()


@pytest.mark.spec("mount/saved-mount-with-missing-folder-not-offered")
@pytest.mark.spec("mount/missing-folder-rechecked-each-heartbeat", "mount/empty-value-removes-saved-mount")
@pytest.mark.spec("mount/saved-in-agent-json-and-reused", "placement/file-run-needs-mount-or-file-carrier")
@pytest.mark.spec("placement/named-non-mount-worker-400-at-submit")
def test_a_saved_mount_is_offered_once_its_folder_is_there_and_until_it_is_taken_back(nas: Site) -> None:
    late = nas.root / "late"
    (nas.root / "agent-late").mkdir()
    (nas.root / "agent-late" / "agent.json").write_text(
        json.dumps({"mount": {"mounts": {"data": str(late)}}})
    )
    agent = elsewhere(nas, "late")
    assert mounts(nas, "late") == {}
    runs_before = len(nas.get("/api/runs")["runs"])
    with pytest.raises(CodefyError) as refused:
        nas.submit(graph("MountTrain"), target="late")
    assert str(refused.value) == ("worker late has no `data` mount; add `--mount data=...` to its agent")
    assert len(nas.get("/api/runs")["runs"]) == runs_before
    link(late, nas.root / "share")
    wait_for(lambda: mounts(nas, "late") == {"data": str(late)}, 30, "the mount to be offered")
    nas.wait_status(nas.submit(graph("MountTrain", {"name": "late"}), target="late"), "succeeded")
    agent.terminate()
    agent = elsewhere(nas, "late", "--mount", "data=")
    assert (mounts(nas, "late"), saved(nas, "late")) == ({}, {})
    agent.terminate()


@pytest.mark.spec(
    "mount/artifact-of-unheld-mount-has-null-path", "mount/label-setting-renames-control-plane-label"
)
def test_a_server_with_another_label_knows_its_workers_by_that_and_old_rows_by_theirs(
    nas: Site, trained: str
) -> None:
    assert nas.server is not None
    nas.server.terminate()
    nas.start_server(CODEFYUI_MOUNT_LABEL="lab")
    try:
        row = rows(nas, trained)["checkpoint"]
        assert (row["path"], row["label"], row["relative_path"]) == (None, "data", "models/iris/epoch-1.pt")
        # Up to 30 s pass before a dial, and the dial takes what the machine lets it.
        wait_for(lambda: nas.worker("gpu")["connected"], 120, "gpu to be back")
        with pytest.raises(CodefyError, match=r"has no `lab` mount; add `--mount lab=\.\.\.`"):
            nas.submit(graph("MountTrain"), target="gpu")
    finally:
        nas.server.terminate()
        nas.start_server()


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server whose data folders lie on the share, one by one."""
    root = tmp_path_factory.mktemp("moved")
    site = Site(root=root, settings=dict(WITHOUT_CARRIERS))
    (site.data / "custom_nodes").mkdir(parents=True)
    (site.data / "custom_nodes" / "mounted.py").write_text(NODES)
    yield site
    site.aclose()


@pytest.mark.spec("mount/data-folder-env-overrides", "mount/database-stays-local-when-folders-move")
def test_data_folders_that_were_moved_to_the_share_are_shared_from_there(moved: Site) -> None:
    share = moved.root / "mnt" / "data"
    places = {
        "CODEFYUI_DATA_FILES_DIR": "files",
        "CODEFYUI_IMAGES_DIR": "images",
        "CODEFYUI_MODELS_DIR": "models",
        "CODEFYUI_MEDIA_DIR": "media",
    }
    moved.start_server(**{name: str(share / family) for name, family in places.items()})
    moved.keep_port()
    nas = link(moved.root / "nas", share)
    elsewhere(moved, "gpu", "--mount", f"data={nas}")
    upload(moved, "train.csv", b"1,2")
    assert (share / "files" / "train.csv").read_bytes() == b"1,2"
    reads = moved.submit(graph("MountRead", {"file": "train.csv"}), target="gpu")
    writes = moved.submit(graph("MountTrain"), target="gpu")
    for run_id in (reads, writes):
        moved.wait_status(run_id, "succeeded")
    assert f"from {nas}/files/train.csv" in said(moved, reads)
    assert rows(moved, writes)["checkpoint"]["path"] == str(share / "models" / "iris" / "epoch-1.pt")
    assert not list(share.rglob("*.db*"))
    assert (moved.user_data / "codefyui.db").is_file()


@pytest.mark.spec("mount/project-directory-is-the-labelled-folder", "mount/project-uploads-not-shared")
@pytest.mark.spec("mount/worker-folders-from-project-toml")
def test_with_a_project_the_project_is_shared_and_uploads_are_not(moved: Site) -> None:
    project = moved.root / "project"
    project.mkdir()
    (project / "codefyui.project.toml").write_text('[folders]\nmodels = "weights"')
    if moved.server is not None:
        moved.server.terminate()
    moved.start_server("--port", "0", "--project", str(project))
    elsewhere(moved, "lab", "--mount", f"data={link(moved.root / 'q', project)}")
    run_id = moved.submit(graph("MountTrain"), target="lab")
    moved.wait_status(run_id, "succeeded")
    row = rows(moved, run_id)["checkpoint"]
    assert (row["relative_path"], row["path"]) == (
        "weights/iris/epoch-1.pt",
        str(project / "weights" / "iris" / "epoch-1.pt"),
    )
    assert Path(row["path"]).is_file()
    before = sorted(project.rglob("*"))
    upload(moved, "own.csv", b"3,4")
    assert sorted(project.rglob("*")) == before
    assert (moved.data / "files" / "own.csv").is_file()
    with pytest.raises(CodefyError, match=r"can't see own\.csv"):
        moved.submit(graph("MountRead", {"file": "own.csv"}), target="lab")
