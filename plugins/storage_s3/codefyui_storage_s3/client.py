"""Requests to one bucket with one pair of keys. Calls wait for the network in threads; each is one try, and fails with a
StorageProblem.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from codefyui_core.plugin import Clock, Sha256

from .body import Sending
from .boto import make_client
from .keys import Keys
from .links import sign_links
from .models import Bucket, Links, input_key
from .problems import Circumstances, ClockOff, date_of, problem_of
from .signing import address_signer
from .store_time import StoreTime
from .threads import Threads

Answer = dict[str, Any]


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
