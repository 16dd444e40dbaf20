"""The session policy of a run's temporary keys. Pure."""

import json
from collections.abc import Iterable, Sequence

from codefyui_core.plugin import Refused, Sha256

from .models import Bucket, input_key, run_folder

LIMIT_CHARS = 2048
"""Of a session policy (AWS STS, AssumeRole; MinIO has the same)."""
_SHORTENED_TO = (16, 10, 6)
"""Hex digits of an input's hash that name it when there are many: a run could read another's upload only by knowing
one whose hash begins alike."""


def session_policy(bucket: Bucket, prefix: str, run_id: str, inputs: Iterable[Sha256]) -> str:
    """Compact, since stores measure it, and some read no other JSON.

    Raises: Refused for a run with more inputs than a policy can name.
    """
    hashes = sorted(set(inputs))
    for digits in (64, *_SHORTENED_TO):
        text = _policy(bucket, prefix, run_id, _names(prefix, hashes, digits))
        if len(text) <= LIMIT_CHARS:
            return text
    raise Refused(
        f"the run reads {len(hashes)} uploads, more than temporary keys can be limited to; "
        "put them into fewer files, or set CODEFYUI_S3_CREDENTIALS=static",
        code="storage.credentials",
    )


def _names(prefix: str, hashes: Sequence[Sha256], digits: int) -> Sequence[str]:
    if digits == 64:
        return [input_key(prefix, one) for one in hashes]
    return sorted({input_key(prefix, Sha256(one[:digits])) + "*" for one in hashes})


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
