"""``cdui workers``: what people read."""

from pathlib import Path


def test_a_new_token_comes_with_its_command_and_what_to_know_beside_it(cdui, server, tmp_path: Path) -> None:
    notes = [{"text": "Compare the key.", "command": "openssl x509", "value": "sha256:ab"}]
    made = {"expires_at": "tomorrow", "uses_left": 1, "command": "cdui agent start", "notes": notes}
    server.answer("POST", "/api/workers/tokens", made, status=201)
    server.write_down(tmp_path / "user")
    assert cdui("workers", "token", "--address", "https://cp.lab").out == (
        "Run this on the worker (valid until tomorrow, 1 use(s)):\n\n    cdui agent start\n\n"
        "Compare the key.\n\n    openssl x509\n\n    sha256:ab\n"
    )
