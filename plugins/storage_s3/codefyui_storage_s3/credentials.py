"""What workers get: temporary keys from the endpoint's STS, limited to their run, or the control plane's own."""

import logging
from datetime import datetime
from typing import Any

from pydantic import SecretStr

from codefyui_core.plugin import Busy, Clock, CodefyError, Refused

from .client import Answer, Keys, make_client, signing_clock
from .models import Bucket, S3Grant, S3Ticket
from .policy import session_policy
from .problems import Circumstances, date_of, problem_of
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

    async def issue(self, settings: S3Settings, ticket: S3Ticket, run_id: str) -> S3Grant:
        """Raises: Refused ``storage.credentials``; Busy."""
        if settings.s3_credentials is Credentials.STATIC or self._holds_off(settings):
            return own(settings)
        try:
            policy = session_policy(
                ticket.bucket, ticket.prefix, run_id, (item.sha256 for item in ticket.inputs)
            )
            return await self._temporary(settings, ticket.bucket, run_id, policy)
        except Refused as error:
            if settings.s3_credentials is Credentials.STS:
                raise Refused(
                    f"no temporary keys for the run: {error}; let the keys of CODEFYUI_S3_ACCESS_KEY_ID assume "
                    "CODEFYUI_S3_STS_ROLE_ARN, or set CODEFYUI_S3_CREDENTIALS=auto",
                    code=NO_CREDENTIALS,
                ) from None
            if error.code != NO_CREDENTIALS:  # that one is about this run alone
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

    async def _temporary(self, settings: S3Settings, bucket: Bucket, run_id: str, policy: str) -> S3Grant:
        asked: dict[str, Any] = {
            "RoleSessionName": f"codefyui-{run_id}"[:64],
            "Policy": policy,
            "DurationSeconds": settings.s3_sts_duration_s,
        }
        if settings.s3_sts_role_arn:
            asked["RoleArn"] = settings.s3_sts_role_arn
        answer = await self._threads.run(self._assume, settings, bucket, asked)
        life_s = life_of(answer, settings.s3_sts_duration_s)
        keys = answer["Credentials"]
        return S3Grant(
            access_key_id=SecretStr(keys["AccessKeyId"]),
            secret_access_key=SecretStr(keys["SecretAccessKey"]),
            session_token=SecretStr(keys["SessionToken"]),
            expires_in_s=life_s,
            renew_in_s=life_s * RENEW_AT,
        )

    def _assume(self, settings: S3Settings, bucket: Bucket, asked: dict[str, Any]) -> Answer:
        signed_by = signing_clock()
        try:
            # MinIO needs no role, which boto3 would refuse to leave out
            client = make_client("sts", bucket, own_keys(settings), parameter_validation="RoleArn" in asked)
            answer: Answer = client.assume_role(**asked)
        except KeyError:  # what botocore makes of XML that is no answer of an STS
            answer = {}
        except Exception as error:
            problem = problem_of(error, _circumstances(bucket, signed_by()))
            if problem is None:
                raise
            raise _final(problem) from None
        if not {"AccessKeyId", "SecretAccessKey", "SessionToken"} <= set(answer.get("Credentials", {})):
            raise Refused(f"{_circumstances(bucket, signed_by()).target}: its answer holds no keys")
        return answer


def _circumstances(bucket: Bucket, now: datetime) -> Circumstances:
    return Circumstances(
        bucket=bucket,
        operation="assume_role",
        key=None,
        temporary=False,
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
