"""Agents that reach the control plane through a TLS proxy: what they check at each connection, and what is kept."""

import asyncio
import contextlib
import json
import logging
from types import SimpleNamespace

import pytest

from cdui_develop.certificates import Authority, self_signed, server_context
from codefyui_core.agent.command import forget
from codefyui_core.agent.one_run import Status
from codefyui_core.errors import CodefyError, LinkProblem, UsageProblem
from codefyui_core.loading import load
from codefyui_core.plugin import Plane


class Proxy:
    """Ends TLS on loopback and passes on what comes, bytes for bytes."""

    def __init__(self, control, folder):
        self.control = control
        self.folder = folder
        self.context = server_context()
        self.open = set()
        self.failed = 0

    @property
    def url(self):
        return f"https://127.0.0.1:{self.port}"

    async def start(self, issued):
        issued.serve_by(self.context, self.folder)
        self.server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    def present(self, issued):
        """From now on; the lines that are open break."""
        issued.serve_by(self.context, self.folder)
        for writer in self.open:
            writer.transport.abort()

    async def _carry(self, reader, writer):
        try:
            await writer.start_tls(self.context)
        except OSError:
            self.failed += 1
            writer.transport.abort()
            return
        self.open.add(writer)
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.control.port)
        ways = [_copy(reader, up_writer), _copy(up_reader, writer)]
        try:
            await asyncio.gather(*ways)
        finally:
            self.open.discard(writer)

    async def aclose(self):
        self.server.close()
        for writer in self.open:
            writer.transport.abort()


async def _copy(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture(autouse=True)
def said(caplog):
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture
def authority(tmp_path, monkeypatch):
    """The one that this machine trusts."""
    made = Authority()
    (tmp_path / "bundle.pem").write_bytes(made.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "bundle.pem"))
    return made


@pytest.fixture
async def behind(line, authority, tmp_path):
    """The control plane behind a proxy whose certificate is self-signed."""
    line.registry = load(plane=Plane.AGENT, only=("builtin", "connect_tls"))
    first = self_signed("elsewhere.example")
    proxy = Proxy(line.control, tmp_path)
    await proxy.start(first)

    async def agent(*pins, **more):
        options = {"tls": {"ca_fingerprint": list(pins)}} if pins else {}
        return await line.agent(**{"url": proxy.url, "connector_options": options, **more})

    yield SimpleNamespace(line=line, control=line.control, proxy=proxy, agent=agent, first=first)
    await proxy.aclose()


def file(behind):
    return behind.line.user_data / "agent" / f"127.0.0.1-{behind.proxy.port}.token"


def pins(behind):
    return json.loads(file(behind).read_text())["keep"]["connector"].get("tls", {}).get("fingerprints")


def sockets(behind):
    return [path for _, path, _ in behind.control.requests].count("/ws/worker")


async def failure(agent):
    with pytest.raises(CodefyError) as caught:
        await agent.ended()
    return caught.value


async def enrolled(behind, issued):
    """An agent enrolled by the key of that certificate, and ended."""
    behind.proxy.present(issued)
    agent = await behind.agent(issued.fingerprint)
    link = await behind.control.online()
    assert await agent.stop() == 0
    await behind.control.offline()
    return link.worker_id


@pytest.mark.spec(
    "trust/pin-mismatch-before-token", "trust/pin-mismatch-exit-2", "trust/tls-checked-on-enroll"
)
@pytest.mark.spec("trust/pin-mismatch-prints-both")
@pytest.mark.parametrize("more", [{}, {"one_shot": True}])
async def test_a_wrong_pin_ends_an_enrollment_with_2_before_the_token_is_sent(behind, more):
    wrong = self_signed("x").fingerprint
    error = await failure(await behind.agent(wrong, **more))
    assert isinstance(error, LinkProblem)
    assert error.exit_code == 2
    assert wrong in error.message
    assert behind.first.fingerprint in error.message
    assert behind.control.requests == []


@pytest.mark.spec("tls/self-signed-needs-fingerprint", "trust/untrusted-unpinned-enroll-fails")
async def test_without_a_pin_a_self_signed_certificate_ends_an_enrollment_with_1(behind):
    token = await behind.control.token()
    error = await failure(await behind.agent(token=token))
    assert error.exit_code == 1
    assert behind.first.fingerprint in error.message
    assert behind.control.requests == []
    (row,) = await behind.control.service.tokens()
    assert row["uses_left"] == 1


@pytest.mark.spec("tls/self-signed-needs-fingerprint", "trust/pin-stored-in-credential-file")
@pytest.mark.spec("trust/pin-kept-without-flag", "service/pin-kept-in-credential-file")
async def test_a_pin_is_kept_with_the_credential_and_holds_without_the_flag(behind):
    worker = await enrolled(behind, behind.first)
    assert pins(behind) == [behind.first.fingerprint]
    agent = await behind.agent()
    link = await behind.control.online()
    assert link.worker_id == worker
    assert link.trust == {"kind": "pin", "fingerprint": behind.first.fingerprint, "note": ""}
    await agent.stop()
    connections = sockets(behind)
    behind.proxy.present(self_signed("x"))
    assert await (await behind.agent()).ended() == 2
    assert sockets(behind) == connections


@pytest.mark.spec("trust/repin-keeps-credential", "trust/repin-recorded-after-connect")
async def test_another_pin_is_kept_once_a_connection_under_it_was_accepted(behind):
    worker = await enrolled(behind, behind.first)
    second = self_signed("x")
    behind.proxy.present(second)
    before = file(behind).read_bytes()
    assert await (await behind.agent(self_signed("y").fingerprint)).ended() == 2
    assert file(behind).read_bytes() == before
    await behind.agent(second.fingerprint, token=False)
    assert (await behind.control.online()).worker_id == worker
    assert pins(behind) == [second.fingerprint]


@pytest.mark.spec("trust/forget-deletes-pin")
async def test_a_forgotten_credential_takes_its_pin_along(behind):
    await enrolled(behind, behind.first)
    assert forget(behind.line.user_data, behind.proxy.url)
    assert not file(behind).exists()
    assert "--token" in (await failure(await behind.agent(token=False))).message


@pytest.mark.spec("trust/invalid-stored-pin-logged-and-ignored", "trust/invalid-stored-pin-keeps-credential")
async def test_a_damaged_pin_costs_no_credential(behind, authority, said):
    worker = await enrolled(behind, behind.first)
    stored = json.loads(file(behind).read_text())
    stored["keep"]["connector"]["tls"] = {"fingerprints": ["garbage"]}
    file(behind).write_text(json.dumps(stored))
    behind.proxy.present(authority.issue("127.0.0.1"))
    await behind.agent(token=False)
    link = await behind.control.online()
    assert (link.worker_id, link.trust["kind"]) == (worker, "ca")
    assert f"{file(behind)}: the pin 'garbage' is no fingerprint and is ignored" in said.text


@pytest.mark.spec("trust/tls-checked-on-every-websocket", "tls/certificate-checked-each-connection")
@pytest.mark.spec("trust/same-key-renewal-keeps-pin")
async def test_a_running_agent_waits_for_the_pinned_key_and_takes_its_renewal(behind):
    await behind.agent(behind.first.fingerprint)
    await behind.control.online()
    connections = sockets(behind)
    behind.proxy.present(self_signed("x"))
    await behind.line.until(lambda: behind.proxy.failed >= 3, "three refused handshakes")
    assert sockets(behind) == connections
    behind.proxy.present(self_signed("renewed.example", key=behind.first.key))
    await behind.line.until(lambda: sockets(behind) > connections)
    await behind.control.online()


@pytest.mark.spec("trust/untrusted-unpinned-agent-retries", "trust/first-error-shows-presented-fingerprint")
@pytest.mark.spec("trust/repaired-proxy-needs-no-restart", "trust/ca-trusted-records-nothing")
async def test_a_running_agent_says_what_it_refuses_and_comes_back_when_that_is_put_right(
    behind, authority, said
):
    behind.proxy.present(authority.issue("127.0.0.1"))
    await behind.agent()
    await behind.control.online()
    connections = sockets(behind)
    bad = self_signed("127.0.0.1")
    behind.proxy.present(bad)
    await behind.line.until(lambda: behind.proxy.failed >= 4, "refused handshakes")
    warnings = [one.getMessage() for one in said.records if one.levelname == "WARNING"]
    (told,) = [text for text in warnings if "certificate" in text]
    assert "self-signed certificate" in told
    assert bad.fingerprint in told
    assert sockets(behind) == connections
    behind.proxy.present(authority.issue("127.0.0.1"))  # with another key
    await behind.line.until(lambda: sockets(behind) > connections)
    await behind.control.online()
    assert pins(behind) is None


@pytest.mark.spec("trust/pin-flag-format")
async def test_what_cannot_be_a_pin_is_wrong_use(behind):
    error = await failure(await behind.agent("abc", token=False))
    assert isinstance(error, UsageProblem)
    plain = await behind.agent(behind.first.fingerprint, url=behind.control.url, token=False)
    assert "--ca-fingerprint doesn't fit http://" in (await failure(plain)).message


async def test_a_one_shot_agent_whose_pin_is_outdated_ends_with_2(behind):
    await enrolled(behind, behind.first)
    behind.proxy.present(self_signed("x"))
    assert await (await behind.agent(one_shot=True)).ended() == Status.REFUSED == 2
