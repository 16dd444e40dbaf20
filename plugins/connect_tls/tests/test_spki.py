"""Fingerprints of keys, against openssl's and those of a library."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdui_develop.certificates import Authority, self_signed
from codefyui_connect_tls.models import fingerprint_command
from codefyui_connect_tls.spki import fingerprint_of, first_in

KINDS = {
    "RSA": ("rsa:2048",),
    "P-256": ("ec", "ec_paramgen_curve:P-256"),
    "explicit curve": ("ec", "ec_paramgen_curve:P-256", "ec_param_enc:explicit"),
    "Ed25519": ("ed25519",),
    "RSA-PSS": ("rsa-pss", "rsa_keygen_bits:2048"),
}
SEVERAL = (Authority().issue("localhost").pem, self_signed("localhost").pem)


def printed(file: Path) -> str:
    """What the command of the docs and the dialog prints."""
    ran = subprocess.run(
        ["sh", "-c", fingerprint_command(str(file))], capture_output=True, text=True, check=True, timeout=30
    )
    return ran.stdout.strip()


@pytest.mark.needs("openssl")
@pytest.mark.spec("trust/fingerprint-command-agrees", "trust/pin-is-spki-sha256")
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_the_fingerprint_of_every_kind_of_key(kind: str, tmp_path: Path) -> None:
    algorithm, *options = KINDS[kind]
    made = tmp_path / "the proxy's.pem"
    more = [word for option in options for word in ("-pkeyopt", option)]
    words = ["-newkey", algorithm, *more, "-nodes", "-subj", "/CN=x", "-keyout", str(tmp_path / "key")]
    subprocess.run(
        ["openssl", "req", "-x509", *words, "-out", str(made)], check=True, capture_output=True, timeout=30
    )
    assert fingerprint_of(first_in(made.read_bytes())) == printed(made)


@pytest.mark.needs("openssl")
@pytest.mark.spec("trust/fingerprint-command-agrees")
def test_of_a_chain_the_first_certificate_counts_for_both(tmp_path: Path) -> None:
    leaf = Authority().issue("localhost")
    file = tmp_path / "fullchain.pem"
    file.write_bytes(b"subject=/CN=localhost\n\n" + leaf.key_pem + leaf.pem)
    assert fingerprint_of(first_in(file.read_bytes())) == printed(file) == leaf.fingerprint


@given(st.binary(max_size=300))
def test_what_is_no_certificate_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(ValueError, match="certificate"):
        fingerprint_of(data)


@given(st.sampled_from(SEVERAL), st.integers(min_value=0))
def test_a_certificate_that_was_cut_off_is_none(pem: bytes, length: int) -> None:
    der = first_in(pem)
    with pytest.raises(ValueError, match="certificate"):
        fingerprint_of(der[: length % len(der)])


@pytest.mark.parametrize(
    "text", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----"]
)
def test_a_file_without_a_certificate_says_so(text: bytes) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        first_in(text)
