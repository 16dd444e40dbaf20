"""The direct connector."""

import errno
import socket
import ssl
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from cdui_develop.certificates import self_signed, server_context
from codefyui_core.builtin.direct.address import is_loopback, parse
from codefyui_core.builtin.direct.agent import DirectAgent
from codefyui_core.builtin.direct.connector import DirectConnector
from codefyui_core.builtin.direct.control import DirectControl
from codefyui_core.plugin import Claim, Connector, Moment, Purpose, TrustKind, UsageProblem
from codefyui_core.testing.suites import ConnectorSuite
from codefyui_core.testing.suites.connector import echoed, serving, session_of, target_of

FIRST = Moment(purpose=Purpose.ENROLL, accepted_before=False, failures=1)
LATER = Moment(purpose=Purpose.SESSION, accepted_before=True, failures=1)


class TestDirectHoldsToTheContract(ConnectorSuite):
    @pytest.fixture
    def connector(self) -> Connector:
        return DirectConnector()


@pytest.mark.parametrize(
    "url", ["http://cp:8000", "https://cp", "HTTPS://CP.example:8443/", "http://[::1]:8000"]
)
def test_it_takes_http_addresses_when_nobody_knows_better(url: str, tmp_path: Path) -> None:
    assert DirectAgent().claims(target_of(url, {}, tmp_path)) is Claim.FALLBACK
    assert DirectControl().serves(url) is Claim.FALLBACK


@pytest.mark.parametrize("url", ["http://", "http://cp:port", "http://a@cp", "http://cp?x=1", "https://[::1"])
def test_an_address_that_cannot_be_dialed_is_a_usage_problem(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem):
        DirectAgent().claims(target_of(url, {}, tmp_path))
    assert DirectControl().serves(url) is Claim.NO


@given(st.text(max_size=40))
def test_no_text_is_an_address_by_accident(text: str) -> None:
    try:
        address = parse(text)
    except UsageProblem:
        return
    assert address is None or (address.scheme in {"http", "https"} and address.host)


def test_https_needs_no_port() -> None:
    address = parse("https://cp.example/")
    assert address is not None
    assert (address.port, address.base_url) == (443, "https://cp.example")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("cp.localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("cp.example", False),
        ("localhost.example", False),
        ("0.0.0.0", False),
    ],
)
def test_loopback_is_known_by_name_and_number(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://192.168.1.5:8000", TrustKind.CLEAR),
        ("http://cp.example", TrustKind.CLEAR),
        ("http://127.0.0.1:8000", TrustKind.LOCAL),
        ("http://[::1]:8000", TrustKind.LOCAL),
        ("http://localhost", TrustKind.LOCAL),
        ("https://cp.example", TrustKind.CA),
        ("https://127.0.0.1", TrustKind.CA),
    ],
)
async def test_trust_is_what_protects_the_connection(url: str, kind: TrustKind, tmp_path: Path) -> None:
    async with DirectAgent().dial(target_of(url, {}, tmp_path)) as dial:
        assert dial.trust().kind is kind


async def test_a_name_that_means_this_machine_is_local_once_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def by_hosts_file(host: str, *rest: object, **more: object) -> object:
        return real("127.0.0.1" if host == "gpu-box.example" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", by_hosts_file)
    async with serving() as url:
        port = url.rpartition(":")[2]
        target = target_of(f"http://gpu-box.example:{port}", {}, tmp_path)
        async with DirectAgent().dial(target) as dial, session_of(dial) as session:
            assert dial.trust().kind is TrustKind.CLEAR
            assert await echoed(session, dial, b"x") == b"x"
            assert dial.trust().kind is TrustKind.LOCAL


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://192.168.1.5:8000", True), ("http://127.0.0.1:8000", False), ("https://cp.example", False)],
)
async def test_the_dialog_says_when_a_link_is_not_encrypted(url: str, warned: bool) -> None:
    assert bool((await DirectControl().invite(url)).notes) is warned


def _wrapped(cause: BaseException) -> Exception:
    try:
        raise OSError("outer") from cause
    except OSError as error:
        return error


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "is the control plane running"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "firewall"),
        (ssl.SSLError(1, "wrong version number"), "http:// address"),
    ],
)
async def test_a_failure_is_explained_by_its_cause(cause: BaseException, said: str, tmp_path: Path) -> None:
    agent = DirectAgent()
    async with agent.dial(target_of("http://cp.example:8000", {}, tmp_path)):
        problem = await agent.diagnose(_wrapped(cause), FIRST)
    assert said in problem.message
    assert "cp.example:8000" in problem.message
    assert problem.exit_code is None


def _self_signed(folder: Path) -> ssl.SSLContext:
    context = server_context()
    self_signed("127.0.0.1").serve_by(context, folder)
    return context


@pytest.mark.spec("trust/untrusted-unpinned-enroll-fails")
async def test_no_request_reaches_a_server_whose_certificate_is_not_accepted(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(request: web.BaseRequest) -> web.Response:
        seen.append(request.path)
        return web.Response()

    server = web.ServerRunner(web.Server(note))
    await server.setup()
    try:
        await web.TCPSite(server, "127.0.0.1", 0, ssl_context=_self_signed(tmp_path)).start()
        agent = DirectAgent()
        target = target_of(f"https://127.0.0.1:{server.addresses[0][1]}", {}, tmp_path)
        async with agent.dial(target) as dial, session_of(dial) as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError) as caught:
                await session.get(dial.base_url)
            problem = await agent.diagnose(caught.value, FIRST)
    finally:
        await server.cleanup()
    assert seen == []
    assert (problem.code, problem.exit_code) == ("link.untrusted", 1)
    assert "self-signed certificate" in problem.message


@pytest.mark.spec("trust/repaired-proxy-needs-no-restart")
async def test_an_authority_that_was_installed_meanwhile_counts_at_the_next_dial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = web.ServerRunner(web.Server(_ok))
    await server.setup()
    try:
        await web.TCPSite(server, "127.0.0.1", 0, ssl_context=_self_signed(tmp_path)).start()
        agent = DirectAgent()
        target = target_of(f"https://127.0.0.1:{server.addresses[0][1]}", {}, tmp_path)
        async with agent.dial(target) as dial, session_of(dial) as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await session.get(dial.base_url)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "served.pem"))
        async with agent.dial(target) as dial, session_of(dial) as session:
            assert (await session.get(dial.base_url)).status == 200
    finally:
        await server.cleanup()


async def _ok(request: web.BaseRequest) -> web.Response:
    return web.Response()


@pytest.mark.spec("trust/untrusted-unpinned-enroll-fails", "trust/untrusted-unpinned-agent-retries")
async def test_a_certificate_that_is_not_accepted_ends_a_start_and_is_retried_later() -> None:
    refused = ssl.SSLCertVerificationError(1, "self-signed certificate")
    agent = DirectAgent()
    assert (await agent.diagnose(_wrapped(refused), FIRST)).exit_code == 1
    later = await agent.diagnose(_wrapped(refused), LATER)
    assert later.exit_code is None
    assert "codefyui-connect-tls" in later.message
