"""Many inputs, of which a listing tells whether they are in the bucket."""

import hashlib
from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from s3_planes import Halves, MakeSite

from cdui_develop.bucket_stub import Says, Stub, error
from codefyui_core.plugin import Family, InputItem, Sha256, StorageProblem
from codefyui_core.testing.clock import ManualClock
from codefyui_storage_s3.client import BucketClient
from codefyui_storage_s3.keys import Keys
from codefyui_storage_s3.looking import WORTH_LISTING, Looked, look
from codefyui_storage_s3.models import Bucket, Style
from codefyui_storage_s3.store_time import StoreTime
from codefyui_storage_s3.threads import Threads

KEYS = Keys(access_key_id=SecretStr("OWNKEY"), secret_access_key=SecretStr("own-secret"))
FOLDER = "/codefyui/p/inputs/"


def _items(count: int, of: str = "ours") -> list[InputItem]:
    hashes = [Sha256(hashlib.sha256(f"{of} {number}".encode()).hexdigest()) for number in range(count)]
    return [InputItem(sha256=one, size_bytes=3, family=Family.IMAGES, name=f"{one}.png") for one in hashes]


@pytest.fixture
def client(stub: Stub) -> Iterator[BucketClient]:
    threads = Threads(2, "test")
    bucket = Bucket(name="codefyui", endpoint_url=stub.url, region="us-east-1", style=Style.PATH)
    yield BucketClient(
        bucket, KEYS, threads=threads, clock=ManualClock(), store_time=StoreTime(), machine="server"
    )
    threads.close()


async def test_a_listing_tells_of_all(client: BucketClient, stub: Stub) -> None:
    items = _items(2500)
    there = {item.sha256 for item in items[:2000]}
    for one in there:
        stub.objects[f"{FOLDER}{one}"] = (b"abc", {})
    found = await look(client, "p/", items)
    assert found.there == there
    assert found.absent == {item.sha256 for item in items[2000:]}
    assert len(stub.asked) == 2, "a thousand objects each"


async def test_an_object_of_another_size_is_not_there(client: BucketClient, stub: Stub) -> None:
    items = _items(WORTH_LISTING)
    for item in items:
        stub.objects[FOLDER + item.sha256] = (b"ab" if item is items[0] else b"abc", {})
    found = await look(client, "p/", items)
    assert found.absent == {items[0].sha256}
    assert len(found.there) == WORTH_LISTING - 1


async def test_few_inputs_are_asked_for_one_by_one(client: BucketClient, stub: Stub) -> None:
    assert await look(client, "p/", _items(WORTH_LISTING - 1)) == Looked()
    assert stub.asked == []


async def test_few_among_many_of_others_cost_one_listing(client: BucketClient, stub: Stub) -> None:
    for item in _items(4000, "others"):
        stub.objects[FOLDER + item.sha256] = (b"abc", {})
    items = _items(WORTH_LISTING)
    found = await look(client, "p/", items)
    assert len(stub.asked) == 1
    assert not found.there
    assert len(found.absent) < WORTH_LISTING


async def test_a_user_who_may_not_list_asks_one_by_one(client: BucketClient, stub: Stub) -> None:
    stub.rule = lambda asked: error("AccessDenied", 403)
    assert await look(client, "p/", _items(100)) == Looked()


async def _staged_with(halves: Halves, count: int) -> None:
    halves.host.uploads = {(Family.IMAGES, f"{number}.png"): b"%d" % number for number in range(count)}
    await halves.staged()


async def test_what_is_there_is_not_sent_and_what_went_is_sent_again(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves: Halves = await (await site_of(stub_settings, s3_credentials="static")).start()
    await _staged_with(halves, 50)
    assert len(stub.objects) == 50
    gone = next(iter(stub.objects))
    del stub.objects[gone]
    stub.asked.clear()
    await _staged_with(halves, 51)
    assert len(stub.of("PUT")) == 2
    assert gone in stub.objects
    assert len(stub.objects) == 51
    assert stub.of("HEAD") == []


@pytest.mark.parametrize(
    ("answer", "asked"), [(error("SlowDown", 503), 16), (error("AccessDenied", 403), 50)]
)
async def test_no_more_are_tried_once_the_store_is_away(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, answer: Says, asked: int
) -> None:
    halves: Halves = await (await site_of(stub_settings, s3_credentials="static")).start()
    stub.asked.clear()
    stub.rule = lambda asked: answer if asked.method == "PUT" else None
    with pytest.raises(StorageProblem):
        await _staged_with(halves, 50)
    assert len(stub.of("PUT")) <= asked


@pytest.mark.service
async def test_a_real_store_lists_from_any_hash(
    site_of: MakeSite, bucket_settings: dict[str, object]
) -> None:
    halves: Halves = await (await site_of(bucket_settings, s3_credentials="static")).start()
    await _staged_with(halves, 40)
    client = halves.control._current((await halves.staged()).ticket.bucket)
    items = list(await halves.host.inputs(None))  # type: ignore[arg-type]
    found = await look(client, str(bucket_settings["s3_prefix"]), [*items, *_items(5)])
    assert found == Looked(
        frozenset(item.sha256 for item in items), frozenset(item.sha256 for item in _items(5))
    )
