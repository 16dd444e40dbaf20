"""cdui update refuses while the server runs, and says what stopping it would do."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cdui_setup.problem import SetupProblem
from cdui_setup.releases import refuse_while_running


class Answering(BaseHTTPRequestHandler):
    def do_GET(self):
        known = (self.path, self.headers.get("X-CodefyUI-Token")) == ("/api/server/stop", "tok")
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"if_kept": ["2 run(s) on workers go on."]}).encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CODEFYUI_USER_DATA_DIR", str(tmp_path))
    (tmp_path / "session.token").write_text("tok\n")
    return tmp_path


@pytest.fixture
def url():
    http = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}"
    http.shutdown()
    thread.join()
    http.server_close()


def test_it_says_what_a_stop_that_keeps_the_runs_would_do(folder, url):
    (folder / "server.json").write_text(json.dumps({"pid": os.getpid(), "url": url}))
    with pytest.raises(SetupProblem) as refused:
        refuse_while_running(folder)
    assert refused.value.exit_code == 3
    first, *rest = str(refused.value).splitlines()
    assert first.endswith("Stop it first: cdui stop --keep-runs")
    assert rest[1] == "  2 run(s) on workers go on."
    assert "An agent of the old version finishes its runs" in rest[2]


@pytest.mark.parametrize("said", [{}, {"url": "http://127.0.0.1:9"}, {"url": 7}])
def test_a_server_that_can_not_be_asked_is_refused_in_one_line(folder, said):
    (folder / "server.json").write_text(json.dumps({"pid": os.getpid()} | said))
    with pytest.raises(SetupProblem) as refused:
        refuse_while_running(folder)
    assert len(str(refused.value).splitlines()) == 1
