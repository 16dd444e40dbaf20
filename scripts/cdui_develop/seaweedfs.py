"""A real S3 server with STS for tests and benchmarks: SeaweedFS, which enforces the session policies that it issues keys
for. Comes from PyPI with the dev group, so it is never missing.
"""

import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

ACCESS_KEY_ID = "codefyui-tests"
SECRET_ACCESS_KEY = "secret-of-the-tests-5d1f"  # noqa: S105  of a server that lives as long as its tests
ROLE_ARN = "arn:aws:iam::role/runner"
REGION = "us-east-1"

_IDENTITIES = {
    "identities": [
        {
            "name": "codefyui",
            "credentials": [{"accessKey": ACCESS_KEY_ID, "secretKey": SECRET_ACCESS_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}
_ANYTHING = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}],
}
_ASSUMED_BY_ALL = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": ["sts:AssumeRole"]}],
}
_IAM = {
    "sts": {
        "tokenDuration": "12h",
        "maxSessionLength": "12h",
        "issuer": "tests",
        "signingKey": "dGhlLXNpZ25pbmcta2V5LW9mLXRlc3RzLTMyYnl0ZXM=",
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "policies": [{"name": "all", "document": _ANYTHING}],
    "roles": [
        {
            "roleName": "runner",
            "roleArn": ROLE_ARN,
            "trustPolicy": _ASSUMED_BY_ALL,
            "attachedPolicies": ["all"],
        }
    ],
}


_GROWTH = "[master.volume_growth]\ncopy_1 = 1\n"
"""A bucket begins with one volume, not seven: tests make many buckets."""


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@dataclass
class SeaweedFS:
    """One server on 127.0.0.1 with a folder of its own; ``stop`` and ``start`` keep address and content."""

    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="cdui-s3-", dir="/tmp")))
    _ports: list[int] = field(default_factory=lambda: _free_ports(8))
    _process: "subprocess.Popen[bytes] | None" = None

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._ports[0]}"

    def client(self, service: str = "s3", **more: Any) -> Any:
        """boto3 with the server's own keys; ``more`` replaces what is given to it."""
        import boto3
        from botocore.config import Config

        given = {
            "endpoint_url": self.endpoint_url,
            "region_name": REGION,
            "aws_access_key_id": ACCESS_KEY_ID,
            "aws_secret_access_key": SECRET_ACCESS_KEY,
            "config": Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        }
        return boto3.client(service, **(given | more))

    def start(self, within_s: float = 60) -> None:
        """Returns when it answers."""
        self.begin()
        deadline = time.monotonic() + within_s
        while not self.answers():
            if not self.up or time.monotonic() > deadline:
                raise AssertionError((self.folder / "log").read_text()[-4000:])
            time.sleep(0.1)

    def begin(self) -> None:
        """Its process alone; nothing is waited for."""
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self._ports
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (self.folder / "master.toml").write_text(_GROWTH)
        for name, content in (("s3.json", _IDENTITIES), ("iam.json", _IAM)):
            (self.folder / name).write_text(json.dumps(content))
        words = [
            str(Path(sys.executable).with_name("weed")),
            "server",
            f"-dir={data}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            "-master.volumeSizeLimitMB=1024",
            "-master.volumePreallocate=false",
            "-master.telemetry=false",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=10000",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={self.folder / 's3.sock'}",
            "-s3.autoCreateBucket=false",
            f"-s3.config={self.folder / 's3.json'}",
            f"-s3.iam.config={self.folder / 'iam.json'}",
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                start_new_session=True,
            )

    def answers(self) -> bool:
        """A bucket can be made and written to."""
        client = self.client()
        try:
            if not any(one["Name"] == "ready" for one in client.list_buckets()["Buckets"]):
                client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"x")
        except (BotoCoreError, ClientError):
            return False
        return True

    @property
    def up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """To its process, while there is one."""
        if self._process is not None and self.up:
            self._process.send_signal(number)

    def stop(self) -> None:
        """At once; what it has answered to is on the disk or in the system's cache."""
        if self._process is not None and self.up:
            self._process.kill()
            self._process.wait(10)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
