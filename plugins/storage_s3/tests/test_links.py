"""Runs that read more inputs than a session policy can name."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from s3_planes import RUN_ID, Halves, MakeSite

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from codefyui_core.plugin import Expired, Family, Refused, Sha256
from codefyui_core.testing.hosts import ProgressDouble
from codefyui_core.wire.limits import MESSAGE_BYTES
from codefyui_storage_s3.client import BucketClient
from codefyui_storage_s3.fetching import RANGE_BYTES
from codefyui_storage_s3.keys import Keys
from codefyui_storage_s3.models import Bucket, Links, S3Grant, Style
from codefyui_storage_s3.store_time import StoreTime
from codefyui_storage_s3.threads import Threads

MANY = 60
EXPIRED = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"


def _uploads(count: int) -> dict[tuple[Family, str], bytes]:
    return {(Family.IMAGES, f"{number}.png"): b"image %d" % number for number in range(count)}


async def _site(site_of: MakeSite, settings: Mapping[str, object], **more: object) -> Halves:
    made: Halves = await site_of(dict(settings), s3_credentials="sts", **more)
    made.host.uploads = _uploads(MANY)
    return await made.start()


@pytest.fixture
async def halves(site_of: MakeSite, stub_settings: dict[str, object]) -> Halves:
    return await _site(site_of, stub_settings, s3_prefix="p/")


def _links(grant: S3Grant | None) -> Links:
    assert grant is not None
    assert grant.links is not None
    return grant.links


@pytest.mark.spec("s3/sts-policy-limits-reads-to-run-inputs")
async def test_each_input_gets_a_link_and_the_keys_read_nothing(halves: Halves, stub: Stub) -> None:
    staged = await halves.staged()
    assert set(_links(staged.grant).signatures) == {item.sha256 for item in staged.ticket.inputs}
    (asked,) = stub.assumed
    (writes,) = json.loads(asked["Policy"])["Statement"]
    assert "s3:GetObject" not in writes["Action"]
    assert writes["Resource"] == [f"arn:aws:s3:::codefyui/p/runs/{RUN_ID}/*"]


async def test_an_input_comes_by_its_link_and_an_output_goes_with_the_keys(
    halves: Halves, stub: Stub, tmp_path: Path
) -> None:
    halves.host.uploads[Family.FILES, "large"] = b"x" * (RANGE_BYTES + 1)
    staged = await halves.staged()
    stub.asked.clear()
    async with halves.session(staged) as session:
        for item in staged.ticket.inputs:
            digest = await session.fetch(item, tmp_path / item.sha256, ProgressDouble())
            assert digest == item.sha256
        await halves.publish(session, b"weights")
    *gets, put = stub.asked
    assert len(gets) == MANY + 2
    assert {asked.query["X-Amz-Credential"].partition("/")[0] for asked in gets} == {"OWNKEY"}
    headers = {name for asked in gets for name in asked.headers}
    assert "authorization" not in headers
    assert not [name for name in headers if name.startswith("x-amz-")], "AWS refuses those that aren't signed"
    assert put.access_key == "TEMPORARY1"


async def test_links_end_with_the_keys_and_are_renewed_with_them(
    halves: Halves, stub: Stub, tmp_path: Path
) -> None:
    stub.life_s = 1200
    staged = await halves.staged()
    life_s = int(parse_qs(_links(staged.grant).query.get_secret_value())["X-Amz-Expires"][0])
    assert life_s == pytest.approx(1200, abs=2)
    stub.clock = lambda: datetime.now(UTC) + timedelta(seconds=3600)
    renewed = await halves.control.renew(halves.given(staged))
    assert _links(renewed).query != _links(staged.grant).query
    stub.rule = lambda asked: (
        Says(403, EXPIRED.encode()) if asked.signed_at < stub.clock() - timedelta(seconds=1200) else None
    )
    async with halves.session(staged) as session:
        with pytest.raises(Expired, match="ran out"):
            await session.fetch(staged.ticket.inputs[0], tmp_path / "into", ProgressDouble())
        await session.renewed(renewed)
        await session.fetch(staged.ticket.inputs[0], tmp_path / "into", ProgressDouble())


@pytest.mark.parametrize("after_s", [0, 4000])
async def test_a_refusal_without_a_word_is_one_of_its_time_once_the_link_is_past_it(
    halves: Halves, stub: Stub, tmp_path: Path, after_s: float
) -> None:
    staged = await halves.staged()
    stub.rule = lambda asked: error("AccessDenied", 403, message="no")
    async with halves.session(staged) as session:
        await halves.clock.advance(after_s)
        with pytest.raises(Expired if after_s else Refused):
            await session.fetch(staged.ticket.inputs[0], tmp_path / "into", ProgressDouble())


async def test_own_keys_need_no_links(site_of: MakeSite, stub_settings: dict[str, object]) -> None:
    halves = await site_of(stub_settings, s3_credentials="static")
    halves.host.uploads = _uploads(MANY)
    await halves.start()
    grant = (await halves.staged()).grant
    assert grant is not None
    assert grant.links is None


async def test_links_are_signed_by_the_stores_clock(halves: Halves, stub: Stub, tmp_path: Path) -> None:
    stub.clock = lambda: datetime.now(UTC) - timedelta(hours=1)

    def strict(asked: Asked) -> Says | None:
        ahead = asked.signed_at - stub.clock()
        return Says(403) if abs(ahead) > timedelta(minutes=15) else None

    stub.rule = strict
    staged = await halves.staged()
    async with halves.session(staged) as session:
        await session.fetch(staged.ticket.inputs[0], tmp_path / "into", ProgressDouble())


def test_the_links_of_five_thousand_inputs_are_a_small_part_of_a_message() -> None:
    threads = Threads(1, "test")
    grant = S3Grant(access_key_id="K" * 128, secret_access_key="S" * 128, session_token="T" * 4096)
    client = BucketClient(
        Bucket(name="codefyui", endpoint_url="", region="eu-central-1", style=Style.VIRTUAL),
        Keys.of(grant, 0),
        threads=threads,
        clock=None,  # type: ignore[arg-type]
        store_time=StoreTime(),
        machine="server",
    )
    hashes = [Sha256(hashlib.sha256(b"%d" % number).hexdigest()) for number in range(5000)]
    links = client.links("codefyui/", hashes, expires_s=3600)
    threads.close()
    sent = grant.model_copy(update={"links": links}).model_dump_json(context={"reveal": True})
    assert len(links.signatures) == 5000
    assert len(sent) < MESSAGE_BYTES / 20


def test_a_link_that_is_shown_shows_stars() -> None:
    links = Links(query="secret-query", signatures={Sha256("0" * 64): "secret-signature"})
    for text in (repr(links), links.model_dump_json()):
        assert "secret" not in text


@pytest.mark.service
@pytest.mark.spec("s3/sts-policy-limits-reads-to-run-inputs")
async def test_a_real_store_gives_each_input_by_its_link(
    site_of: MakeSite, bucket_settings: dict[str, object], tmp_path: Path
) -> None:
    halves = await _site(site_of, bucket_settings)
    staged = await halves.staged()
    async with halves.session(staged) as session:
        for item in staged.ticket.inputs:
            assert await session.fetch(item, tmp_path / item.name, ProgressDouble()) == item.sha256
