"""The direct way: what the server listens on, which names it answers to, what the agent says of plain HTTP."""

import http.client
import json
import socket
from contextlib import closing

import pytest
from e2e_site import Site, graph, wait_for

from codefyui_core.cli.client import ApiProblem, HttpApi, Running, Server
from codefyui_core.control.api.guard import own_addresses

pytestmark = pytest.mark.service


def lan_address() -> str:
    """An address of this machine that isn't loopback (RFC 5737's test network leads the route there)."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            found = str(probe.getsockname()[0])
        except OSError:
            found = "127.0.0.1"
    if found.startswith("127."):
        own = [a for a in own_addresses() if ":" not in a and not a.startswith("127.")]
        assert own, "this machine has no address but loopback"
        return own[0]
    return found


def status_of(address: str, port: int, host: str, method: str = "GET", path: str = "/api/health") -> int:
    connection = http.client.HTTPConnection(address, port, timeout=10)
    try:
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def port_of(site: Site) -> int:
    return int(site.url.rpartition(":")[2])


@pytest.mark.spec(
    "direct/default-bind-loopback", "direct/unknown-host-refused", "direct/extra-allowed-hosts-default-empty"
)
def test_by_default_only_this_machine_reaches_the_server(site: Site) -> None:
    site.start_server(ready=False)
    port = port_of(site)
    assert status_of("127.0.0.1", port, f"127.0.0.1:{port}") == 200
    with pytest.raises(ConnectionRefusedError):
        status_of(lan_address(), port, f"{lan_address()}:{port}")
    assert status_of("127.0.0.1", port, "gpu-gw.lan:8000") == 421
    assert status_of("127.0.0.1", port, "gpu-gw.lan:8000", "POST", "/api/workers/enroll") == 421
    assert status_of("127.0.0.1", port, "gpu-gw.lan:8000", "GET", "/ws/worker") == 421


@pytest.mark.spec(
    "direct/host-flag-binds-all",
    "direct/own-addresses-accepted-as-host",
    "direct/agent-warns-once-on-plain-http",
    "direct/plain-http-still-connects",
)
def test_bound_to_all_it_answers_on_the_lan_and_the_agent_warns_once(site: Site) -> None:
    site.start_server("--host", "0.0.0.0", "--port", "0")
    address, port = lan_address(), port_of(site)
    assert status_of(address, port, f"{address}:{port}") == 200
    token = site.enroll_token()
    agent = site.spawn(
        "agent",
        [
            *("-m", "codefyui_core.cli", "agent", "start", "--foreground"),
            *("--control", f"http://{address}:{port}", "--token", token, "--name", "lan"),
        ],
        user_data=site.root / "agent-lan",
    )
    wait_for(lambda: site.worker("lan")["status"] == "online", 60, f"online:\n{agent.said()}")
    run_id = site.submit(graph("TrialCount", {"n": 3}), target="lan")
    site.wait_status(run_id, "succeeded")
    site.keep_port()
    assert site.server is not None
    site.server.kill()
    site.start_server("--host", "0.0.0.0", "--port", str(port))
    wait_for(lambda: site.worker("lan")["status"] == "online", 60, "online again")
    assert agent.said().count("unencrypted") == 1, agent.said()


@pytest.mark.spec("direct/extra-allowed-hosts", "direct/extra-allowed-hosts-read-at-start")
@pytest.mark.spec("setting/extra-allowed-hosts")
def test_a_listed_name_is_answered_for_workers_and_browsers(site: Site) -> None:
    site.start_server(ready=False, CODEFYUI_EXTRA_ALLOWED_HOSTS="gpu-gw.lan:8000")
    port = port_of(site)
    assert status_of("127.0.0.1", port, "gpu-gw.lan:8000") == 200
    assert status_of("127.0.0.1", port, "gpu-gw.lan:8000", "POST", "/api/workers/enroll") != 421
    assert status_of("127.0.0.1", port, "gpu-gw.lan") == 421


def test_a_second_server_on_the_same_data_refuses_to_start(site: Site) -> None:
    site.start_server(ready=False)
    second = site.spawn("second", ["-m", "codefyui_core.control", "--port", "0"], user_data=site.user_data)
    assert second.wait(30) == 1
    said = second.said()
    assert "Traceback" not in said
    assert str(site.processes[0].pid) in said
    assert Running.read(site.user_data) is not None
    assert json.loads(json.dumps(site.get("/api/health")))["status"] in {"starting", "ready"}


def test_a_taken_port_is_said_in_one_line(site: Site) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = site.spawn(
            "server",
            ["-m", "codefyui_core.control", "--port", str(taken.getsockname()[1])],
            user_data=site.user_data,
        )
        assert server.wait(30) == 1
    assert "--port" in server.said()
    assert "Traceback" not in server.said()


def test_changing_something_needs_the_session_token(site: Site) -> None:
    site.start_server(ready=False)
    stranger = HttpApi(Server(url=site.url, token="wrong"))
    for method, path in (("POST", "/api/runs"), ("POST", "/api/server/stop"), ("DELETE", "/api/workers/x")):
        with pytest.raises(ApiProblem) as refused:
            stranger.call(method, path, {})
        assert refused.value.code == "auth.token"
