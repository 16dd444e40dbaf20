"""Clients of boto3 that know one bucket and one pair of keys, and nothing of the machine that they are on.

The only module that imports boto3, and only when a client is made. Calls wait for the network in threads; each is one
try, and fails with a StorageProblem.
"""

import importlib.metadata
import importlib.util
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from codefyui_core.plugin import Clock, SecretText, Sha256

from .body import Sending
from .links import read_by, sign_links
from .models import Bucket, Links, S3Grant, input_key
from .problems import Circumstances, ClockOff, date_of, problem_of
from .signing import address_signer, sign_by
from .store_time import StoreTime
from .threads import Threads

CONNECT_S = 5
READ_S = 30
"""Between two bytes of an answer; an upload's answer comes after its last byte."""

Answer = dict[str, Any]

_one_at_a_time = threading.Lock()
"""Sessions of boto3 make one client at a time; clients serve any number of threads."""


def boto3_version() -> str | None:
    """None: boto3 isn't installed here."""
    if importlib.util.find_spec("boto3") is None:
        return None
    return importlib.metadata.version("boto3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Credentials in memory, with the moment at which they run out."""

    access_key_id: SecretText
    secret_access_key: SecretText
    session_token: SecretText | None = None
    links: Links | None = None
    """By which objects are read; None: by the keys."""
    expires_at: float | None = None
    """By the host's monotonic clock."""

    @classmethod
    def of(cls, grant: S3Grant, now: float) -> "Keys":
        """As they arrive at ``now``."""
        return cls(
            access_key_id=grant.access_key_id,
            secret_access_key=grant.secret_access_key,
            session_token=grant.session_token,
            links=grant.links,
            expires_at=None if grant.expires_in_s is None else now + grant.expires_in_s,
        )

    @property
    def temporary(self) -> bool:
        return self.session_token is not None


def signing_clock(store_time: StoreTime) -> Callable[[], datetime]:
    """The time that a request is signed with which begins now, going on from there. Whoever sets the clock in the middle of
    a request doesn't change what the request was signed with.
    """
    began, since = store_time.now(), time.monotonic()
    return lambda: began + timedelta(seconds=time.monotonic() - since)


def tell_time(store_time: StoreTime, answer: Answer, since: float) -> None:
    """What time it is at the store, by an answer to what was asked at ``since`` (monotonic)."""
    date = date_of(answer)
    if date is not None:
        store_time.told(date, time.monotonic() - since)


class BucketClient:
    """Asks one bucket with one pair of keys. Threads may share it; made on its first call."""

    def __init__(
        self,
        bucket: Bucket,
        keys: Keys,
        *,
        threads: Threads,
        clock: Clock,
        store_time: StoreTime,
        machine: str,
    ) -> None:
        """``machine`` is whose clock signs: "worker" or "server"."""
        self.bucket = bucket
        self.keys = keys
        self.threads = threads
        self.store_time = store_time
        self._clock = clock
        self._machine = machine
        self._client: Any = None

    async def call(self, operation: str, key: str | None = None, **params: Any) -> Answer:
        """One request. ``operation`` is boto3's word: ``put_object``.

        Raises: StorageProblem; TransferStopped from a body's progress.
        """
        return await self.threads.run(self.ask, operation, key, **params)

    def ask(self, operation: str, key: str | None = None, **params: Any) -> Answer:
        """``call``, for one who is in a thread already."""
        if key is not None:
            params["Key"] = key
        try:
            return self._ask(operation, key, params)
        except ClockOff:
            if isinstance(params.get("Body"), Sending):  # its bytes are counted
                raise
            return self._ask(operation, key, params)  # signed by the time that the refusal told

    def _ask(self, operation: str, key: str | None, params: dict[str, Any]) -> Answer:
        since, signed_by = time.monotonic(), signing_clock(self.store_time)
        try:
            answer: Answer = getattr(self.made(), operation)(Bucket=self.bucket.name, **params)
        except Exception as error:
            problem = problem_of(error, self.circumstances(operation, key, signed_by))
            tell_time(self.store_time, getattr(error, "response", None) or {}, since)
            if problem is None:
                raise
            raise problem from None  # the original can hold signed headers
        tell_time(self.store_time, answer, since)
        return answer

    def circumstances(
        self, operation: str, key: str | None, signed_by: Callable[[], datetime] | None = None
    ) -> Circumstances:
        """What an error has to be judged by."""
        expired = self.keys.expires_at is not None and self._clock.monotonic() >= self.keys.expires_at
        return Circumstances(
            bucket=self.bucket,
            operation=operation,
            key=key,
            temporary=self.keys.temporary,
            by_link=self.keys.links is not None and operation == "get_object",
            past_expiry=expired,
            now=(signed_by or signing_clock(self.store_time))(),
            machine=self._machine,
        )

    def presigned(self, key: str, *, ttl_s: int, **params: str) -> str:
        """An address that gives the object to whoever has it, for ``ttl_s`` seconds."""
        url: str = self.made().generate_presigned_url(
            "get_object", Params={"Bucket": self.bucket.name, "Key": key, **params}, ExpiresIn=ttl_s
        )
        return url

    def links(self, prefix: str, inputs: Sequence[Sha256], *, expires_s: int) -> Links:
        """Addresses that give inputs to whoever has them, for ``expires_s`` seconds. Blocking."""
        address = self.presigned(input_key(prefix, inputs[0]), ttl_s=1).partition("?")[0]
        signer = address_signer(
            self.keys.access_key_id.get_secret_value(),
            self.keys.secret_access_key.get_secret_value(),
            region=self.bucket.region,
            expires_s=expires_s,
            store_time=self.store_time,
        )
        return sign_links(signer, address.removesuffix(inputs[0]), inputs)

    def made(self) -> Any:
        """The client of boto3. Blocking."""
        if self._client is None:
            self._client = make_client("s3", self.bucket, self.keys, self.store_time)
        return self._client


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
