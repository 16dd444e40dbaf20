"""The private way in of a link: what an agent needs, and nothing else."""

import asyncio
import stat
from pathlib import Path

import aiohttp
import orjson
import pytest
from sqlalchemy import insert, select

from codefyui_core.control.db.tables import enrollment_tokens, links
from codefyui_core.control.hosts import LinkHost
from codefyui_core.errors import CodefyError
from codefyui_core.plugin import LinkMemo, SecretText

LINK = "a" * 32
TABLE = Path(__file__).parents[3]


class Memo(LinkMemo):
    slot: int = 1
    password: SecretText = SecretText("hidden")


@pytest.fixture
async def host(app):
    """Of a connector with one link."""
    async with app.plane.db.begin() as connection:
        row = {
            "id": LINK,
            "connector": "ssh",
            "worker_name": "box",
            "phase": "enabled",
            "form": b"",
            "memo": b"",
        }
        await connection.execute(insert(links).values(created_at=1, **row))
    made = LinkHost(app.plane, "ssh")
    yield made
    await made.aclose()


@pytest.fixture
async def through(app, host):
    """Ask through the link's socket, under any host name."""
    listener = await host.listen(LINK)
    connector = aiohttp.UnixConnector(listener.address)
    async with aiohttp.ClientSession("http://cp-1.invalid:7", connector=connector) as session:

        async def ask(method, path, *, credential=None, **more):
            headers = dict(more.pop("headers", {}))
            if credential:
                headers["Authorization"] = f"Bearer {credential}"
            async with session.request(method, path, headers=headers, **more) as response:
                body = await response.read()
                return response.status, orjson.loads(body) if body.startswith(b"{") else body

        ask.session = session
        ask.address = listener.address
        yield ask


async def enrolled(through, host):
    token = await host.token(LINK)
    body = {"token": token, "name": "box", "nonce": "n" * 16, "machine_id": "m", "platform": "linux"}
    status, answer = await through("POST", "/api/workers/enroll", json=body)
    assert status == 200, answer
    return answer["credential"]


async def test_the_socket_lies_in_a_folder_of_its_owner_alone_and_its_path_is_short(through):
    path = Path(through.address)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(str(path).encode()) <= 100


@pytest.mark.spec("ssh/listener/enroll-with-enrollment-token")
async def test_an_agent_enrolls_through_its_link(app, through, host):
    assert (await enrolled(through, host)).startswith("cdw_")
    status, answer = await through("POST", "/api/workers/enroll", json={"token": "x", "nonce": "n" * 16})
    assert (status, answer["code"]) == (401, "enrollment.unknown")


async def test_a_token_of_a_link_is_for_its_worker_and_its_link(app, through, host):
    token = await host.token(LINK, valid_for_s=60)
    async with app.plane.db.read() as connection:
        row = (await connection.execute(select(enrollment_tokens))).one()
    assert (row.worker, row.link_id, row.uses) == ("box", LINK, 1)
    body = {"token": token, "name": "other", "nonce": "n" * 16}
    status, answer = await through("POST", "/api/workers/enroll", json=body)
    assert (status, answer["code"]) == (403, "enrollment.bound")
    with pytest.raises(CodefyError) as unknown:
        await host.token("b" * 32)
    assert unknown.value.code == "not_found"


@pytest.mark.spec(
    "ssh/listener/input-downloads-with-worker-token",
    "ssh/listener/download-without-token-403",
    "ssh/listener/downloads-stay-open-on-server-port",
)
async def test_downloads_need_the_workers_credential_here_and_none_on_the_servers_port(app, through, host):
    credential = await enrolled(through, host)
    for family, name in (("files", "a.csv"), ("images", "a.png"), ("models", "a.pt")):
        folder = app.plane.install.data / family
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"bytes")
        path = f"/api/{family}/download/{name}"
        assert await through("GET", path, credential=credential) == (200, b"bytes")
        assert (await through("GET", path))[0] == 403
        token = {"X-CodefyUI-Token": app.plane.token}
        assert (await through("GET", path, headers=token))[0] == 403
        assert (await through("GET", path, credential="cdw_" + "x" * 43))[0] == 401
        assert (await app.get(path)).body == b"bytes"


@pytest.mark.spec("ssh/listener/everything-else-404")
async def test_everything_else_is_not_there_whatever_the_method_and_the_token(app, through, host):
    credential = await enrolled(through, host)
    served = {
        "/api/files/download/x",
        "/api/images/download/x",
        "/api/models/download/x",
        "/api/workers/enroll",
    }
    paths = {resource.canonical for resource in app.client.app.router.resources()}
    paths.discard("/api/runs/{run_id}/inputs/{sha256}")  # a worker's own, as its uploads are
    asked = 0
    for path in sorted(
        {path.replace("{name}", "x").replace("{run_id}", "x") for path in paths} | {"/", "/nothing"}
    ):
        for method in ("GET", "POST", "DELETE", "PUT"):
            if (path == "/ws/worker" and method == "GET") or (path in served and method in {"GET", "POST"}):
                continue
            headers = {"X-CodefyUI-Token": app.plane.token}
            status, answer = await through(method, path, credential=credential, headers=headers)
            assert (status, answer["code"]) == (404, "not_found"), (method, path)
            asked += 1
    assert asked > 100


@pytest.mark.spec("ssh/listener/everything-else-404")
async def test_another_method_on_a_served_path_is_not_told_of_either(through):
    status, answer = await through("DELETE", "/api/workers/enroll")
    assert (status, answer["code"]) == (404, "not_found")


@pytest.mark.spec("ssh/listener/host-header-irrelevant")
@pytest.mark.parametrize("name", ["cp-1.invalid:7", "evil.example", "localhost", ""])
async def test_the_host_name_does_not_matter(through, name):
    status, _ = await through("GET", "/api/health", headers={"Host": name})
    assert status == 404
    status, _ = await through("GET", "/api/files/download/x", headers={"Host": name})
    assert status == 403


@pytest.mark.spec("ssh/listener/main-port-host-outside-allowlist-421")
async def test_on_the_servers_port_the_name_of_a_link_is_a_foreign_one(app, host):
    (await app.get("/api/health", headers={"Host": "cp-1.invalid:7"})).refused(421, "host.not_allowed")


@pytest.mark.spec("ssh/listener/session-token-refused")
async def test_the_session_token_opens_no_line(app, through):
    status, _ = await through("GET", "/ws/worker", headers={"X-CodefyUI-Token": app.plane.token})
    assert status in {401, 403}


async def test_closing_ends_what_is_connected_and_removes_the_socket(through, host):
    listener = host._listeners[LINK]
    reader, writer = await asyncio.open_unix_connection(through.address)
    await through("GET", "/api/health")
    await listener.aclose()
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.close()
    assert not Path(through.address).parent.exists()
    await listener.aclose()


async def test_listening_again_takes_the_place_of_the_first(host):
    first = await host.listen(LINK)
    second = await host.listen(LINK)
    assert not Path(first.address).exists()
    assert Path(second.address).exists()


async def test_a_loopback_port_where_sockets_can_not_be_forwarded(host):
    listener = await host.listen(LINK, tcp=True)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{listener.address}/api/health") as answer,
    ):
        assert answer.status == 404
    assert listener.address.startswith("127.0.0.1:")


async def test_a_path_that_no_kernel_takes_is_told_with_its_remedy(host, monkeypatch, tmp_path):
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(CodefyError, match="TMPDIR"):
        await host.listen(LINK)
    assert list(deep.iterdir()) == []


async def test_memos_are_kept_sealed_and_go_with_their_link(app, host):
    await host.save(LINK, Memo(slot=7))
    async with app.plane.db.read() as connection:
        stored = (await connection.execute(select(links.c.memo))).scalar_one()
    assert b"hidden" not in stored
    assert orjson.loads(app.plane.seal.open(stored)) == {"slot": 7, "password": "hidden"}
    await host.left(LINK)
    with pytest.raises(CodefyError) as gone:
        await host.save(LINK, Memo())
    assert gone.value.code == "not_found"
