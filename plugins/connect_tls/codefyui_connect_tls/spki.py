"""The fingerprint of the public key in a certificate. Pure.

The bytes of the key are taken as they stand in the certificate. Libraries that decode a key and encode it again give
other bytes than openssl for some (an RSA-PSS key as a plain RSA one), and refuse some that TLS accepts.
"""

import base64
import hashlib
import re

_PEM = re.compile(
    rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----\s(.+?)-----END (?:X509 |TRUSTED )?CERTIFICATE-----",
    re.DOTALL,
)
_SEQUENCE = 0x30
_VERSION = 0xA0
_BEFORE_KEY = ("serialNumber", "signature", "issuer", "validity", "subject")


def fingerprint_of(certificate: bytes) -> str:
    """``sha256:`` and the SHA-256 of the SubjectPublicKeyInfo (RFC 5280, 4.1) of a certificate in DER.

    Raises: ValueError.
    """
    return f"sha256:{hashlib.sha256(_public_key_info(certificate)).hexdigest()}"


def first_in(pem: bytes) -> bytes:
    """The first certificate of a PEM file, in DER.

    Raises: ValueError.
    """
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("there is no certificate in it")
    return base64.b64decode(found[1])


def _public_key_info(der: bytes) -> bytes:
    at = _inside(der, _inside(der, 0))
    if der[at : at + 1] == bytes((_VERSION,)):
        at = _element(der, at)[1]
    for _ in _BEFORE_KEY:
        at = _element(der, at)[1]
    _inside(der, at)
    return der[at : _element(der, at)[1]]


def _inside(der: bytes, at: int) -> int:
    """Where the content of a sequence begins."""
    begin, _ = _element(der, at)
    if der[at] != _SEQUENCE:
        raise ValueError("it is no certificate")
    return begin


def _element(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at a position begins and ends (X.690, 8.1 and 10.1)."""
    begin = at + 2
    if begin > len(der):
        raise ValueError("it is a part of a certificate")
    length = der[at + 1]
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin], "big")
    if begin + length > len(der):
        raise ValueError("it is no certificate, or a part of one")
    return begin, begin + length
