"""Objects of runs on a real S3 server: inputs, rows, downloads, removal, unfinished uploads."""

import asyncio
import hashlib
import logging
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
from s3_planes import ATTEMPT, RUN, RUN_ID, TRAIN, Halves, MakeSite, output_of, until

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from cdui_develop.seaweedfs import SeaweedFS
from codefyui_core.plugin import (
    Busy,
    Corrupt,
    Discard,
    DiscardReason,
    Family,
    Redirect,
    Refused,
    StoredObject,
    Stream,
)
from codefyui_storage_s3.models import S3Receipt, UploadBegun
from codefyui_storage_s3.unfinished import LIMIT, ROOM

pytestmark = pytest.mark.service

OUTPUT = frozenset({"output"})


@pytest.fixture
async def halves(site_of: MakeSite, bucket_settings: dict[str, object]) -> Halves:
    made: Halves = await site_of(bucket_settings, s3_credentials="static")
    return await made.start()


@pytest.fixture
def store(seaweedfs: SeaweedFS, bucket_settings: dict[str, object]) -> "Store":
    return Store(seaweedfs.client(), str(bucket_settings["s3_bucket"]), str(bucket_settings["s3_prefix"]))


class Store:
    """What a person sees of the test's prefix with a client of their own."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self.client, self.bucket, self.prefix = client, bucket, prefix

    def keys(self, below: str = "") -> list[str]:
        page = self.client.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix + below)
        return [one["Key"].removeprefix(self.prefix) for one in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read())

    def put(self, key: str, body: bytes = b"x") -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=body)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    def modified(self, key: str) -> Any:
        return self.client.head_object(Bucket=self.bucket, Key=self.prefix + key)["LastModified"]

    def begin(self, key: str) -> UploadBegun:
        key = self.prefix + key
        upload = self.client.create_multipart_upload(Bucket=self.bucket, Key=key)
        return UploadBegun(key=key, upload_id=upload["UploadId"])

    def is_open(self, begun: UploadBegun) -> bool:
        try:
            self.client.list_parts(Bucket=self.bucket, Key=begun.key, UploadId=begun.upload_id)
        except self.client.exceptions.NoSuchUpload:
            return False
        return True


async def bytes_of(reading: object) -> bytes:
    assert isinstance(reading, Stream)
    return b"".join([chunk async for chunk in reading.chunks])


def removal(
    *stored: StoredObject, why: DiscardReason = DiscardReason.DELETE, keep: frozenset[str] = OUTPUT
) -> Discard:
    return Discard(run=RUN, stored=stored, why=why, keep_kinds=keep)


# ------------------------------------------------------------ inputs


@pytest.mark.spec("s3/input-key-is-content-hash", "s3/input-put-once-per-content")
async def test_an_input_is_put_under_its_hash_and_never_twice(
    halves: Halves, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await halves.staged()
    key = f"inputs/{hashlib.sha256(TRAIN).hexdigest()}"
    assert store.read(key) == TRAIN
    puts = _count_puts(monkeypatch)
    halves.host.uploads = {(Family.FILES, "renamed.csv"): TRAIN, (Family.MEDIA, "again.csv"): TRAIN}
    await halves.staged(replace(RUN, id="0" * 31 + "9"))
    assert puts == []
    assert store.keys("inputs/") == [key]


@pytest.mark.spec("s3/input-put-once-per-content")
async def test_runs_that_need_the_same_new_content_at_once_put_it_once(
    halves: Halves, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts = _count_puts(monkeypatch)
    await asyncio.gather(*(halves.staged(replace(RUN, id=f"{number:032x}")) for number in range(6)))
    assert len(puts) == 1


def _count_puts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    from codefyui_storage_s3 import inputs

    puts: list[str] = []
    real = inputs.send_whole

    def counted(client: Any, key: str, *args: Any, **more: Any) -> Any:
        puts.append(key)
        return real(client, key, *args, **more)

    monkeypatch.setattr(inputs, "send_whole", counted)
    return puts


@pytest.mark.spec("s3/expired-input-uploaded-again")
async def test_an_input_that_is_gone_is_put_again(halves: Halves, store: Store) -> None:
    staged = await halves.staged()
    key = f"inputs/{staged.ticket.inputs[0].sha256}"
    store.remove(key)
    await halves.staged()
    assert store.read(key) == TRAIN


async def test_an_input_cut_short_by_somebody_is_put_again(halves: Halves, store: Store) -> None:
    staged = await halves.staged()
    key = f"inputs/{staged.ticket.inputs[0].sha256}"
    store.put(key, TRAIN[:10])
    await halves.staged()
    assert store.read(key) == TRAIN


async def test_a_large_input_goes_in_parts_and_leaves_no_record(halves: Halves, store: Store) -> None:
    large = b"0123456789abcdef" * ((17 << 20) // 16)
    halves.host.uploads = {(Family.FILES, "large.bin"): large}
    staged = await halves.staged()
    key = f"inputs/{staged.ticket.inputs[0].sha256}"
    assert hashlib.sha256(store.read(key)).digest() == hashlib.sha256(large).digest()
    assert await halves.host.documents.keys(ROOM) == []


@pytest.mark.parametrize("size", [100, 17 << 20])
async def test_a_file_that_changes_under_its_hash_never_gets_into_the_bucket(
    halves: Halves, store: Store, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    halves.host.uploads = {(Family.FILES, "train.csv"): b"a" * size}
    real = halves.host.inputs

    async def then_changed(run: Any) -> Any:
        items = await real(run)
        halves.host.input_path(items[0]).write_bytes(b"b" * size)
        return items

    monkeypatch.setattr(halves.host, "inputs", then_changed)
    with pytest.raises(Refused, match="changed"):
        await halves.staged()
    assert store.keys("inputs/") == []
    assert await halves.host.documents.keys(ROOM) == []


async def test_a_store_that_does_not_know_conditions_gets_the_input_without(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    def rule(asked: Asked) -> Says | None:
        return error("NotImplemented", 501) if "if-none-match" in asked.headers else None

    stub.rule = rule
    halves = await (await site_of(stub_settings, s3_credentials="static")).start()
    staged = await halves.staged()
    assert stub.objects[f"/codefyui/inputs/{staged.ticket.inputs[0].sha256}"][0] == TRAIN


# ------------------------------------------------------------ rows


@pytest.mark.spec("s3/artifacts-list-fields", "s3/row-records-bucket-and-full-key", "s3/artifact-key-layout")
async def test_a_row_names_bucket_and_full_key(halves: Halves, store: Store) -> None:
    stored = await halves.stored(await halves.staged())
    key = f"{store.prefix}runs/{RUN_ID}/checkpoint/digits/epoch-1.pt"
    assert stored.relative_path == key
    assert stored.data == {"bucket": store.bucket, "prefix": store.prefix}
    halves.host.given |= {"s3_bucket": "another", "s3_prefix": "q/", "s3_enabled": False}
    assert halves.control.place(stored).path == f"s3://{store.bucket}/{key}"


@pytest.mark.spec("s3/control-plane-keeps-only-keys", "s3/writer-file-not-placed-locally")
async def test_the_control_plane_keeps_no_bytes_of_outputs(halves: Halves) -> None:
    staged = await halves.staged()
    before = {path for path in halves.host.root.rglob("*") if path.is_file()}
    await halves.stored(staged, kind="output", name="models/iris/model.pt")
    assert {path for path in halves.host.root.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "lie", [{"size_bytes": 3}, {"sha256": "0" * 64}, {"sha256": None}, {"size_bytes": None}]
)
async def test_a_receipt_that_does_not_fit_the_object_is_refused(halves: Halves, lie: dict[str, Any]) -> None:
    staged = await halves.staged()
    async with halves.session(staged) as session:
        output, receipt = await halves.publish(session, b"weights")
    with pytest.raises(Refused, match="not what its worker uploaded"):
        await halves.control.accept(halves.given(staged), output, receipt.model_copy(update=lie))


async def test_an_object_that_is_not_there_is_refused(halves: Halves) -> None:
    staged = await halves.staged()
    receipt = S3Receipt(sha256="0" * 64, size_bytes=7)
    with pytest.raises(Refused) as caught:
        await halves.control.accept(halves.given(staged), output_of(b"weights"), receipt)
    assert caught.value.code == "artifact.not_found"


# ------------------------------------------------------------ downloads


@pytest.mark.spec("s3/download-proxied-by-default")
async def test_a_download_passes_the_control_plane(halves: Halves) -> None:
    data = bytes(range(256)) * 10_000
    stored = await halves.stored(await halves.staged(), data)
    reading = await halves.control.read(stored, None)
    assert isinstance(reading, Stream)
    assert reading.size_bytes == len(data)
    assert await bytes_of(reading) == data


@pytest.mark.parametrize("span", [(0, 1), (1000, 2000), (2_559_000, None), (5, 2_560_000)])
async def test_a_part_of_a_download_is_that_part(halves: Halves, span: tuple[int, int | None]) -> None:
    data = bytes(range(256)) * 10_000
    stored = await halves.stored(await halves.staged(), data)
    reading = await halves.control.read(stored, span)
    assert isinstance(reading, Stream)
    wanted = data[span[0] : span[1]]
    assert reading.size_bytes == len(wanted)
    assert await bytes_of(reading) == wanted


async def test_a_download_of_other_bytes_than_were_written_breaks_off(halves: Halves, store: Store) -> None:
    stored = await halves.stored(await halves.staged(), b"weights")
    store.put(stored.relative_path.removeprefix(store.prefix), b"poison!")
    with pytest.raises(Corrupt):
        await bytes_of(await halves.control.read(stored, None))


@pytest.mark.spec("s3/download-presign-redirects", "s3/presign-ttl-setting")
async def test_presign_leads_the_browser_to_the_bucket(halves: Halves, seaweedfs: SeaweedFS) -> None:
    stored = await halves.stored(await halves.staged(), b"weights")
    halves.host.given["s3_download"] = "presign"
    reading = await halves.control.read(stored, None)
    assert isinstance(reading, Redirect)
    assert reading.url.startswith(seaweedfs.endpoint_url)
    query = parse_qs(urlsplit(reading.url).query)
    assert query["X-Amz-Expires"] == ["900"]
    assert "secret" not in reading.url

    def read() -> tuple[bytes, str]:
        with urlopen(reading.url, timeout=10) as answer:
            return bytes(answer.read()), answer.headers["Content-Disposition"]

    data, disposition = await asyncio.to_thread(read)
    assert data == b"weights"
    assert disposition == "attachment; filename*=UTF-8''epoch-1.pt"


@pytest.mark.spec("s3/presign-ttl-setting")
async def test_a_presigned_address_ends_with_its_time(halves: Halves) -> None:
    stored = await halves.stored(await halves.staged(), b"weights")
    halves.host.given |= {"s3_download": "presign", "s3_presign_ttl_s": 1}
    reading = await halves.control.read(stored, None)
    assert isinstance(reading, Redirect)

    def status() -> int:
        try:
            with urlopen(reading.url, timeout=10) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    await until(lambda: status() != 200)
    assert await asyncio.to_thread(status) == 403


@pytest.mark.parametrize("mode", ["proxy", "presign"])
async def test_a_file_that_is_gone_is_refused_and_not_shown_as_xml(
    halves: Halves, store: Store, mode: str
) -> None:
    stored = await halves.stored(await halves.staged(), b"weights")
    store.remove(stored.relative_path.removeprefix(store.prefix))
    halves.host.given["s3_download"] = mode
    with pytest.raises(Refused) as caught:
        await halves.control.read(stored, None)
    assert caught.value.code == "artifact.not_found"


# ------------------------------------------------------------ removal


async def _run_of(halves: Halves) -> dict[str, StoredObject]:
    staged = await halves.staged()
    return {
        kind: await halves.stored(staged, kind.encode(), kind=kind, name=name)
        for kind, name in (
            ("checkpoint", "epoch-1.pt"),
            ("tensorboard", "log/events.1"),
            ("output", "models/iris/model.pt"),
        )
    }


@pytest.mark.spec("s3/cleanup-removes-run-objects", "s3/cleanup-keeps-output-objects")
@pytest.mark.spec("s3/unreferenced-objects-left-to-lifecycle-rules")
@pytest.mark.parametrize("why", [DiscardReason.DELETE, DiscardReason.RETENTION])
async def test_a_runs_objects_go_and_its_outputs_and_inputs_stay(
    halves: Halves, store: Store, why: DiscardReason
) -> None:
    stored = await _run_of(halves)
    store.put(f"runs/{RUN_ID}/checkpoint/not-recorded.pt")
    store.put("runs/another/checkpoint/a.pt")
    store.put(f"runs/{RUN_ID}0/checkpoint/a.pt")
    (inputs,) = store.keys("inputs/")
    await halves.control.discard(removal(*stored.values(), why=why))
    assert sorted(store.keys()) == sorted(
        [
            inputs,
            "runs/another/checkpoint/a.pt",
            f"runs/{RUN_ID}/output/models/iris/model.pt",
            f"runs/{RUN_ID}0/checkpoint/a.pt",
        ]
    )


@pytest.mark.spec("s3/retention-keeps-checkpoint-of-interrupted-run")
async def test_kinds_that_are_to_stay_do(halves: Halves, store: Store) -> None:
    stored = await _run_of(halves)
    keep = frozenset({"output", "checkpoint"})
    await halves.control.discard(removal(*stored.values(), why=DiscardReason.RETENTION, keep=keep))
    assert sorted(store.keys(f"runs/{RUN_ID}/")) == [
        f"runs/{RUN_ID}/checkpoint/epoch-1.pt",
        f"runs/{RUN_ID}/output/models/iris/model.pt",
    ]


async def test_a_run_whose_worker_died_before_it_told_of_its_files_leaves_none(
    halves: Halves, store: Store
) -> None:
    store.put(f"runs/{RUN_ID}/checkpoint/not-recorded.pt")
    store.put("runs/another/checkpoint/a.pt")
    await halves.control.discard(removal())
    assert store.keys("runs/") == ["runs/another/checkpoint/a.pt"]


async def test_one_artifact_goes_alone(halves: Halves, store: Store) -> None:
    stored = await _run_of(halves)
    await halves.control.discard(removal(stored["tensorboard"], why=DiscardReason.ARTIFACT))
    assert sorted(store.keys(f"runs/{RUN_ID}/")) == [
        f"runs/{RUN_ID}/checkpoint/epoch-1.pt",
        f"runs/{RUN_ID}/output/models/iris/model.pt",
    ]


async def test_rows_of_files_that_stayed_on_their_worker_are_no_objects(halves: Halves, store: Store) -> None:
    stored = (await _run_of(halves))["checkpoint"]
    left = replace(stored, key="f" * 32, data={}, relative_path="models/left.pt")
    await halves.control.discard(removal(stored, left))
    assert store.keys(f"runs/{RUN_ID}/checkpoint/") == []


@pytest.mark.spec("s3/earlier-runs-handled-in-old-bucket", "s3/changed-bucket-affects-new-runs-only")
async def test_after_a_change_earlier_runs_are_read_and_removed_where_they_are(
    halves: Halves, store: Store, bucket: str
) -> None:
    stored = await _run_of(halves)
    halves.host.given |= {"s3_bucket": bucket, "s3_prefix": "q/"}
    assert await bytes_of(await halves.control.read(stored["checkpoint"], None)) == b"checkpoint"
    halves.host.given["s3_download"] = "presign"
    reading = await halves.control.read(stored["checkpoint"], None)
    assert isinstance(reading, Redirect)
    assert f"/{store.bucket}/{store.prefix}" in reading.url
    await halves.control.discard(removal(*stored.values()))
    assert store.keys(f"runs/{RUN_ID}/") == [f"runs/{RUN_ID}/output/models/iris/model.pt"]


@pytest.mark.spec("s3/cleanup-unreachable-bucket-logged", "s3/delete-unreachable-bucket-warning-field")
async def test_a_bucket_that_cannot_be_reached_is_said_to_the_core(halves: Halves, store: Store) -> None:
    stored = await _run_of(halves)
    halves.host.given["s3_endpoint_url"] = "http://127.0.0.1:9"
    with pytest.raises(Busy, match=r"http://127\.0\.0\.1:9"):
        await halves.control.discard(removal(*stored.values()))
    assert len(store.keys(f"runs/{RUN_ID}/")) == 3


# ------------------------------------------------------------ unfinished uploads


@pytest.mark.spec("s3/cleanup-aborts-unfinished-uploads")
async def test_uploads_that_were_told_are_aborted_by_their_ids_and_others_are_not(
    halves: Halves, store: Store
) -> None:
    staged = await halves.staged()
    given = halves.given(staged)
    begun = [store.begin(f"runs/{RUN_ID}/checkpoint/{number}.pt") for number in range(3)]
    other = store.begin("runs/another/checkpoint/1.pt")
    for one in begun:
        await halves.control.told(given, one.to_json())
        await halves.control.told(given, one.to_json())
    await halves.control.settled(given)
    assert not any(store.is_open(one) for one in begun)
    assert store.is_open(other)
    assert await halves.host.documents.keys(ROOM) == []


@pytest.mark.spec("s3/cleanup-aborts-unfinished-uploads")
async def test_removing_a_run_aborts_what_is_still_open(halves: Halves, store: Store) -> None:
    stored = await _run_of(halves)
    begun = store.begin(f"runs/{RUN_ID}/checkpoint/open.pt")
    await halves.control.told(halves.given(await halves.staged()), begun.to_json())
    await halves.control.discard(removal(*stored.values()))
    assert not store.is_open(begun)


@pytest.mark.parametrize("key", ["runs/another/a.pt", "inputs/0", f"runs/{RUN_ID}", "", "x" * 3000])
async def test_a_worker_cannot_have_uploads_of_others_aborted(halves: Halves, store: Store, key: str) -> None:
    given = halves.given(await halves.staged())
    with pytest.raises(Refused):
        await halves.control.told(given, {"key": store.prefix + key, "upload_id": "1"})
    assert await halves.host.documents.keys(ROOM) == []


async def test_a_worker_cannot_fill_the_database_with_uploads(halves: Halves, store: Store) -> None:
    given = halves.given(await halves.staged())
    folder = f"{store.prefix}runs/{RUN_ID}/"
    for number in range(LIMIT):
        await halves.control.told(given, {"key": f"{folder}{number}", "upload_id": "1"})
    with pytest.raises(Refused, match="open"):
        await halves.control.told(given, {"key": f"{folder}more", "upload_id": "1"})


async def test_uploads_that_could_not_be_aborted_are_once_the_bucket_is_back(
    halves: Halves, store: Store, seaweedfs: SeaweedFS, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    staged = await halves.staged()
    begun = store.begin(f"runs/{RUN_ID}/checkpoint/1.pt")
    away = staged.ticket.model_copy(
        update={"bucket": staged.ticket.bucket.model_copy(update={"endpoint_url": "http://127.0.0.1:9"})}
    )
    given = replace(halves.given(staged), ticket=away)
    await halves.control.told(given, begun.to_json())
    halves.host.attempts.clear()
    await halves.control.settled(given)
    (place,) = await halves.host.documents.keys(ROOM)
    assert store.is_open(begun)
    document = halves.host.documents.values[place]
    document["bucket"]["endpoint_url"] = seaweedfs.endpoint_url  # type: ignore[index,call-overload]
    async with asyncio.timeout(10):
        while await halves.host.documents.keys(ROOM):
            await halves.clock.advance(60)
            await asyncio.sleep(0.02)
    assert not store.is_open(begun)


async def test_a_new_server_aborts_what_attempts_left_that_hold_their_run_no_more(
    site_of: MakeSite, bucket_settings: dict[str, object], halves: Halves, store: Store
) -> None:
    given = halves.given(await halves.staged())
    begun = store.begin(f"runs/{RUN_ID}/checkpoint/1.pt")
    live = store.begin(f"runs/{RUN_ID}/checkpoint/2.pt")
    await halves.control.told(given, begun.to_json())
    await halves.control.told(replace(given, attempt=replace(ATTEMPT, number=2)), live.to_json())
    again: Halves = await site_of(bucket_settings, s3_credentials="static", documents=halves.host.documents)
    again.host.attempts[RUN_ID] = replace(ATTEMPT, number=2)
    await again.start()
    await until(lambda: not store.is_open(begun))
    assert store.is_open(live)
