"""What the control half adds to the command for an agent, by the proxy's certificate file."""

import logging
import os
from pathlib import Path

import pytest

from cdui_develop.certificates import Authority, self_signed
from codefyui_connect_tls.control import TlsControl
from codefyui_core.plugin import Claim
from codefyui_core.testing.hosts import ControlLinkDouble

URL = "https://cp.lab"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "full chain.pem"


@pytest.fixture
def host(tmp_path: Path, file: Path) -> ControlLinkDouble:
    return ControlLinkDouble(root=tmp_path, name="tls", given={"tls_cert_file": str(file)})


@pytest.fixture
def control(host: ControlLinkDouble) -> TlsControl:
    return TlsControl(host)


@pytest.mark.parametrize(
    ("address", "claim"),
    [(URL, Claim.FITS), ("https://cp:8443", Claim.FITS), ("http://cp", Claim.NO), ("https://a@cp", Claim.NO)],
)
def test_it_serves_https_addresses(control: TlsControl, address: str, claim: Claim) -> None:
    assert control.serves(address) is claim


@pytest.mark.spec("trust/cert-file-adds-flag-to-command", "trust/cert-file-shows-fingerprint")
async def test_the_command_pins_the_key_of_the_first_certificate(control: TlsControl, file: Path) -> None:
    leaf = Authority().issue("cp.lab")
    file.write_bytes(leaf.pem)
    invitation = await control.invite(URL)
    assert invitation.options == ("--ca-fingerprint", leaf.fingerprint)
    (note,) = invitation.notes
    assert note.value == leaf.fingerprint
    assert f"openssl x509 -in '{file}'" in note.command


@pytest.mark.spec("trust/dialog-shows-openssl-command")
async def test_without_the_setting_the_command_for_the_proxys_host_is_shown(host: ControlLinkDouble) -> None:
    host.given.clear()
    control = TlsControl(host)
    await control.start()
    invitation = await control.invite(URL)
    assert (invitation.options, control.condition()) == ((), "")
    (note,) = invitation.notes
    assert note.command.startswith("openssl x509 -in /path/to/fullchain.pem")
    assert "--ca-fingerprint" in note.text


@pytest.mark.spec("setting/tls-cert-file")
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "can't be read: No such file"),
        (b"", "no certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAA", "no cert"),
    ],
)
async def test_a_file_that_cannot_be_used_is_reported_and_the_command_goes_without(
    control: TlsControl, file: Path, content: bytes | None, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    if content is not None:
        file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        await control.start()
        for _ in range(2):
            invitation = await control.invite(URL)
    assert invitation.options == ()
    assert says in invitation.notes[0].text
    assert says in control.condition()
    assert len(caplog.messages) == 1
    assert "openssl" in invitation.notes[1].command


async def test_a_relative_path_is_refused(host: ControlLinkDouble) -> None:
    host.given["tls_cert_file"] = "fullchain.pem"
    assert "not an absolute path" in (await TlsControl(host).invite(URL)).notes[0].text


@pytest.mark.spec("trust/cert-file-reread-on-change")
async def test_the_file_is_read_again_when_it_has_changed_and_only_then(
    control: TlsControl, file: Path
) -> None:
    first, second = self_signed("cp.lab"), self_signed("cp.lab")
    size = max(len(first.pem), len(second.pem)) + 1
    file.write_bytes(first.pem.ljust(size, b"\n"))
    shown = [(await control.invite(URL)).options[1]]
    # The same name, size, inode and time: whoever sees the other content has opened it again.
    before = file.stat()
    file.write_bytes(second.pem.ljust(size, b"\n"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    shown.append((await control.invite(URL)).options[1])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    shown.append((await control.invite(URL)).options[1])
    assert shown == [first.fingerprint, first.fingerprint, second.fingerprint]


async def test_a_certificate_that_is_put_right_counts_at_the_next_command(
    control: TlsControl, file: Path
) -> None:
    assert (await control.invite(URL)).options == ()
    issued = self_signed("cp.lab")
    file.write_bytes(issued.pem)
    assert (await control.invite(URL)).options == ("--ca-fingerprint", issued.fingerprint)
    assert control.condition() == f"pins the key {issued.fingerprint}"
