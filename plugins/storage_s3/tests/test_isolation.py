"""What a worker can't do with the keys that it gets, as a real server enforces it."""

from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from botocore.exceptions import ClientError
from s3_planes import RUN_ID, MakeSite

from cdui_develop.seaweedfs import ROLE_ARN, SeaweedFS
from codefyui_core.plugin import Family, Sha256
from codefyui_storage_s3.models import S3Grant

pytestmark = pytest.mark.service


@pytest.fixture(params=["", ROLE_ARN], ids=["without a role", "with a role"])
async def worker(
    request: pytest.FixtureRequest,
    site_of: MakeSite,
    bucket_settings: dict[str, object],
    seaweedfs: SeaweedFS,
) -> "Worker":
    halves = await (
        await site_of(bucket_settings, s3_credentials="sts", s3_sts_role_arn=request.param)
    ).start()
    staged = await halves.staged()
    assert staged.grant is not None
    made = Worker(seaweedfs, staged.grant, staged.ticket.bucket.name, staged.ticket.prefix)
    made.input = f"{staged.ticket.prefix}inputs/{staged.ticket.inputs[0].sha256}"
    return made


class Worker:
    """A client with the keys of one run, in hostile hands."""

    input: str

    def __init__(self, server: SeaweedFS, grant: S3Grant, bucket: str, prefix: str) -> None:
        assert grant.session_token is not None
        self.bucket, self.prefix = bucket, prefix
        self.links = grant.links
        self.own = server.client()
        self.client = server.client(
            aws_access_key_id=grant.access_key_id.get_secret_value(),
            aws_secret_access_key=grant.secret_access_key.get_secret_value(),
            aws_session_token=grant.session_token.get_secret_value(),
        )

    def does(self, operation: str, key: str | None = None, **more: Any) -> Any:
        if key is not None:
            more["Key"] = self.prefix + key
        return getattr(self.client, operation)(Bucket=self.bucket, **more)

    def link(self, sha256: Sha256) -> str:
        """Behind the address of an object."""
        assert self.links is not None
        signature = self.links.signatures[sha256].get_secret_value()
        return f"{self.links.query.get_secret_value()}&X-Amz-Signature={signature}"

    def status(self, method: str, key: str, link: str) -> int:
        """Of a request that is signed by its address alone."""
        data = b"x" if method == "PUT" else None
        address = f"{self.client.meta.endpoint_url}/{self.bucket}/{self.prefix}{key}?{link}"
        try:
            with urlopen(Request(address, method=method, data=data), timeout=10) as answer:
                return int(answer.status)
        except HTTPError as error:
            with error:
                return error.code

    def upload_of_another(self) -> str:
        made = self.own.create_multipart_upload(Bucket=self.bucket, Key=f"{self.prefix}runs/other/a")
        return str(made["UploadId"])


@pytest.mark.spec("s3/sts-policy-limits-writes-to-run", "s3/sts-policy-limits-reads-to-run-inputs")
@pytest.mark.spec("s3/sts-minio-needs-no-role", "s3/sts-aws-role-arn")
def test_a_worker_can_do_what_its_run_needs(worker: Worker) -> None:
    worker.client.get_object(Bucket=worker.bucket, Key=worker.input, Range="bytes=0-1")
    worker.does("put_object", f"runs/{RUN_ID}/checkpoint/a.pt", Body=b"x")
    key = f"runs/{RUN_ID}/checkpoint/b.pt"
    upload = worker.does("create_multipart_upload", key)["UploadId"]
    part = worker.does("upload_part", key, UploadId=upload, PartNumber=1, Body=b"x")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    worker.does("complete_multipart_upload", key, UploadId=upload, MultipartUpload=parts)
    worker.does(
        "abort_multipart_upload", key, UploadId=worker.does("create_multipart_upload", key)["UploadId"]
    )


HOSTILE: dict[str, Callable[[Worker], Any]] = {
    "write into another run": lambda w: w.does("put_object", "runs/other/checkpoint/a.pt", Body=b"x"),
    "write beside its run": lambda w: w.does("put_object", f"runs/{RUN_ID}x/a.pt", Body=b"x"),
    "write over its input": lambda w: w.client.put_object(Bucket=w.bucket, Key=w.input, Body=b"x"),
    "write another input": lambda w: w.does("put_object", "inputs/" + "0" * 64, Body=b"x"),
    "write outside the prefix": lambda w: w.client.put_object(Bucket=w.bucket, Key="a", Body=b"x"),
    "climb out of its run": lambda w: w.does("put_object", f"runs/{RUN_ID}/../other/a", Body=b"x"),
    "read another input": lambda w: w.does("get_object", "inputs/" + "1" * 64),
    "read another run": lambda w: w.does("get_object", "runs/other/a.pt"),
    "read what it wrote": lambda w: w.does("get_object", f"runs/{RUN_ID}/a.pt"),
    "look at another input": lambda w: w.does("head_object", "inputs/" + "1" * 64),
    "list the bucket": lambda w: w.does("list_objects_v2"),
    "list its own run": lambda w: w.does("list_objects_v2", Prefix=f"{w.prefix}runs/{RUN_ID}/"),
    "list uploads": lambda w: w.does("list_multipart_uploads"),
    "remove its own object": lambda w: w.does("delete_object", f"runs/{RUN_ID}/a.pt"),
    "remove its input": lambda w: w.client.delete_object(Bucket=w.bucket, Key=w.input),
    "remove another run's object": lambda w: w.does("delete_object", "runs/other/a.pt"),
    "abort another run's upload": lambda w: w.does(
        "abort_multipart_upload", "runs/other/a", UploadId=w.upload_of_another()
    ),
    "send a part of another run's upload": lambda w: w.does(
        "upload_part", "runs/other/a", UploadId=w.upload_of_another(), PartNumber=1, Body=b"x"
    ),
    "begin an upload of another run": lambda w: w.does("create_multipart_upload", "runs/other/a"),
    "copy another input to itself": lambda w: w.does(
        "copy_object", f"runs/{RUN_ID}/a", CopySource=f"{w.bucket}/{w.prefix}inputs/{'1' * 64}"
    ),
    "change the bucket's rules": lambda w: w.does(
        "put_bucket_lifecycle_configuration",
        LifecycleConfiguration={
            "Rules": [{"ID": "x", "Status": "Enabled", "Filter": {}, "Expiration": {"Days": 1}}]
        },
    ),
    "remove the bucket": lambda w: w.does("delete_bucket"),
    "list buckets of others": lambda w: w.client.list_objects_v2(Bucket="ready"),
}


@pytest.mark.spec("s3/sts-policy-limits-writes-to-run", "s3/sts-policy-limits-reads-to-run-inputs")
def test_a_worker_can_do_nothing_else(worker: Worker, subtests: Any) -> None:
    for key in ("inputs/" + "1" * 64, "runs/other/a.pt", f"runs/{RUN_ID}/a.pt"):
        worker.own.put_object(Bucket=worker.bucket, Key=worker.prefix + key, Body=b"secret")
    for what, act in HOSTILE.items():
        with subtests.test(what):
            with pytest.raises(ClientError) as caught:
                act(worker)
            # a name that climbs is no name for this server
            wanted = 400 if what == "climb out of its run" else 403
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == wanted
    assert worker.own.get_object(Bucket=worker.bucket, Key=worker.input)["Body"].read(1) != b"x"


async def test_links_read_the_runs_inputs_and_nothing_else(
    site_of: MakeSite, bucket_settings: dict[str, object], seaweedfs: SeaweedFS, subtests: Any
) -> None:
    """Of a run with more inputs than a policy names."""
    halves = await site_of(bucket_settings, s3_credentials="sts")
    halves.host.uploads = {(Family.IMAGES, f"{number}.png"): b"%d" % number for number in range(20)}
    staged = await (await halves.start()).staged()
    assert staged.grant is not None
    worker = Worker(seaweedfs, staged.grant, staged.ticket.bucket.name, staged.ticket.prefix)
    first, second = (item.sha256 for item in staged.ticket.inputs[:2])
    others = ("inputs/" + "1" * 64, "runs/other/a.pt", f"runs/{RUN_ID}/a.pt")
    for key in others:
        worker.own.put_object(Bucket=worker.bucket, Key=worker.prefix + key, Body=b"secret")
    asks: dict[str, tuple[str, str, str]] = {
        "read its input": ("GET", f"inputs/{first}", first),
        "read its input by another one's link": ("GET", f"inputs/{second}", first),
        **{f"read {key} by a link": ("GET", key, first) for key in others},
        "write over its input": ("PUT", f"inputs/{first}", first),
        "remove its input": ("DELETE", f"inputs/{first}", first),
    }
    for what, (method, key, link) in asks.items():
        with subtests.test(what):
            assert worker.status(method, key, worker.link(link)) == (200 if what == "read its input" else 403)
    with subtests.test("read its input for longer"):
        longer = worker.link(first).replace("X-Amz-Expires=", "X-Amz-Expires=9")
        assert worker.status("GET", f"inputs/{first}", longer) == 403
    for key in (f"inputs/{first}", *others):
        with subtests.test(f"read {key} with the keys"):
            with pytest.raises(ClientError) as caught:
                worker.does("get_object", key)
            assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
