"""Through the site of nginx that people are given: its certificate is trusted or pinned, else nothing is sent."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_site import Process, Site, graph, wait_for

from cdui_develop.certificates import Authority, Issued, self_signed
from cdui_develop.nginx import NginxSite

pytestmark = [pytest.mark.service, pytest.mark.needs("nginx")]

AUTHORITY = Authority()
MIB = 1 << 20


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, plugins: dict[str, str]) -> Iterator[Site]:
    """A server that knows where the proxy's certificate will be, for all tests of the module."""
    made = Site(root=tmp_path_factory.mktemp("reached"), settings=dict(plugins))
    try:
        made.start_server(CODEFYUI_TLS_CERT_FILE=str(made.root / "proxy" / "leaf.pem"))
        yield made
    finally:
        made.aclose()


@pytest.fixture(scope="module")
def nginx(site: Site) -> Iterator[NginxSite]:
    made = NginxSite(site.root / "proxy", site.url, trusted())
    made.start()
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def quiet(site: Site) -> Iterator[None]:
    """Agents of earlier tests are gone."""
    yield
    for process in site.processes:
        if process is not site.server and process.popen.poll() is None:
            process.terminate()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The authorities of a worker's machine."""
    file = tmp_path_factory.mktemp("authorities") / "ca.pem"
    file.write_bytes(AUTHORITY.pem)
    return str(file)


def trusted() -> Issued:
    """By workers' machines that have the bundle."""
    return AUTHORITY.issue("localhost")


def start(site: Site, nginx: NginxSite, name: str, *words: str, online: bool = True, **env: str) -> Process:
    """An agent on another machine, behind the proxy."""
    return site.start_agent(
        name,
        *("--control", nginx.address, *words),
        online=online,
        elsewhere=True,
        CODEFYUI_DATA_DIR=str(site.root / f"own-{name}"),
        CODEFYUI_CUSTOM_NODES_DIR=str(site.data / "custom_nodes"),
        **env,
    )


def uploads(nginx: NginxSite) -> list[str]:
    return [line for line in nginx.requests if "/upload" in line]


@pytest.mark.spec("reach/socket-scheme-follows-url", "tls/nginx-site-carries-worker-socket")
def test_a_trusted_certificate_is_all_that_enrollment_socket_and_runs_take(
    site: Site, nginx: NginxSite, bundle: str
) -> None:
    nginx.present(trusted())
    before = len(nginx.requests)
    agent = start(site, nginx, "box", SSL_CERT_FILE=bundle)
    run_id = site.submit(graph("TrialCount", {"n": 3}), target="box")
    site.wait_status(run_id, "succeeded")
    assert site.worker("box")["trust"]["kind"] == "ca"
    assert agent.terminate() == 0
    told = wait_for(
        lambda: (lines := nginx.requests[before:]) and "GET /ws/worker 101" in str(lines) and lines,
        20,
        "the socket in the proxy's log",
    )
    assert told[0].startswith("POST /api/workers/enroll 200")
    assert "unencrypted" not in agent.said()


def test_a_certificate_that_the_machine_does_not_trust_is_refused_before_the_token_is_sent(
    site: Site, nginx: NginxSite
) -> None:
    issued = trusted()
    nginx.present(issued)
    before = nginx.requests
    agent = start(site, nginx, "stranger", online=False)
    assert agent.wait(60) == 1
    assert "its certificate is not accepted" in agent.said()
    assert f"it presents {issued.fingerprint}" in agent.said()
    assert "Traceback" not in agent.said()
    assert nginx.requests == before


@pytest.mark.spec(
    "trust/pin-mismatch-before-token", "trust/pin-mismatch-exit-2", "trust/pin-mismatch-prints-both"
)
def test_a_start_in_the_background_with_another_pin_ends_with_2_before_a_request(
    site: Site, nginx: NginxSite
) -> None:
    issued, wrong = self_signed("localhost"), self_signed("localhost").fingerprint
    nginx.present(issued)
    before = nginx.requests
    words = ["agent", "start", "--control", nginx.address, "--token", site.enroll_token()]
    started = site.spawn(
        "wrong",
        ["-m", "codefyui_core.cli", *words, "--ca-fingerprint", wrong],
        user_data=site.root / "agent-wrong",
    )
    assert started.wait(60) == 2
    assert f"Expected {wrong}, presented {issued.fingerprint}" in started.said()
    assert nginx.requests == before


@pytest.mark.spec("tls/nginx-site-carries-artifact-uploads", "trust/tls-checked-on-file-transfers")
@pytest.mark.spec("transfer/same-certificate-check-and-pin")
@pytest.mark.parametrize("by", ["authority", "pin"])
def test_a_file_is_not_sent_to_another_certificate_and_goes_on_when_the_right_one_is_back(
    site: Site, nginx: NginxSite, bundle: str, by: str, tmp_path: Path
) -> None:
    issued = trusted()
    nginx.present(issued)
    words = ["--ca-fingerprint", issued.fingerprint] if by == "pin" else []
    agent = start(site, nginx, f"far-{by}", *words, SSL_CERT_FILE=bundle)
    go_on = tmp_path / "go-on"
    steps = json.dumps([("hold", str(go_on)), ("write", f"output/{by}.bin", 1, 3 * MIB)])
    run_id = site.submit(graph("TrialCarry", {"file": "", "steps": steps}), target=f"far-{by}")
    site.wait_status(run_id, "running")
    before = uploads(nginx)
    nginx.present(trusted() if by == "pin" else Authority().issue("localhost"))
    go_on.touch()
    wait_for(lambda: "certificate" in agent.said(), 60, f"the agent to refuse it:\n{agent.said()}")
    assert uploads(nginx) == before
    assert site.run(run_id)["status"] == "running"
    nginx.present(issued)
    site.wait_status(run_id, "succeeded")
    assert uploads(nginx) != before
    (row,) = site.get(f"/api/runs/{run_id}/artifacts")
    assert (row["backend"], row["state"], row["size_bytes"]) == ("transfer", "stored", 3 * MIB)


@pytest.mark.spec("trust/cert-file-adds-flag-to-command", "trust/same-key-renewal-keeps-pin")
@pytest.mark.spec("trust/repin-keeps-credential", "trust/repin-recorded-after-connect")
def test_the_generated_command_pins_the_key_whose_renewal_is_taken_and_whose_change_needs_a_new_pin(
    site: Site, nginx: NginxSite
) -> None:
    first, second = self_signed("elsewhere.example"), self_signed("elsewhere.example")
    nginx.present(first)
    made = site.post("/api/workers/tokens", {"address": nginx.address})
    command = [*shlex.split(made["command"])[1:], "--foreground", "--name", "pinned"]
    assert command[-5:-3] == ["--ca-fingerprint", first.fingerprint]
    agent = site.spawn("pinned", ["-m", "codefyui_core.cli", *command], user_data=site.root / "agent-pinned")

    def online() -> dict[str, object] | None:
        row = site.worker("pinned")
        return row if row["status"] == "online" and row["trust"] is not None else None

    row = wait_for(online, 90, f"pinned online:\n{agent.said()}")
    assert row["trust"]["fingerprint"] == first.fingerprint
    nginx.stop()
    wait_for(lambda: site.worker("pinned")["status"] == "offline", 30, "the line to break")
    self_signed("renewed.example", key=first.key).write(nginx.folder)
    nginx.start()
    wait_for(online, 60, f"pinned back with the renewed certificate:\n{agent.said()}")
    assert agent.terminate() == 0
    nginx.present(second)
    assert start(site, nginx, "pinned", online=False).wait(60) == 2
    start(site, nginx, "pinned", "--ca-fingerprint", second.fingerprint)
    again = site.worker("pinned")
    assert (again["id"], again["trust"]["fingerprint"]) == (row["id"], second.fingerprint)
    (file,) = (site.root / "agent-pinned" / "agent").glob("*.token")
    assert json.loads(file.read_text())["keep"]["connector"]["tls"] == {"fingerprints": [second.fingerprint]}
