"""Small documents that plugins keep, and the key that seals some of them."""

import asyncio

import pytest
from sqlalchemy import select

from codefyui_core.control.db.documents import LIMIT_BYTES, PluginDocuments
from codefyui_core.control.db.tables import plugin_state
from codefyui_core.control.owned_tasks import OwnedTasks
from codefyui_core.control.seal import Seal
from codefyui_core.errors import CodefyError, StartProblem


@pytest.fixture
def seal(tmp_path):
    return Seal(tmp_path)


@pytest.fixture
def documents(database, seal):
    return PluginDocuments(database, seal, "ssh")


async def stored(database):
    async with database.read() as connection:
        return (await connection.execute(select(plugin_state))).all()


async def test_documents_come_back_as_they_went_in(documents):
    assert await documents.get("a") is None
    await documents.put("a", {"n": 1, "text": "\u00e9"})
    await documents.put("a", {"n": 2})
    assert await documents.get("a") == {"n": 2}
    await documents.delete("a")
    await documents.delete("a")
    assert await documents.get("a") is None


async def test_a_sealed_document_can_be_read_by_this_installation_alone(database, documents, seal, tmp_path):
    await documents.put("key", {"password": "s3cret"}, sealed=True)
    assert b"s3cret" not in (await stored(database))[0].value
    assert await documents.get("key") == {"password": "s3cret"}
    assert await PluginDocuments(database, Seal(tmp_path), "ssh").get("key") == {"password": "s3cret"}
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(StartProblem, match="Restore the key"):
        await PluginDocuments(database, Seal(other), "ssh").get("key")


async def test_plugins_do_not_see_each_other(database, documents, seal):
    other = PluginDocuments(database, seal, "s3")
    await documents.put("a", {"mine": True})
    await other.put("a", {"mine": False})
    assert await documents.get("a") == {"mine": True}
    await other.delete("a")
    assert await documents.keys() == ["a"]


async def test_keys_are_found_by_their_beginning_taken_literally(documents):
    for key in ("a/1", "a/2", "b", "a%", "A/3"):
        await documents.put(key, {})
    assert set(await documents.keys("a/")) >= {"a/1", "a/2"}
    assert await documents.keys("a%") == ["a%"]
    assert await documents.keys("_") == []


@pytest.mark.parametrize(("key", "size"), [("", 1), ("k" * 257, 1), ("k", LIMIT_BYTES)])
async def test_what_is_too_large_is_refused(documents, key, size):
    with pytest.raises(CodefyError):
        await documents.put(key, {"x": "y" * size})
    assert await documents.keys() == []


def test_the_key_is_readable_by_its_owner_alone_and_a_broken_one_is_told(tmp_path):
    sealed = Seal(tmp_path).close(b"x")
    file = tmp_path / "secret.key"
    assert file.stat().st_mode & 0o777 == 0o600
    assert Seal(tmp_path).open(sealed) == b"x"
    file.write_bytes(b"broken")
    with pytest.raises(StartProblem, match="isn't a key"):
        Seal(tmp_path).open(sealed)


async def test_tasks_of_a_half_end_with_it_and_a_failed_one_is_logged(caplog):
    import logging

    tasks = OwnedTasks(logging.getLogger("codefyui.half"))
    waiting = tasks.start(asyncio.Event().wait(), name="waiting")

    async def fail():
        raise RuntimeError("a bug")

    await asyncio.wait([tasks.start(fail(), name="failing")])
    await asyncio.sleep(0)
    assert "task failing failed" in caplog.text
    await tasks.aclose()
    assert waiting.cancelled()
