"""Where files of runs lie and how they are got at: projects, bundled samples, checkpoints of earlier runs, downloads."""

import json
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_site import Site, graph

from codefyui_core.cli.client import Running

pytestmark = pytest.mark.service

NODES = """
from codefyui_core.plugin import DataType, Family, Node, Param, ParamKind, Port

class Save(Node):
    type = "FilesSave"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="name", kind=ParamKind.STRING, default="m.pt", path="writes", family="models"),)
    cacheable = False

    def execute(self, inputs, params, context):
        path = context.output_file(Family.MODELS, params["name"])
        path.write_bytes(b"weights")
        context.artifact("checkpoint", path)
        return {"text": str(path)}

class Load(Node):
    type = "FilesLoad"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="path", kind=ParamKind.MODEL_FILE, default=""),)
    cacheable = False

    def execute(self, inputs, params, context):
        path = context.input_file(Family.MODELS, params["path"])
        context.log(f"loaded {path.read_text()} from {path}")
        return {"text": path.read_text()}

class Rows(Node):
    type = "FilesRows"
    category = "Trial"
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="path", kind=ParamKind.DATA_FILE, default=""),)
    cacheable = False

    def execute(self, inputs, params, context):
        lines = context.input_file(Family.FILES, params["path"]).read_text().splitlines()
        context.log(f"{len(lines)} rows")
        return {"text": str(len(lines))}
"""
CHECKOUT = Path(__file__).parents[2]


def printed(site: Site, run_id: str) -> list[str]:
    return [
        line for event in site.events(run_id) if event["type"] == "log" for line in event["payload"]["lines"]
    ]


def start(site: Site, *arguments: str) -> Site:
    custom = site.data / "custom_nodes"
    custom.mkdir(parents=True)
    (custom / "files.py").write_text(NODES)
    site.start_server(*arguments)
    return site


def upload(site: Site, family: str, name: str, data: bytes) -> None:
    body = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    request = urllib.request.Request(
        f"{site.url}/api/{family}/upload",
        data=body + data + b"\r\n--x--\r\n",
        headers={
            "X-CodefyUI-Token": site.token,
            "Content-Type": "multipart/form-data; boundary=x",
        },
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def ran(site: Site, kind: str, params: dict[str, Any], **options: Any) -> str:
    run_id = site.submit(graph(kind, params), **options)
    site.wait_status(run_id, "succeeded")
    return run_id


def cdui(site: Site, *words: str) -> tuple[int, str]:
    process = site.spawn("cdui", ["-m", "codefyui_core.cli", *words], user_data=site.user_data)
    return process.wait(60), process.said()


# ---------------------------------------------------------------- projects


@pytest.mark.spec("mount/project-directory-is-the-labelled-folder", "mount/project-uploads-not-shared")
def test_a_server_of_a_project_works_in_its_folders_and_keeps_uploads_out_of_it(
    site: Site, tmp_path: Path
) -> None:
    project = tmp_path / "p"
    project.mkdir()
    start(site, "--port", "0", "--project", str(project))
    assert site.get("/api/health")["project"] == str(project)
    assert Running.read(site.user_data).project == str(project)
    upload(site, "files", "a.csv", b"1\n2\n")
    upload(site, "models", "up.pt", b"uploaded")
    assert (site.data / "files" / "a.csv").is_file()
    assert (project / "models" / "up.pt").is_file()
    run_id = ran(site, "FilesSave", {"name": "deep/m.pt"})
    assert (project / "models" / "deep" / "m.pt").read_bytes() == b"weights"
    assert not (site.data / "models" / "deep").exists()
    (row,) = site.get(f"/api/runs/{run_id}/artifacts")
    assert (row["relative_path"], row["path"]) == (
        "models/deep/m.pt",
        str(project / "models" / "deep" / "m.pt"),
    )
    loaded = ran(site, "FilesLoad", {"path": "deep/m.pt"})
    assert printed(site, loaded) == [f"loaded weights from {project / 'models' / 'deep' / 'm.pt'}"]
    assert printed(site, ran(site, "FilesRows", {"path": "a.csv"})) == ["2 rows"]
    site.start_agent("box")
    there = ran(site, "FilesSave", {"name": "by-worker.pt"}, target="box")
    assert (project / "models" / "by-worker.pt").read_bytes() == b"weights"
    assert site.get(f"/api/runs/{there}/artifacts")[0]["backend"] == "local"


# ---------------------------------------------------------------- another machine


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory, plugins: dict[str, str]) -> Iterator[Site]:
    """A server, and a worker on another machine with an installation of its own."""
    site = Site(root=tmp_path_factory.mktemp("far"), settings=dict(plugins))
    own = site.root / "own"
    samples = own / "backend" / "data" / "samples"
    samples.parent.mkdir(parents=True)
    shutil.copytree(CHECKOUT / "backend" / "data" / "samples", samples)
    with (samples / "iris.csv").open("a") as file:
        file.write("1,1,1,1,extra\n")
    try:
        start(site)
        site.start_agent(
            "far",
            elsewhere=True,
            CODEFYUI_DIR=str(own),
            CODEFYUI_DATA_DIR=str(own / "backend" / "data"),
            CODEFYUI_CUSTOM_NODES_DIR=str(site.data / "custom_nodes"),
        )
        yield site
    except BaseException:
        print(site.story())
        raise
    finally:
        site.aclose()


@pytest.mark.spec(
    "placement/bundled-sample-read-from-own-install", "placement/bundled-sample-counts-as-no-files"
)
def test_a_worker_reads_the_samples_of_its_own_installation(far: Site) -> None:
    path = {"path": "data/samples/iris.csv"}
    (here,) = printed(far, ran(far, "FilesRows", path))
    (there,) = printed(far, ran(far, "FilesRows", path, target="far"))
    assert int(there.removesuffix(" rows")) == int(here.removesuffix(" rows")) + 1


@pytest.mark.spec(
    "transfer/recorded-artifact-path-on-control-plane",
    "transfer/cancelled-run-can-resume-from-control-plane",
    "transfer/artifact-download-route",
)
def test_a_checkpoint_that_a_worker_left_here_is_gone_on_from_there(far: Site, tmp_path: Path) -> None:
    first = ran(far, "FilesSave", {"name": "e3.pt"}, target="far")
    place = f"runs/{first}/checkpoint/e3.pt"
    assert (far.data / place).read_bytes() == b"weights"
    second = ran(far, "FilesLoad", {"path": f"data/{place}"}, target="far")
    (said,) = [line for line in printed(far, second) if line.startswith("loaded")]
    assert said.startswith("loaded weights from ")
    assert said.endswith(place)
    assert second in said
    status, out = cdui(far, "artifacts", "download", first, "--all", "-o", str(tmp_path / "home"))
    assert (status, (tmp_path / "home" / "checkpoint" / "e3.pt").read_bytes()) == (0, b"weights"), out
    status, out = cdui(far, "artifacts", "delete", first, "e3.pt")
    assert (status, (far.data / place).exists()) == (0, False), out


def test_a_runs_files_come_home_and_go_by_the_commands(far: Site, tmp_path: Path) -> None:
    file = tmp_path / "g.json"
    file.write_text(json.dumps(graph("FilesSave", {"name": "home.pt"})))
    status, out = cdui(far, "run", str(file), "--quiet", "--download", str(tmp_path / "home"))
    assert status == 0, out
    assert (tmp_path / "home" / "checkpoint" / "home.pt").read_bytes() == b"weights"
    run_id = out.split()[-2]
    status, out = cdui(far, "artifacts", "path", run_id, "home.pt")
    assert (status, out) == (0, f"{far.data / 'models' / 'home.pt'}\n")
    status, out = cdui(far, "artifacts", "delete", run_id, "home.pt")
    assert status == 0, out
    assert far.get(f"/api/runs/{run_id}/artifacts") == []
    assert not (far.data / "models" / "home.pt").exists()
