"""What an agent's dial trusts, in real handshakes on loopback."""

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest

from cdui_develop.certificates import Authority, Issued, new_key, self_signed
from codefyui_connect_tls.agent import TlsAgent
from codefyui_connect_tls.pins import to_keep
from codefyui_core.plugin import (
    Claim,
    Dial,
    JsonObject,
    LinkProblem,
    Moment,
    Purpose,
    Target,
    TrustKind,
    UsageProblem,
)
from codefyui_core.testing.suites.connector import session_of

if TYPE_CHECKING:
    from conftest import Proxy

ENROLLING = Moment(purpose=Purpose.ENROLL, accepted_before=False, failures=1)
STARTING = Moment(purpose=Purpose.SESSION, accepted_before=False, failures=1)
RUNNING = Moment(purpose=Purpose.SESSION, accepted_before=True, failures=1)


def target(proxy: "Proxy", *pins: str, kept: JsonObject | None = None, url: str = "") -> Target:
    return Target(
        url=url or proxy.url,
        options={"ca_fingerprint": list(pins)} if pins else {},
        kept=kept or {},
        credential_file=Path("/user/agent/cp-443.token"),
    )


async def ask(session: aiohttp.ClientSession, dial: Dial) -> int:
    async with session.post(f"{dial.base_url}/api", data=b"the token") as answer:
        return answer.status


async def dialed(agent: TlsAgent, to: Target) -> Dial:
    """One request over a dial of its own."""
    async with agent.dial(to) as dial, session_of(dial) as session:
        assert await ask(session, dial) == 200
    return dial


async def refused(agent: TlsAgent, to: Target, moment: Moment = STARTING) -> LinkProblem:
    """What the agent says of a request that fails."""
    async with agent.dial(to) as dial, session_of(dial) as session:
        with pytest.raises(aiohttp.ClientError) as caught:
            await ask(session, dial)
        return await agent.diagnose(caught.value, moment)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authority that this machine trusts."""
    authority = Authority()
    (tmp_path / "bundle.pem").write_bytes(authority.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "bundle.pem"))
    return authority


# ---------------------------------------------------------------- pins


@pytest.mark.spec("trust/pin-skips-ca-and-hostname", "tls/self-signed-needs-fingerprint")
async def test_a_pinned_key_needs_no_authority_and_no_name(agent: TlsAgent, proxy: "Proxy") -> None:
    issued = self_signed("elsewhere.example")
    proxy.present(issued)
    dial = await dialed(agent, target(proxy, issued.fingerprint))
    assert dial.trust().kind is TrustKind.PIN
    assert dial.trust().fingerprint == issued.fingerprint
    assert dial.keep == to_keep([issued.fingerprint])


@pytest.mark.spec("trust/pin-is-spki-sha256", "trust/same-key-renewal-keeps-pin")
async def test_every_certificate_of_the_pinned_key_is_accepted(agent: TlsAgent, proxy: "Proxy") -> None:
    key = new_key()
    for issued in (self_signed("a", key=key), Authority().issue("b", key=key, expired=True)):
        proxy.present(issued)
        await dialed(agent, target(proxy, issued.fingerprint))


@pytest.mark.spec("trust/pin-leaf-only", "trust/pin-leaf-on-every-python")
async def test_the_key_of_an_authority_in_the_chain_does_not_match(agent: TlsAgent, proxy: "Proxy") -> None:
    authority = Authority()
    leaf = authority.issue("127.0.0.1")
    proxy.present(leaf)
    above = Issued(certificate=authority.certificate, key=authority.key)
    assert (await refused(agent, target(proxy, above.fingerprint))).code == "link.pin_mismatch"
    assert proxy.requests == []
    await dialed(agent, target(proxy, leaf.fingerprint))


@pytest.mark.spec(
    "trust/pin-mismatch-before-token", "trust/pin-mismatch-prints-both", "trust/pin-mismatch-exit-2"
)
@pytest.mark.parametrize("moment", [ENROLLING, STARTING])
async def test_another_key_ends_a_start_before_anything_is_sent(
    agent: TlsAgent, proxy: "Proxy", trusted: Authority, moment: Moment
) -> None:
    issued, pins = trusted.issue("127.0.0.1"), [self_signed("x").fingerprint, self_signed("y").fingerprint]
    proxy.present(issued)
    problem = await refused(agent, target(proxy, *pins), moment)
    assert proxy.requests == []
    assert f"Expected {pins[0]} or {pins[1]}, presented {issued.fingerprint}" in problem.message
    again = "start with" if moment is ENROLLING else f"cdui agent start --control {proxy.url}"
    assert f"{again} --ca-fingerprint {issued.fingerprint}" in problem.message
    assert problem.exit_code == 2


async def test_an_agent_that_was_accepted_before_waits_for_the_right_key(
    agent: TlsAgent, proxy: "Proxy"
) -> None:
    proxy.present(self_signed("x"))
    problem = await refused(agent, target(proxy, self_signed("y").fingerprint), RUNNING)
    assert problem.exit_code is None
    assert "stop this agent and run cdui agent start" in problem.message


@pytest.mark.spec("transfer/same-certificate-check-and-pin", "trust/tls-checked-on-file-transfers")
async def test_the_pin_holds_for_every_connection_of_a_dial(agent: TlsAgent, proxy: "Proxy") -> None:
    right, wrong = self_signed("x"), self_signed("x")
    proxy.present(right)
    async with agent.dial(target(proxy, right.fingerprint)) as dial, session_of(dial) as session:
        assert await ask(session, dial) == 200
        proxy.present(wrong)
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match=wrong.fingerprint):
            await ask(session, dial)
        assert len(proxy.requests) == 1
        proxy.present(right)
        assert await ask(session, dial) == 200


async def test_of_two_pins_either_is_accepted_and_trust_says_which(agent: TlsAgent, proxy: "Proxy") -> None:
    now, later = self_signed("x"), self_signed("x")
    proxy.present(now)
    to = target(proxy, now.fingerprint, later.fingerprint)
    async with agent.dial(to) as dial, session_of(dial) as session:
        await ask(session, dial)
        assert (dial.trust().fingerprint, dial.trust().note) == (now.fingerprint, "pin 1 of 2")
        proxy.present(later)
        await ask(session, dial)
        assert (dial.trust().fingerprint, dial.trust().note) == (later.fingerprint, "pin 2 of 2")


@pytest.mark.spec("trust/pin-kept-without-flag", "service/pin-kept-in-credential-file")
async def test_a_kept_pin_holds_until_another_is_given(agent: TlsAgent, proxy: "Proxy") -> None:
    old, new = self_signed("x"), self_signed("x")
    kept = to_keep([old.fingerprint])
    proxy.present(new)
    assert (await refused(agent, target(proxy, kept=kept))).exit_code == 2
    dial = await dialed(agent, target(proxy, new.fingerprint, kept=kept))
    assert dial.keep == to_keep([new.fingerprint])


@pytest.mark.spec("trust/invalid-stored-pin-logged-and-ignored", "trust/invalid-stored-pin-keeps-credential")
async def test_a_damaged_pin_is_named_once_with_its_file_and_authorities_decide(
    agent: TlsAgent, proxy: "Proxy", trusted: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.present(trusted.issue("127.0.0.1"))
    kept: JsonObject = {"fingerprints": "garbage"}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            dial = await dialed(agent, target(proxy, kept=kept))
    (said,) = caplog.messages
    assert "/user/agent/cp-443.token: the pin 'garbage'" in said
    assert dial.trust().kind is TrustKind.CA
    assert dial.keep == kept


# ---------------------------------------------------------------- authorities


@pytest.mark.spec("trust/ca-trusted-normal-verification", "trust/ca-trusted-records-nothing")
async def test_an_authority_of_this_machine_is_enough_and_nothing_is_kept(
    agent: TlsAgent, proxy: "Proxy", trusted: Authority
) -> None:
    for _ in range(2):  # with another key each time
        proxy.present(trusted.issue("127.0.0.1"))
        dial = await dialed(agent, target(proxy))
        assert (dial.trust().kind, dial.keep) == (TrustKind.CA, {})


@pytest.mark.spec("trust/ca-trusted-normal-verification")
async def test_a_certificate_for_another_name_is_refused_and_explained(
    agent: TlsAgent, proxy: "Proxy", trusted: Authority
) -> None:
    proxy.present(trusted.issue("cp.example"))
    problem = await refused(agent, target(proxy))
    assert proxy.requests == []
    assert "IP address mismatch" in problem.message
    assert "Dial a name that it is for" in problem.message


@pytest.mark.spec("trust/untrusted-unpinned-enroll-fails", "trust/tls-checked-on-enroll")
@pytest.mark.spec("trust/untrusted-unpinned-agent-retries", "trust/first-error-shows-presented-fingerprint")
@pytest.mark.parametrize(("moment", "status"), [(ENROLLING, 1), (STARTING, None), (RUNNING, None)])
async def test_an_unknown_authority_is_explained_with_the_key_that_is_presented(
    agent: TlsAgent, proxy: "Proxy", moment: Moment, status: int | None
) -> None:
    issued = self_signed("127.0.0.1")
    proxy.present(issued)
    problem = await refused(agent, target(proxy), moment)
    assert proxy.requests == []
    assert (problem.code, problem.exit_code) == ("link.untrusted", status)
    assert "self-signed certificate" in problem.message
    assert f"it presents {issued.fingerprint}" in problem.message


async def test_an_expired_certificate_is_to_be_renewed(
    agent: TlsAgent, proxy: "Proxy", trusted: Authority
) -> None:
    proxy.present(trusted.issue("127.0.0.1", expired=True))
    assert "Renew it on the proxy" in (await refused(agent, target(proxy))).message


@pytest.mark.spec("trust/repaired-proxy-needs-no-restart")
async def test_an_authority_that_is_installed_counts_for_the_dial_that_is_open(
    agent: TlsAgent, proxy: "Proxy", trusted: Authority, tmp_path: Path
) -> None:
    other = Authority("another")
    proxy.present(trusted.issue("127.0.0.1"))
    async with agent.dial(target(proxy)) as dial, session_of(dial) as session:
        await ask(session, dial)
        proxy.present(other.issue("127.0.0.1"))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await ask(session, dial)
        (tmp_path / "bundle.pem").write_bytes(trusted.pem + other.pem)
        async with asyncio.timeout(10):
            while len(proxy.requests) < 2:
                try:
                    await ask(session, dial)
                except aiohttp.ClientConnectorCertificateError:
                    await asyncio.sleep(0.01)


# ---------------------------------------------------------------- addresses


@pytest.mark.spec("tls/https-url-accepted")
async def test_an_address_without_a_port_means_443(agent: TlsAgent, proxy: "Proxy") -> None:
    to = target(proxy, url="https://codefyui.example.com/")
    assert agent.claims(to) is Claim.FITS
    async with agent.dial(to) as dial:
        assert dial.base_url == "https://codefyui.example.com"
        said = await agent.diagnose(ConnectionRefusedError(), RUNNING)
    assert said.message.startswith("codefyui.example.com:443: connection refused")


@pytest.mark.parametrize(
    "url", ["https://", "https://cp:port", "https://a@cp", "https://cp?x=1", "https://[::1"]
)
def test_an_address_that_cannot_be_dialed_is_a_usage_problem(
    agent: TlsAgent, proxy: "Proxy", url: str
) -> None:
    with pytest.raises(UsageProblem):
        agent.claims(target(proxy, url=url))


async def test_a_server_without_tls_is_told_apart_from_a_bad_certificate(agent: TlsAgent) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        to = Target(
            url=f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            options={},
            kept={},
            credential_file=Path("x"),
        )
        problem = await refused(agent, to)
    assert "is it an http:// address?" in problem.message
