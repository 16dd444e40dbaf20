"""The server as a process: what it leaves on disk, how it ends, and why it doesn't start."""

import asyncio
import errno
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import closing

import psutil
import pytest

from codefyui_core.control.serve import main
from codefyui_core.settings import ControlSettings

DEADLINE_S = 60


@pytest.fixture
def start(tmp_path):
    """Start servers with the built-in plugin alone; whatever still runs afterwards is ended."""
    started = []

    def start_(*arguments, **settings):
        env = {name: value for name, value in os.environ.items() if not name.startswith("CODEFYUI_")}
        env |= {
            "CODEFYUI_USER_DATA_DIR": str(tmp_path / "user"),
            "CODEFYUI_DATA_DIR": str(tmp_path / "data"),
            "CODEFYUI_PLUGINS_ONLY": "builtin",
            "CODEFYUI_RUN_ZYGOTE": "0",
            **settings,
        }
        log = (tmp_path / f"log{len(started)}").open("w+")
        command = [sys.executable, "-m", "codefyui_core.control", *arguments]
        process = subprocess.Popen(command, env=env, stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        process.log = log
        started.append(process)
        return process

    yield start_
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE_S)
        process.log.close()


def said(process):
    process.log.seek(0)
    return process.log.read()


def facts_of(process, tmp_path):
    """What ``server.json`` says, once it is this process's."""
    file = tmp_path / "user" / "server.json"
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        assert process.poll() is None, said(process)
        if file.exists() and (facts := json.loads(file.read_text()))["pid"] == process.pid:
            return facts
        time.sleep(0.02)
    raise AssertionError(said(process))


@pytest.mark.service
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_leaves_nothing_of_that_when_it_ends(start, tmp_path, number):
    process = start("--port", "0")
    facts = facts_of(process, tmp_path)
    assert facts["url"].startswith("http://127.0.0.1:")
    assert facts["pid_started"] == psutil.Process(process.pid).create_time()
    for name in ("server.json", "session.token"):
        assert (tmp_path / "user" / name).stat().st_mode & 0o777 == 0o600
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == 0
    assert not (tmp_path / "user" / "server.json").exists()
    assert not (tmp_path / "user" / "session.token").exists()
    _, alive = psutil.wait_procs(children, DEADLINE_S)
    assert alive == []
    assert "Traceback" not in said(process)


@pytest.mark.service
def test_what_is_no_http_is_answered_and_leaves_no_traceback(start, tmp_path):
    process = start("--port", "0")
    port = int(facts_of(process, tmp_path)["url"].rpartition(":")[2])

    async def speak(text):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(text)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    for text in (
        b"GET / HTTP/1.1\r\nHost: \x00\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\r\n\r\n",
    ):
        assert b" 400 " in asyncio.run(speak(text))
    process.terminate()
    assert process.wait(DEADLINE_S) == 0
    assert "Traceback" not in said(process)


@pytest.mark.service
@pytest.mark.spec("trust/server-serves-no-tls")
def test_it_speaks_no_tls_and_has_no_setting_for_it(start, tmp_path):
    port = int(facts_of(start("--port", "0"), tmp_path)["url"].rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(plain)
    serving = {name for name in ControlSettings.model_fields if {"tls", "ssl", "key"} & set(name.split("_"))}
    assert serving <= {"tls_cert_file"}  # it shows a proxy's fingerprint, and serves nothing


@pytest.mark.service
def test_a_port_that_is_taken_is_told_with_its_remedy(start, tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        process = start("--port", str(taken.getsockname()[1]))
        assert process.wait(DEADLINE_S) == 1
    assert "--port" in said(process)
    assert "Traceback" not in said(process)
    assert not (tmp_path / "user" / "server.json").exists()


@pytest.mark.service
def test_a_second_server_on_the_same_data_names_the_first(start, tmp_path):
    first = start("--port", "0")
    facts_of(first, tmp_path)
    second = start("--port", "0")
    assert second.wait(DEADLINE_S) == 1
    assert str(first.pid) in said(second)
    assert "Traceback" not in said(second)
    assert first.poll() is None
    assert facts_of(first, tmp_path)["pid"] == first.pid
    assert (tmp_path / "user" / "session.token").exists()


def test_a_setting_that_can_not_be_ends_it_as_a_usage_error(start):
    process = start("--port", "many")
    assert process.wait(DEADLINE_S) == 2
    assert "CODEFYUI_PORT" in said(process)
    assert "Traceback" not in said(process)


def test_a_full_disk_at_the_start_is_told_without_a_traceback(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CODEFYUI_USER_DATA_DIR", str(tmp_path))

    async def serve(install, log):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("codefyui_core.control.serve.serve", serve)
    monkeypatch.setattr("codefyui_core.control.serve.keep_freed_memory", lambda: None)
    assert main([]) == 1
    said = capsys.readouterr().err
    assert "free some of it, and start the server again" in said
    assert "Traceback" not in said
