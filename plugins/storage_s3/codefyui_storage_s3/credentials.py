"""What workers get: temporary keys from the endpoint's STS, limited to their run, or the control plane's own.

A run's keys read its inputs; when they are too many to be named, each is read by a link that the control plane signs.
"""

import logging
import time
from datetime import datetime
from typing import Any

from pydantic import SecretStr

from codefyui_core.plugin import Busy, Clock, CodefyError, Refused

from .boto import make_client
from .client import Answer, BucketClient, signing_clock, tell_time
from .keys import Keys
from .models import Bucket, Links, S3Grant, S3Ticket
from .policy import session_policy, writing_policy
from .problems import Circumstances, ClockOff, date_of, problem_of
from .settings import Credentials, S3Settings
from .threads import Threads

HOLD_OFF_S = 600.0
"""How long ``auto`` doesn't ask an STS that refused."""
RENEW_AT = 2 / 3
"""Of their life: time enough for a store or a line that is down for a while."""
NO_CREDENTIALS = "storage.credentials"


class Issuer:
    """Issues grants. Remembers of STS only when it last refused, and under which settings."""

    def __init__(self, *, threads: Threads, clock: Clock, log: logging.Logger) -> None:
        self._threads = threads
        self._clock = clock
        self._log = log
        self._refused: tuple[S3Settings, float] | None = None

    async def issue(
        self, settings: S3Settings, ticket: S3Ticket, run_id: str, client: BucketClient
    ) -> S3Grant:
        """``client`` has the control plane's keys for the ticket's bucket.

        Raises: Refused ``storage.credentials``; Busy.
        """
        if settings.s3_credentials is Credentials.STATIC or self._holds_off(settings):
            return own(settings)
        try:
            return await self._temporary(settings, ticket, run_id, client)
        except Refused as error:
            if settings.s3_credentials is Credentials.STS:
                raise Refused(
                    f"no temporary keys for the run: {error}; let the keys of CODEFYUI_S3_ACCESS_KEY_ID assume "
                    "CODEFYUI_S3_STS_ROLE_ARN, or set CODEFYUI_S3_CREDENTIALS=auto",
                    code=NO_CREDENTIALS,
                ) from None
            self._refused = (settings, self._clock.monotonic())
            self._log.warning(
                "workers get the server's own keys for bucket %s, as its STS gives no temporary ones: %s. "
                "It is asked again in %d minutes.",
                ticket.bucket.name,
                error,
                HOLD_OFF_S / 60,
            )
            return own(settings)

    def _holds_off(self, settings: S3Settings) -> bool:
        if settings.s3_credentials is not Credentials.AUTO or self._refused is None:
            return False
        before, since = self._refused
        return before == settings and self._clock.monotonic() - since < HOLD_OFF_S

    async def _temporary(
        self, settings: S3Settings, ticket: S3Ticket, run_id: str, client: BucketClient
    ) -> S3Grant:
        inputs = sorted({item.sha256 for item in ticket.inputs})
        naming = session_policy(ticket.bucket, ticket.prefix, run_id, inputs)
        asked: dict[str, Any] = {
            "RoleSessionName": f"codefyui-{run_id}"[:64],
            "Policy": naming or writing_policy(ticket.bucket, ticket.prefix, run_id),
            "DurationSeconds": settings.s3_sts_duration_s,
        }
        if settings.s3_sts_role_arn:
            asked["RoleArn"] = settings.s3_sts_role_arn
        answer = await self._threads.run(_assume, client, asked)
        life_s = life_of(answer, settings.s3_sts_duration_s)
        links: Links | None = None
        if naming is None:
            links = await self._threads.run(client.links, ticket.prefix, inputs, expires_s=int(life_s))
        keys = answer["Credentials"]
        return S3Grant(
            access_key_id=SecretStr(keys["AccessKeyId"]),
            secret_access_key=SecretStr(keys["SecretAccessKey"]),
            session_token=SecretStr(keys["SessionToken"]),
            links=links,
            expires_in_s=life_s,
            renew_in_s=life_s * RENEW_AT,
        )


def _assume(client: BucketClient, asked: dict[str, Any]) -> Answer:
    """By the keys of ``client``, at the STS of its address. Blocking. Raises: Refused; Busy."""
    try:
        return _ask_sts(client, asked)
    except ClockOff:  # signed by the time that the refusal told
        return _ask_sts(client, asked)


def _ask_sts(client: BucketClient, asked: dict[str, Any]) -> Answer:
    bucket, store_time = client.bucket, client.store_time
    since, signed_by = time.monotonic(), signing_clock(store_time)
    try:
        # MinIO needs no role, which boto3 would refuse to leave out
        sts = make_client("sts", bucket, client.keys, store_time, parameter_validation="RoleArn" in asked)
        answer: Answer = sts.assume_role(**asked)
    except KeyError:  # what botocore makes of XML that is no answer of an STS
        answer = {}
    except Exception as error:
        problem = problem_of(error, _circumstances(bucket, signed_by()))
        tell_time(store_time, getattr(error, "response", None) or {}, since)
        if problem is None:
            raise
        raise _final(problem) from None
    tell_time(store_time, answer, since)
    if not {"AccessKeyId", "SecretAccessKey", "SessionToken"} <= set(answer.get("Credentials", {})):
        raise Refused(f"{_circumstances(bucket, signed_by()).target}: its answer holds no keys")
    return answer


def _circumstances(bucket: Bucket, now: datetime) -> Circumstances:
    return Circumstances(
        bucket=bucket,
        operation="assume_role",
        key=None,
        temporary=False,
        by_link=False,
        past_expiry=False,
        now=now,
        machine="server",
    )


def own(settings: S3Settings) -> S3Grant:
    """The control plane's own keys, which don't expire."""
    return S3Grant(access_key_id=settings.s3_access_key_id, secret_access_key=settings.s3_secret_access_key)


def own_keys(settings: S3Settings) -> Keys:
    return Keys(access_key_id=settings.s3_access_key_id, secret_access_key=settings.s3_secret_access_key)


def life_of(answer: Answer, asked_s: int) -> float:
    """Seconds that the keys are valid, by the clock of the server that made them."""
    until, now = answer["Credentials"].get("Expiration"), date_of(answer)
    if not isinstance(until, datetime) or now is None:
        return float(asked_s)
    return max(1.0, (until - now).total_seconds())


def _final(problem: CodefyError) -> CodefyError:
    """An STS that isn't there doesn't come by waiting; one that is down does."""
    return problem if isinstance(problem, Busy | Refused) else Refused(problem.message)
