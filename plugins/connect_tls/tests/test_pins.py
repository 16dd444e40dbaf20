"""Pins as people give them and as the credential file keeps them."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_connect_tls.options import fingerprint_option
from codefyui_connect_tls.pins import given_pins, kept_pins, to_keep
from codefyui_core.plugin import UsageProblem

PINS = st.text("0123456789abcdef", min_size=64, max_size=64).map("sha256:{}".format)


@pytest.mark.spec("trust/pin-flag-format")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "sha256:",
        f"sha256:{'0' * 63}",
        f"sha256:{'0' * 65}",
        f"sha256:{'g' * 64}",
        f"sha256:{':'.join(['00'] * 32)}",
        f"sha1:{'0' * 40}",
        "0" * 64,
    ],
)
def test_another_form_is_refused_with_the_form_and_the_command_that_prints_it(text: str) -> None:
    with pytest.raises(UsageProblem, match=r"sha256: and 64 hexadecimal digits.*openssl x509"):
        given_pins([text])


@pytest.mark.spec("trust/pin-flag-format")
@given(st.lists(PINS, max_size=2))
def test_well_formed_pins_are_taken_in_their_order_and_kept(texts: list[str]) -> None:
    pins = given_pins([f" {text.upper()} " for text in texts])
    assert pins == tuple(dict.fromkeys(texts))
    kept = kept_pins(to_keep(pins))
    assert (kept.pins, kept.damaged) == (pins, ())


def test_there_are_two_at_most_and_the_same_one_counts_once() -> None:
    one, two, three = (f"sha256:{digit * 64}" for digit in "123")
    assert given_pins([one, two, one]) == (one, two)
    with pytest.raises(UsageProblem, match="2 keys at most"):
        given_pins([one, two, three])


@pytest.mark.spec("trust/invalid-stored-pin-logged-and-ignored")
@given(st.recursive(st.none() | st.booleans() | st.text() | PINS, st.lists, max_leaves=5))
def test_whatever_the_file_holds_a_pin_is_well_formed_or_named_as_damaged(value: object) -> None:
    kept = kept_pins({"fingerprints": value})  # type: ignore[dict-item]
    assert all(given_pins([pin]) == (pin,) for pin in kept.pins)
    assert kept_pins({}) == kept_pins({"fingerprints": []})
    if not isinstance(value, list):
        assert len(kept.pins) + len(kept.damaged) == 1


def test_the_option_reads_its_values() -> None:
    command = click.Command("start", params=[fingerprint_option()])
    pin = f"sha256:{'a' * 64}"
    made = command.make_context("start", ["--ca-fingerprint", pin.upper()])
    assert made.params == {"ca_fingerprint": (pin,)}
    assert command.make_context("start", []).params == {"ca_fingerprint": ()}
    with pytest.raises(UsageProblem):
        command.make_context("start", ["--ca-fingerprint", "abc"])
