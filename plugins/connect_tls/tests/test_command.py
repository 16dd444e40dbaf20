"""``cdui agent start --ca-fingerprint``, as far as it goes before anything is dialed."""

from pathlib import Path

import pytest

from cdui_develop.certificates import self_signed
from codefyui_core.cli.__main__ import main

PIN, NEXT = self_signed("x").fingerprint, self_signed("y").fingerprint


@pytest.fixture(autouse=True)
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEFYUI_USER_DATA_DIR", str(tmp_path / "user"))
    monkeypatch.setenv("CODEFYUI_PLUGINS_ONLY", "builtin,connect_tls")


@pytest.mark.spec("trust/pin-flag-format")
@pytest.mark.parametrize(
    ("address", "pins", "status", "says"),
    [
        ("https://127.0.0.1:9", ["abc"], 2, "64 hexadecimal digits"),
        ("https://127.0.0.1:9", [PIN, NEXT, "sha256:" + "0" * 64], 2, "2 keys at most"),
        ("http://127.0.0.1:9", [PIN], 2, "--ca-fingerprint doesn't fit http://127.0.0.1:9"),
        ("https://127.0.0.1:9", [PIN, NEXT], 1, "has no credential"),
    ],
)
def test_a_flag_is_read_before_anything_is_dialed(
    address: str,
    pins: list[str],
    status: int,
    says: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    words = [word for pin in pins for word in ("--ca-fingerprint", pin)]
    assert main(["agent", "start", "--foreground", "--control", address, *words]) == status
    assert says in capfd.readouterr().err + caplog.text
