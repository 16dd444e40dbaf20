"""Requests as they go over the line."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from s3_planes import Halves, MakeSite

from cdui_develop.bucket_stub import Asked, Says, Stub, error
from cdui_develop.seaweedfs import ACCESS_KEY_ID
from codefyui_core.plugin import Corrupt, Expired, Refused, TransferStopped
from codefyui_core.testing.clock import ManualClock
from codefyui_core.testing.hosts import ProgressDouble
from codefyui_storage_s3.boto import make_client
from codefyui_storage_s3.client import BucketClient
from codefyui_storage_s3.keys import Keys
from codefyui_storage_s3.models import Bucket, S3Grant, Style
from codefyui_storage_s3.store_time import StoreTime
from codefyui_storage_s3.threads import Threads
from codefyui_storage_s3.uploading import send_whole

KEYS = Keys(
    access_key_id=SecretStr("TEMPORARY"),
    secret_access_key=SecretStr("hidden-secret-key"),
    session_token=SecretStr("hidden-session-token"),
)


def _bucket(endpoint: str, style: Style = Style.PATH, region: str = "us-east-1") -> Bucket:
    return Bucket(name="codefyui", endpoint_url=endpoint, region=region, style=style)


@pytest.fixture
def client(stub: Stub) -> Any:
    threads = Threads(4, "test")
    yield BucketClient(
        _bucket(stub.url),
        KEYS,
        threads=threads,
        clock=ManualClock(),
        store_time=StoreTime(),
        machine="worker",
    )
    threads.close()


async def test_no_checksum_is_added_that_other_stores_refuse_or_write_into_the_file(
    client: BucketClient, stub: Stub
) -> None:
    """boto3 issues 4401 and 4435: without the two settings every upload has an x-amz-checksum header, or a trailer in an
    aws-chunked body that a store may keep as the file's last bytes.
    """
    data = b"weights" * 300_000
    await client.threads.run(send_whole, client, "runs/1/large", data, ProgressDouble())
    await client.threads.run(send_whole, client, "runs/1/small", b"weights", ProgressDouble())
    await client.call("create_multipart_upload", "runs/1/parts")
    await client.call("upload_part", "runs/1/parts", UploadId="upload-1", PartNumber=1, Body=b"part")
    answer = await client.call("get_object", "runs/1/small")
    assert answer["Body"].read() == b"weights"
    for asked in stub.asked:
        added = [name for name in asked.headers if "checksum" in name or "sdk-checksum" in name]
        assert not added, f"{asked.method} {asked.path} has {added}"
        assert "aws-chunked" not in asked.headers.get("content-encoding", "")
        assert "trailer" not in asked.headers.get("x-amz-content-sha256", "").lower()
    assert stub.objects["/codefyui/runs/1/large"][0] == data


async def test_a_store_that_keeps_other_bytes_than_were_sent_is_noticed(
    client: BucketClient, stub: Stub
) -> None:
    def spoil(asked: Asked) -> Says | None:
        return (
            stub._keep(asked.path, asked.body + b"\r\nx-amz-checksum-crc32:AAAA", {})
            if asked.method == "PUT"
            else None
        )

    stub.rule = spoil
    with pytest.raises(Corrupt, match="other bytes"):
        await client.threads.run(send_whole, client, "runs/1/a", b"weights", ProgressDouble())


@pytest.mark.spec("s3/worker-needs-no-s3-settings")
async def test_keys_and_addresses_come_from_nowhere_else(
    stub: Stub, client: BucketClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    config.write_text(
        "[default]\naws_access_key_id=FILEKEY\naws_secret_access_key=x\nendpoint_url=http://127.0.0.1:9\n"
    )
    for name, value in {
        "AWS_ACCESS_KEY_ID": "ENVKEY",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_SESSION_TOKEN": "x",
        "AWS_PROFILE": "absent",
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(config),
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_DEFAULT_REGION": "eu-west-9",
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_supported",
        "CODEFYUI_S3_BUCKET": "wrong",
    }.items():
        monkeypatch.setenv(name, value)
    await client.call("put_object", "a", Body=b"1")
    (asked,) = stub.asked
    assert asked.access_key == "TEMPORARY"
    assert "/us-east-1/s3/" in asked.headers["authorization"]
    assert asked.path == "/codefyui/a"


@pytest.mark.parametrize(
    "answer",
    [
        error("PermanentRedirect", 301, **{"x-amz-bucket-region": "eu-west-1"}),
        Says(307, b"", {"Location": "http://127.0.0.1:9/elsewhere", "x-amz-bucket-region": "eu-west-1"}),
        Says(
            400,
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>",
            {"x-amz-bucket-region": "eu-west-1"},
        ),
    ],
)
async def test_an_answer_that_names_another_region_leads_nowhere_else(
    client: BucketClient, stub: Stub, answer: Says
) -> None:
    stub.rule = lambda asked: answer
    with pytest.raises(Refused, match="CODEFYUI_S3_REGION"):
        await client.call("put_object", "a", Body=b"1")
    assert [asked.method for asked in stub.asked] == ["PUT"]


async def test_one_try_is_one_request(client: BucketClient, stub: Stub) -> None:
    from codefyui_core.plugin import Busy

    stub.rule = lambda asked: error("SlowDown", 503)
    with pytest.raises(Busy):
        await client.call("put_object", "a", Body=b"1")
    assert len(stub.asked) == 1


@pytest.mark.spec("s3/endpoint-url-empty-means-aws", "s3/addressing-style-setting")
@pytest.mark.parametrize(
    ("endpoint", "style", "region", "url"),
    [
        ("", Style.VIRTUAL, "eu-central-1", "https://codefyui.s3.eu-central-1.amazonaws.com/k?"),
        ("", Style.VIRTUAL, "us-east-1", "https://codefyui.s3.us-east-1.amazonaws.com/k?"),
        ("", Style.PATH, "eu-central-1", "https://s3.eu-central-1.amazonaws.com/codefyui/k?"),
        ("http://minio.lab:9000", Style.PATH, "us-east-1", "http://minio.lab:9000/codefyui/k?"),
        ("http://minio.lab:9000", Style.VIRTUAL, "us-east-1", "http://codefyui.minio.lab:9000/k?"),
        ("https://gateway.lab/s3", Style.PATH, "us-east-1", "https://gateway.lab/s3/codefyui/k?"),
    ],
)
def test_addresses_have_the_form_of_their_style(endpoint: str, style: Style, region: str, url: str) -> None:
    made = make_client("s3", _bucket(endpoint, style, region), KEYS, StoreTime())
    signed = made.generate_presigned_url("get_object", Params={"Bucket": "codefyui", "Key": "k"}, ExpiresIn=5)
    assert signed.startswith(url)
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in signed


@pytest.mark.spec("s3/agent-keeps-credentials-in-memory-only", "s3/control-plane-keys-from-environment-only")
async def test_nothing_secret_is_logged_at_debug_level(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    halves: Halves = await (await site_of(stub_settings, s3_credentials="sts")).start()
    staged = await halves.staged()
    stored = await halves.stored(staged, b"weights")
    assert stored.relative_path == f"runs/{'0' * 31}1/checkpoint/digits/epoch-1.pt"
    stub.rule = lambda asked: error("AccessDenied", 403)
    async with halves.session(staged) as session:
        with pytest.raises(Refused) as caught:
            await halves.publish(session, b"more")
    said = caplog.text + repr(staged) + str(staged.grant) + caught.value.message
    for secret in ("own-secret", "OWNKEY", "TEMPORARY1", "temporary-secret-1", "session-token-1"):
        assert secret not in said


def test_a_grant_that_is_shown_shows_stars() -> None:
    grant = S3Grant(
        access_key_id=SecretStr(ACCESS_KEY_ID),
        secret_access_key=SecretStr("hidden"),
        session_token=SecretStr("token"),
    )
    for text in (repr(grant), grant.model_dump_json()):
        assert ACCESS_KEY_ID not in text
        assert "hidden" not in text


async def test_a_stop_ends_a_request_in_its_middle(client: BucketClient, stub: Stub) -> None:
    data = b"x" * (4 << 20)
    with pytest.raises(TransferStopped):
        await client.threads.run(send_whole, client, "runs/1/a", data, ProgressDouble(stop_after=1 << 20))
    assert "/codefyui/runs/1/a" not in stub.objects


async def test_what_is_sent_is_counted_once(client: BucketClient) -> None:
    progress = ProgressDouble()
    await client.threads.run(send_whole, client, "runs/1/a", b"x" * (3 << 20), progress)
    await client.threads.run(send_whole, client, "runs/1/b", b"x" * 1000, progress)
    assert progress.n_bytes == (3 << 20) + 1000


@pytest.mark.spec("s3/invalid-access-key-retried-only-when-expired-temporary")
async def test_keys_run_out_by_the_hosts_clock(stub: Stub) -> None:
    clock, threads = ManualClock(), Threads(1, "test")
    grant = S3Grant(
        access_key_id=SecretStr("A"),
        secret_access_key=SecretStr("B"),
        session_token=SecretStr("C"),
        expires_in_s=900,
    )
    keys = Keys.of(grant, clock.monotonic())
    client = BucketClient(
        _bucket(stub.url), keys, threads=threads, clock=clock, store_time=StoreTime(), machine="worker"
    )
    stub.rule = lambda asked: error("InvalidAccessKeyId", 403)
    await clock.advance(899)
    with pytest.raises(Refused):
        await client.call("put_object", "a", Body=b"1")
    await clock.advance(1)
    with pytest.raises(Expired):
        await client.call("put_object", "a", Body=b"1")
    threads.close()
