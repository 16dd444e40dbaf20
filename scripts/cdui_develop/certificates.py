"""Certificates for tests: authorities, what they sign, and self-signed ones."""

import datetime as dt
import hashlib
import ipaddress
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A certificate, its key, and who signed it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False)
    chain: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> bytes:
        """As a proxy serves it: the leaf first."""
        return b"".join(one.public_bytes(PEM) for one in (self.certificate, *self.chain))

    @property
    def key_pem(self) -> bytes:
        plain = serialization.NoEncryption()
        return self.key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain)

    @property
    def fingerprint(self) -> str:
        """Of its public key, as ``--ca-fingerprint`` takes it."""
        public = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return f"sha256:{hashlib.sha256(public).hexdigest()}"

    def write(self, folder: Path, name: str = "leaf") -> None:
        """``<name>.pem`` and ``<name>.key``."""
        (folder / f"{name}.pem").write_bytes(self.pem)
        (folder / f"{name}.key").write_bytes(self.key_pem)

    def serve_by(self, context: ssl.SSLContext, folder: Path) -> None:
        """New connections of that server get it."""
        self.write(folder, "served")
        context.load_cert_chain(folder / "served.pem", folder / "served.key")


class Authority:
    """Signs certificates; its own is ``certificate``."""

    def __init__(self, name: str = "test CA") -> None:
        self.key = new_key()
        self._name = _named(name)
        self.certificate = (
            _builder(self._name, self._name, self.key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(PEM)

    def issue(
        self, *names: str, key: ec.EllipticCurvePrivateKey | None = None, expired: bool = False
    ) -> Issued:
        """For host names and addresses, with the authority's own certificate sent along."""
        key = key or new_key()
        signed = (
            _builder(_named(names[0]), self._name, key, expired=expired)
            .add_extension(_alternatives(names), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return Issued(certificate=signed, key=key, chain=(self.certificate,))


def self_signed(*names: str, key: ec.EllipticCurvePrivateKey | None = None) -> Issued:
    key = key or new_key()
    name = _named(names[0])
    builder = _builder(name, name, key).add_extension(_alternatives(names), critical=False)
    return Issued(certificate=builder.sign(key, hashes.SHA256()), key=key)


def server_context() -> ssl.SSLContext:
    """Of a server; ``Issued.serve_by`` gives it a certificate."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternatives(names: tuple[str, ...]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_alternative(name) for name in names])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, expired: bool = False
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=2))
        .not_valid_after(now + dt.timedelta(days=-1 if expired else 2))
    )
