"""A real server against its own description: no crash, and no answer that isn't described."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
SEED = "20261129"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
UNSAFE = ("/api/server/stop", "/api/stream", "/api/nodes/reload")
"""They end the server, never end, or start a process each."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Shared by the tests of this module; it has one run that has ended, with metrics and a file."""
    spec = importlib.util.spec_from_file_location("site_for_api", CHECKOUT / "tests" / "e2e" / "site.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    site = module.Site(root=tmp_path_factory.mktemp("api"), settings={})
    try:
        site.start_server()
        graph = json.loads((CHECKOUT / "examples" / "digits-cnn.graph.json").read_text())
        for node in graph["nodes"]:
            params = node["data"].get("params", {})
            params.update({"epochs": 1} if "epochs" in params else {})
        site.run_id = site.post("/api/runs", {"graph": graph})["run_id"]
        module.wait_for(lambda: not site.get(f"/api/runs/{site.run_id}")["active"], 90, "the run to end")
        site.artifact_id = site.get(f"/api/runs/{site.run_id}/artifacts")[0]["id"]
        yield site
    finally:
        site.aclose()


def fuzz(server, *arguments, examples, within_s, parameters=None, checks=CHECKS):
    """Every operation but the unsafe ones; what schemathesis says."""
    folder = server.root
    config = folder / "schemathesis.toml"
    lines = [f'"path.{name}" = "{value}"\n' for name, value in (parameters or {}).items()]
    config.write_text("[parameters]\n" + "".join(lines))
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        *("--config-file", str(config)),
        *("run", f"{server.url}/openapi.json"),
        *("--checks", checks),
        *("--phases", "examples,coverage,fuzzing"),
        *("--max-examples", str(examples), "--seed", SEED, "--no-shrink", "--max-time", str(within_s)),
        *("--generation-database", "none", "--suppress-health-check", "all"),
        *("--request-timeout", "30", "--warnings", "off", "--no-color"),
        *(word for path in UNSAFE for word in ("--exclude-path", path)),
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=170, check=False)
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr
    assert server.server.popen.poll() is None
    assert "Traceback" not in server.server.said(), server.server.said()[-8_000:]
    return done.stdout


def token(server):
    return ("--header", f"X-CodefyUI-Token: {server.token}")


@pytest.mark.service
def test_any_request_is_answered_as_it_is_described(server):
    said = fuzz(server, *token(server), examples=20, within_s=35)
    selected, tested = re.search(r"Selected: (\d+)/\d+\s+Tested: (\d+)", said).groups()
    assert selected == tested != "0"


@pytest.mark.service
def test_answers_about_things_that_are_there_have_the_described_shapes(server):
    parameters = {"run_id": server.run_id, "artifact_id": server.artifact_id}
    chosen = ("--include-path-regex", "^/api/runs/", "--exclude-method", "DELETE")
    fuzz(server, *token(server), *chosen, examples=5, within_s=12, parameters=parameters)


@pytest.mark.service
def test_without_the_session_token_nothing_is_changed_and_everything_is_described(server):
    said = fuzz(server, "--exclude-method", "GET", examples=5, within_s=12, checks=f"{CHECKS},ignored_auth")
    assert "Tested: " in said
    assert server.get(f"/api/runs/{server.run_id}")["status"] == "succeeded"
