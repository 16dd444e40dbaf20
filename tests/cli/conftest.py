"""A command run in this process, and a server double that answers as it is told."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from codefyui_core.cli.__main__ import main


@dataclass
class Ran:
    status: int
    out: str
    err: str


@pytest.fixture
def cdui(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command with an empty user data folder."""

    def run(*arguments: str, **environ: str) -> Ran:
        capsys.readouterr()
        given = {"CODEFYUI_USER_DATA_DIR": str(tmp_path / "user")} | environ
        status = main(arguments, environ=given)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@dataclass
class FakeServer:
    """Answers by (method, path); notes what it was asked."""

    url: str
    answers: dict[tuple[str, str], tuple[int, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str, str | None, bytes]] = field(default_factory=list)

    def answer(self, method: str, path: str, body: object, status: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[method, path] = (status, data)

    def write_down(self, user_data: Path, *, pid: int | None = None, boot_id: str = "b1") -> None:
        """As a started server does in its user data."""
        user_data.mkdir(parents=True, exist_ok=True)
        noted = {"pid": pid or os.getpid(), "url": self.url, "boot_id": boot_id, "version": "0.1.0"}
        (user_data / "server.json").write_text(json.dumps(noted))
        (user_data / "session.token").write_text("tok\n")


def _handler(server: Callable[[], FakeServer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            server().asked.append((self.command, self.path, self.headers.get("X-CodefyUI-Token"), body))
            status, data = server().answers.get((self.command, self.path), (404, b'{"detail": "nothing"}'))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _serve  # noqa: N815  names that the base class looks for

        def log_message(self, *arguments: object) -> None: ...

    return Handler


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made: Sequence[FakeServer] = []
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: made[0]))
    made = [FakeServer(f"http://127.0.0.1:{http.server_port}")]
    made[0].answer("GET", "/api/health", {"status": "ready", "boot_id": "b1"})
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made[0]
    http.shutdown()
    thread.join()
    http.server_close()
