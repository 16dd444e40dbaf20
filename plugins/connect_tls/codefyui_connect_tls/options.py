"""``--ca-fingerprint sha256:HEX``."""

import click

from .pins import given_pins


def fingerprint_option() -> click.Option:
    return click.Option(
        ["--ca-fingerprint"],
        multiple=True,
        metavar="sha256:HEX",
        callback=lambda _context, _option, value: given_pins(value),
        help="Trust an https:// server by the SHA-256 of its certificate's public key alone. Kept with the "
        "credential for later starts. Given twice: the key of now and the next one.",
    )
