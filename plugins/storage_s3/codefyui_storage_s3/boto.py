"""Clients of boto3 that know one bucket and one pair of keys, and nothing of the machine that they are on.

The only module that imports boto3, and only when a client is made.
"""

import importlib.metadata
import importlib.util
import logging
import os
import threading
from functools import cache
from typing import Any

from .body import Sending
from .keys import Keys
from .links import read_by
from .models import Bucket
from .signing import sign_by
from .store_time import StoreTime

CONNECT_S = 5
READ_S = 30
"""Between two bytes of an answer; an upload's answer comes after its last byte."""

_one_at_a_time = threading.Lock()
"""Sessions of boto3 make one client at a time; clients serve any number of threads."""


def boto3_version() -> str | None:
    """None: boto3 isn't installed here."""
    if importlib.util.find_spec("boto3") is None:
        return None
    return importlib.metadata.version("boto3")


def make_client(
    service: str, bucket: Bucket, keys: Keys, store_time: StoreTime, *, parameter_validation: bool = True
) -> Any:
    """Blocking. Everything is given, so that nothing comes from this machine's environment, files or metadata service
    (certificates and proxies excepted, which belong to a machine).
    """
    token = keys.session_token
    with _one_at_a_time:
        client = _session().client(
            service,
            endpoint_url=bucket.endpoint_url or None,
            region_name=bucket.region,
            aws_access_key_id=keys.access_key_id.get_secret_value(),
            aws_secret_access_key=keys.secret_access_key.get_secret_value(),
            aws_session_token=None if token is None else token.get_secret_value(),
            config=_config(service, bucket, parameter_validation=parameter_validation),
        )
    sign_by(client, service, store_time)
    if keys.links is not None:
        read_by(client, keys.links)
    client.meta.events.register_last("before-parameter-build.s3", _stay)
    client.meta.events.register_last("before-send.s3", _count)
    return client


def _config(service: str, bucket: Bucket, *, parameter_validation: bool) -> Any:
    from botocore.config import Config

    return Config(
        signature_version="s3v4" if service == "s3" else None,
        s3={"addressing_style": bucket.style.value, "us_east_1_regional_endpoint": "regional"},
        # the core alone retries, with one window for all files of a run
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=CONNECT_S,
        read_timeout=READ_S,
        max_pool_connections=32,
        # Newer botocore adds checksums that other stores than AWS refuse, or write into the file as its last bytes
        # (boto3 issues 4401 and 4435). Not redundant: without these two lines uploads to such stores are damaged.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        ignore_configured_endpoint_urls=True,
        defaults_mode="legacy",
        use_dualstack_endpoint=False,
        use_fips_endpoint=False,
        parameter_validation=parameter_validation,
        tcp_keepalive=True,
    )


@cache
def _session() -> Any:
    """Shared, as it keeps the descriptions of services, which take a second to read. Holds no keys."""
    import boto3
    import botocore.session

    _silence()
    # no profile, no config file, no credentials file: a worker's own keys must never sign a request of ours
    nothing = (None, None, os.devnull, None)
    core = botocore.session.Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": nothing,
            "credentials_file": nothing,
        }
    )
    return boto3.session.Session(botocore_session=core)


def _silence() -> None:
    """At debug level botocore logs signed headers with their tokens, and answers of STS with their secrets."""
    for name in ("boto3", "botocore", "s3transfer"):
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))


def _stay(context: dict[str, Any], **_: object) -> None:
    """A server that names another region is answered by an error, not followed to an address nobody gave."""
    redirect = context.get("s3_redirect")
    if isinstance(redirect, dict):
        redirect["redirected"] = True


def _count(request: Any, **_: object) -> None:
    """From here on reads of the body are sent bytes; before, they were for the signature."""
    if isinstance(request.body, Sending):
        request.body.begin()
