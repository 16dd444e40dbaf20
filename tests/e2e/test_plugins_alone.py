"""Each plugin of storage or connection as the only one, on either side, in an environment that has nothing else: no
torch, no extra of the other plane, no vendor's library that isn't asked for.
"""

import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from e2e_site import Process, Site, graph, wait_for

from cdui_develop.environments import Environment, build_wheel
from codefyui_core.cli.client import ApiProblem

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
NODES = '''
from codefyui_core.plugin import DataType, Family, Node, Param, ParamKind, Port


class Carry(Node):
    """Reads an upload, and writes what it read in capitals."""

    type, category, cacheable = "AloneCarry", "Trial", False
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (
        Param(name="file", kind=ParamKind.DATA_FILE, default=""),
        Param(name="name", kind=ParamKind.STRING, default="loud.txt", path="writes", family="models"),
    )

    def execute(self, inputs, params, context):
        text = context.input_file(Family.FILES, params["file"]).read_text()
        path = context.output_file(Family.MODELS, params["name"])
        path.write_text(text.upper())
        context.artifact("checkpoint", path)
        return {"text": text}


class Plain(Node):
    """Reads a plain path."""

    type, category, cacheable = "AlonePlain", "Trial", False
    outputs = (Port(name="text", type=DataType.STRING),)
    params = (Param(name="path", kind=ParamKind.STRING, default="", path="reads"),)

    def execute(self, inputs, params, context):
        return {"text": context.input_path(params["path"]).read_text()}
'''
CARRY = graph("AloneCarry", {"file": "words.txt"})
PLAIN = graph("AlonePlain", {"path": "data/files/words.txt"})
NEEDS_AN_UPLOAD = "AlonePlain (node) reads the path data/files/words.txt instead of an upload"
NO_BOTO3 = "install boto3 on it (uv pip install boto3) and restart its agent"

MakeEnvironment = Callable[..., Environment]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> MakeEnvironment:
    """``environment("agent", "storage_mount")``: the core with that extra, and one plugin; made once."""
    built = tmp_path_factory.mktemp("wheels")
    wheels: dict[Path, Path] = {}
    made: dict[tuple[str, ...], Environment] = {}

    def wheel(source: Path) -> Path:
        if source not in wheels:
            wheels[source] = build_wheel(source, built)
        return wheels[source]

    def make(extra: str, plugin: str, *more: str) -> Environment:
        key = (extra, plugin, *more)
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{extra}-{plugin}")
            own = f"codefyui-{plugin.replace('_', '-')}"
            made[key] = Environment(folder / "env", f"codefyui-core[{extra}]", own, *more)
            made[key].install(wheel(ROOT), wheel(ROOT / "plugins" / plugin))
        return made[key]

    return make


class Alone(Site):
    """A site whose agents live on machines and in environments of their own."""

    def agent(self, environment: Environment, name: str, *words: str) -> Process:
        return self.start_agent(
            name,
            *words,
            elsewhere=True,
            python=environment.python,
            CODEFYUI_DIR="",
            CODEFYUI_DATA_DIR=str(self.root / f"own-{name}"),
            CODEFYUI_CUSTOM_NODES_DIR=str(self.data / "custom_nodes"),
        )

    def plugins_of(self, name: str) -> set[str]:
        return set(self.worker(name)["plugins"])

    def refused(self, document: dict[str, Any], name: str) -> str:
        """The whole sentence of a submit that is answered 400."""
        with pytest.raises(ApiProblem) as caught:
            self.submit(document, target=name)
        assert (caught.value.status, caught.value.code) == (400, "storage.refused")
        return caught.value.message

    def carried(self, name: str) -> str:
        """The backend by which a run read the upload there, and its output came back whole."""
        run_id = self.submit(CARRY, target=name)
        self.wait_status(run_id, "succeeded")
        (row,) = self.get(f"/api/runs/{run_id}/artifacts")
        assert row["state"] == "stored"
        url = f"{self.url}/api/runs/{run_id}/artifacts/{row['id']}/download"
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.read() == b"HELLO"
        return str(row["backend"])

    def starts(self, python: Path | None = None, **env: str) -> None:
        nodes = self.data / "custom_nodes" / "alone.py"
        nodes.parent.mkdir(parents=True)
        nodes.write_text(NODES)
        uploads = self.data / "files"
        uploads.mkdir()
        (uploads / "words.txt").write_text("hello")
        self.start_server(python=python, **env)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    """A control plane with all plugins but the nodes of torch."""
    site = Alone(root=tmp_path_factory.mktemp("everything"))
    try:
        site.starts()
        yield site
    finally:
        site.aclose()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Alone]:
    """Nothing is started yet."""
    site = Alone(root=tmp_path, settings={})
    yield site
    site.aclose()


# ---------------------------------------------------------------- agents with one plugin


def test_an_agent_with_transfer_alone_carries_uploads_and_refuses_plain_paths(
    everything: Alone, environment: MakeEnvironment
) -> None:
    everything.agent(environment("agent", "storage_transfer"), "box")
    assert everything.plugins_of("box") == {"codefyui-core", "codefyui-storage-transfer"}
    assert everything.carried("box") == "transfer"
    assert everything.refused(PLAIN, "box") == (
        "worker box has no `data` mount; add `--mount data=...` to its agent, or make the run fit the transfer "
        f"backend: {NEEDS_AN_UPLOAD}"
    )


def test_an_agent_with_mount_alone_works_in_the_servers_folder_and_says_when_it_is_gone(
    everything: Alone, environment: MakeEnvironment
) -> None:
    share = everything.root / "share"
    share.symlink_to(everything.data)
    everything.agent(environment("agent", "storage_mount"), "desk", "--mount", f"data={share}")
    assert everything.plugins_of("desk") == {"codefyui-core", "codefyui-storage-mount"}
    assert everything.carried("desk") == "mount"
    share.unlink()
    wait_for(lambda: not everything.worker("desk")["mounts"], 60, "the agent to say that its mount is gone")
    assert everything.refused(CARRY, "desk") == (
        "worker desk has no `data` mount and has no transfer backend; add `--mount data=...` to its agent, "
        "or install codefyui-storage-transfer there"
    )


def test_the_tls_connector_needs_no_library_beyond_the_agents(environment: MakeEnvironment) -> None:
    said = environment("agent", "connect_tls").run(
        "-c",
        "import importlib.util as here\n"
        "from unittest.mock import MagicMock\n"
        "from codefyui_core.loading import load\n"
        "from codefyui_core.plugin import Plane\n"
        "registry = load(plane=Plane.AGENT)\n"
        "print(*(type(one.agent(MagicMock())).__name__ for one in registry.connectors.values()))\n"
        "print(*(option.option.opts[0] for option in registry.agent_options()), here.find_spec('cryptography'))",
    )
    assert said.splitlines() == ["DirectAgent TlsAgent", "--ca-fingerprint None"]


@pytest.mark.spec("s3/boto3-is-an-optional-extra")
def test_the_s3_plugin_brings_boto3_by_an_extra_alone(environment: MakeEnvironment) -> None:
    said = environment("agent", "storage_s3").run(
        "-c",
        "import importlib.metadata as found, importlib.util as here\n"
        "of = found.metadata('codefyui-storage-s3')\n"
        "print(of.get_all('Provides-Extra'), here.find_spec('boto3'))\n"
        "print([line for line in of.get_all('Requires-Dist') if line.startswith('boto3')])",
    )
    assert said.splitlines() == ["['s3'] None", "[\"boto3>=1.40; extra == 's3'\"]"]


def test_an_agent_with_s3_alone_takes_runs_without_files_while_the_bucket_is_off(
    everything: Alone, environment: MakeEnvironment
) -> None:
    everything.agent(environment("agent", "storage_s3"), "far")
    assert everything.plugins_of("far") == {"codefyui-core", "codefyui-storage-s3"}
    assert everything.refused(CARRY, "far") == (
        "worker far has no `data` mount and has no transfer backend; add `--mount data=...` to its agent, "
        "or install codefyui-storage-transfer there"
    )
    run_id = everything.submit(graph("TrialCount", {"n": 3}), target="far")
    everything.wait_status(run_id, "succeeded")


# ---------------------------------------------------------------- control planes with one plugin


def test_a_server_with_transfer_alone_says_what_cannot_travel(
    alone: Alone, environment: MakeEnvironment
) -> None:
    alone.starts(environment("control", "storage_transfer").python)
    alone.agent(environment("agent", "storage_transfer"), "box")
    assert alone.refused(PLAIN, "box") == (
        "worker box is on another machine than the server; run it on the server, or make the run fit the transfer "
        f"backend: {NEEDS_AN_UPLOAD}"
    )
    assert alone.carried("box") == "transfer"


@pytest.mark.spec("s3/boto3-is-an-optional-extra")
def test_a_server_with_s3_alone_names_the_library_that_a_worker_lacks(
    alone: Alone, environment: MakeEnvironment, bucket: str
) -> None:
    settings = {
        "CODEFYUI_S3_ENABLED": "1",
        "CODEFYUI_S3_ENDPOINT_URL": bucket,
        "CODEFYUI_S3_BUCKET": "runs",
        "CODEFYUI_S3_ADDRESSING_STYLE": "path",
        "CODEFYUI_S3_ACCESS_KEY_ID": "key",
        "CODEFYUI_S3_SECRET_ACCESS_KEY": "secret",
    }
    alone.starts(environment("control", "storage_s3", "boto3").python, **settings)
    on = f"S3 artifact backend on: bucket runs at {bucket}"
    wait_for(lambda: alone.server is not None and on in alone.server.said(), 60, "the bucket to be on")
    alone.agent(environment("agent", "storage_s3"), "far")
    assert alone.refused(CARRY, "far") == (
        "worker far is on another machine than the server and has no boto3 for the S3 backend; run it on the "
        f"server, or {NO_BOTO3}"
    )


@pytest.fixture
def bucket() -> Iterator[str]:
    """The address of a store that keeps single objects in memory: enough to be tried with one."""
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            sent = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "aws-chunked":
                size = int(sent.split(b";")[0].split(b"\r\n")[0], 16)
                sent = sent.partition(b"\r\n")[2][:size]
            objects[self.path.partition("?")[0]] = sent
            self.answer(200, b"")

        def do_GET(self) -> None:
            found = objects.get(self.path.partition("?")[0])
            self.answer(404 if found is None else 200, found or b"")

        def do_DELETE(self) -> None:
            objects.pop(self.path.partition("?")[0], None)
            self.answer(204, b"")

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"0"')
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()
