"""The session policy of a run's temporary keys. Pure."""

import json
from collections.abc import Iterable, Sequence

from codefyui_core.plugin import Sha256

from .models import Bucket, input_key, run_folder

LIMIT_CHARS = 1024
"""Half of what stores take of a session policy (AWS STS, AssumeRole; MinIO has the same): AWS has a second limit of what
it makes of one, which hashes reach first.
"""


def session_policy(bucket: Bucket, prefix: str, run_id: str, inputs: Iterable[Sha256]) -> str | None:
    """Writing below the run's folder, and reading its inputs. Compact, since stores measure it, and some read no other
    JSON. None when there are too many inputs to name.
    """
    text = _policy(bucket, prefix, run_id, [input_key(prefix, one) for one in sorted(set(inputs))])
    return text if len(text) <= LIMIT_CHARS else None


def writing_policy(bucket: Bucket, prefix: str, run_id: str) -> str:
    """The same without reading."""
    return _policy(bucket, prefix, run_id, ())


def _policy(bucket: Bucket, prefix: str, run_id: str, readable: Sequence[str]) -> str:
    arn = f"arn:{_partition(bucket.region)}:s3:::{bucket.name}/"
    statements = [
        {
            "Effect": "Allow",
            "Action": ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"],
            "Resource": [f"{arn}{run_folder(prefix, run_id)}*"],
        }
    ]
    if readable:
        reading = [arn + key for key in readable]
        statements.append({"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": reading})
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _partition(region: str) -> str:
    """Of Amazon's separate clouds; other stores know the first."""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
