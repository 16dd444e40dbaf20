"""How commands find the server, and what they make of its answers."""

from pathlib import Path

import pytest

from codefyui_core.cli.client import ApiProblem, HttpApi, Server, Unreachable, find_server
from codefyui_core.cli.errors import NoServer
from codefyui_core.settings import Install


def install_in(user: Path, **values: str) -> Install:
    environ = {"CODEFYUI_USER_DATA_DIR": str(user)} | {f"CODEFYUI_{k.upper()}": v for k, v in values.items()}
    return Install.find(environ=environ)


def test_the_server_that_its_file_names_is_found(server, tmp_path: Path) -> None:
    server.write_down(tmp_path)
    assert find_server(install_in(tmp_path)) == Server(url=server.url, token="tok")


def test_no_file_means_no_server(tmp_path: Path) -> None:
    with pytest.raises(NoServer, match="Start it with: cdui start"):
        find_server(install_in(tmp_path))


def test_another_boot_at_that_address_is_not_our_server(server, tmp_path: Path) -> None:
    server.write_down(tmp_path, boot_id="earlier")
    with pytest.raises(NoServer):
        find_server(install_in(tmp_path))


def test_a_dead_process_is_not_asked(server, tmp_path: Path) -> None:
    server.write_down(tmp_path, pid=2**22 + 1)
    with pytest.raises(NoServer):
        find_server(install_in(tmp_path))
    assert server.asked == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}'])
def test_a_broken_file_means_no_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.json").write_text(text)
    with pytest.raises(NoServer):
        find_server(install_in(tmp_path))


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({"host": "0.0.0.0", "port": "8010"}, "http://127.0.0.1:8010"),
        ({"host": "::"}, "http://[::1]:8000"),
        ({"host": "gpu-gw.lan"}, "http://gpu-gw.lan:8000"),
        ({"port": "9"}, "http://127.0.0.1:9"),
    ],
)
def test_the_address_that_was_told_is_taken(tmp_path: Path, values: dict[str, str], url: str) -> None:
    (tmp_path / "session.token").write_text("tok")
    assert find_server(install_in(tmp_path, **values)).url == url


def test_a_configured_port_gives_way_to_the_one_that_the_server_got(server, tmp_path: Path) -> None:
    server.write_down(tmp_path)
    assert find_server(install_in(tmp_path, port="8000")).url == server.url


def test_a_flag_wins_over_the_servers_file(server, tmp_path: Path) -> None:
    server.write_down(tmp_path)
    install = Install.find(
        environ={"CODEFYUI_USER_DATA_DIR": str(tmp_path)}, flags={"CODEFYUI_PORT": 9, "CODEFYUI_HOST": None}
    )
    assert find_server(install).url == "http://127.0.0.1:9"


def test_a_call_sends_the_token_and_reads_json(server) -> None:
    server.answer("POST", "/api/runs", {"id": "r"}, status=201)
    api = HttpApi(Server(url=server.url, token="tok"))
    assert api.call("POST", "/api/runs", {"graph": {}}) == {"id": "r"}
    assert server.asked == [("POST", "/api/runs", "tok", b'{"graph": {}}')]


def test_an_empty_answer_is_none(server) -> None:
    server.answer("DELETE", "/api/x", b"", status=204)
    assert HttpApi(Server(url=server.url, token="")).call("DELETE", "/api/x") is None


def test_a_refusal_keeps_the_servers_code_message_and_hint(server) -> None:
    body = {"detail": "no worker gpu", "code": "worker.not_found", "hint": "See: cdui workers list"}
    server.answer("GET", "/api/x", body, status=404)
    with pytest.raises(ApiProblem) as caught:
        HttpApi(Server(url=server.url, token="")).call("GET", "/api/x")
    assert (caught.value.code, caught.value.status) == ("worker.not_found", 404)
    assert caught.value.message == "no worker gpu\nSee: cdui workers list"


def test_a_refusal_that_is_not_json_is_still_a_refusal(server) -> None:
    server.answer("GET", "/api/x", b"<html>", status=502)
    with pytest.raises(ApiProblem, match="answered 502"):
        HttpApi(Server(url=server.url, token="")).call("GET", "/api/x")


def test_nobody_at_the_address_is_explained(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:1 doesn't answer"):
        HttpApi(Server(url="http://127.0.0.1:1", token="")).call("GET", "/api/health")


def test_an_event_stream_is_followed_to_its_end(server) -> None:
    stream = (
        b': beat\n\nid: 7\nevent: log\ndata: {"a":\ndata: 1}\n\nid: 8\nevent: closed\ndata: {}\n\nid: 9\n'
    )
    server.answer("GET", "/api/runs/r/events", stream)
    events = list(HttpApi(Server(url=server.url, token="")).events("/api/runs/r/events", after="6"))
    assert [(event.id, event.event, event.data) for event in events] == [
        ("7", "log", '{"a":\n1}'),
        ("8", "closed", "{}"),
    ]


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Server(url="http://x", token="secret"))
