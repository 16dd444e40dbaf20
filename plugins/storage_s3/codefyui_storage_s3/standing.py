"""Whether the bucket works, tried at start and again until it does; and again when the settings change."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from codefyui_core.plugin import Busy, ControlStoreHost, StorageProblem

from .boto import boto3_version
from .client import BucketClient
from .models import Bucket
from .probe import working_bucket
from .settings import S3Settings

WATCH_S = 1.0
FIRST_TRY_S = 3.0
"""How long the backend's start waits for the first try; it goes on beside the server."""
RETRY_S = (5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Working:
    """The bucket serves."""

    bucket: Bucket
    settings: S3Settings
    """With which it was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """It doesn't, and why."""

    reason: str
    wanted: bool
    """It is enabled: a run that goes another way is told."""


class Standing:
    """Keeps the state, and tells the host when it changes."""

    def __init__(
        self,
        host: ControlStoreHost,
        client: Callable[[Bucket, S3Settings], BucketClient],
        clock_problem: Callable[[str], str],
    ) -> None:
        """``clock_problem`` says of an endpoint how the server's clock is off from its own, or nothing."""
        self._host = host
        self._client = client
        self._clock_problem = clock_problem
        self._clock_was_off = False
        self._task: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tried: S3Settings | None = None
        self._probe = secrets.token_hex(8)
        """The same at each try, so that the same failure reads the same."""
        self._known = asyncio.Event()
        """The first try is over."""
        self.state: Working | Off = Off(reason="it is still starting", wanted=False)

    async def start(self) -> None:
        """Returns when it is known, or after 3 s."""
        self._begin(self._host.settings(S3Settings))
        self._watching = self._host.tasks.start(self._watch(), name="s3 settings")
        if self._task is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._known.wait(), FIRST_TRY_S)

    def working(self) -> Working:
        """For the settings as they are now.

        Raises: Busy while the bucket is not known to work with them.
        """
        settings = self._host.settings(S3Settings)
        if settings != self._tried:
            self._begin(settings)
        if isinstance(self.state, Off):
            raise Busy(f"the S3 backend is off: {self.state.reason}")
        return self.state

    async def _watch(self) -> None:
        """Settings may be read again while the server runs, and clocks set."""
        while True:
            await self._host.clock.sleep(WATCH_S)
            settings = self._host.settings(S3Settings)
            if settings != self._tried:
                self._begin(settings)
            self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        problem = (
            self._clock_problem(self.state.bucket.endpoint_url) if isinstance(self.state, Working) else ""
        )
        if problem and not self._clock_was_off:
            self._host.log.warning("%s", problem)
        self._clock_was_off = bool(problem)

    def _begin(self, settings: S3Settings) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._tried = settings
        problem = missing_in(settings)
        if not settings.s3_enabled:
            self._become(Off(reason="CODEFYUI_S3_ENABLED isn't 1", wanted=False))
        elif problem is not None:
            self._become(Off(reason=problem, wanted=True))
        else:
            self._become(Off(reason=f"bucket {settings.s3_bucket} is being tried", wanted=True), tell=False)
            self._task = self._host.tasks.start(self._try(settings), name="s3 probe")

    async def _try(self, settings: S3Settings) -> None:
        tries = 0
        while True:
            try:
                bucket = await working_bucket(
                    settings, lambda bucket: self._client(bucket, settings), self._probe
                )
            except StorageProblem as error:
                self._become(Off(reason=error.message, wanted=True))
            else:
                self._become(Working(bucket=bucket, settings=settings))
                self._known.set()
                return
            self._known.set()
            await self._host.clock.sleep(RETRY_S[min(tries, len(RETRY_S) - 1)])
            tries += 1

    def _become(self, state: Working | Off, *, tell: bool = True) -> None:
        before, self.state = self.state, state
        if state == before or not tell:
            return
        if isinstance(state, Working):
            self._host.log.info("S3 artifact backend on: %s", on_line(state))
        elif state.wanted:
            self._host.log.warning("S3 artifact backend off: %s", state.reason)
        self._host.offers_changed()

    def line(self) -> str:
        """For the plugins page."""
        if isinstance(self.state, Working):
            problem = self._clock_problem(self.state.bucket.endpoint_url)
            return f"on: {on_line(self.state)}{problem and f'; {problem}'}"
        return f"off: {self.state.reason}"

    async def aclose(self) -> None:
        for task in (self._task, self._watching):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def on_line(state: Working) -> str:
    """``bucket codefyui at http://minio.lab:9000 (credentials: auto)``"""
    mode = state.settings.s3_credentials.value
    address = state.bucket.endpoint_url or "AWS S3"
    return f"bucket {state.bucket.name} at {address} (credentials: {mode})"


def missing_in(settings: S3Settings) -> str | None:
    """What has to be there before a bucket can be tried."""
    if not settings.s3_bucket:
        return "no bucket; set CODEFYUI_S3_BUCKET"
    if boto3_version() is None:
        return "boto3 is missing; install it (uv pip install boto3) and restart the server"
    if (
        not settings.s3_access_key_id.get_secret_value()
        or not settings.s3_secret_access_key.get_secret_value()
    ):
        return "no keys; set CODEFYUI_S3_ACCESS_KEY_ID and CODEFYUI_S3_SECRET_ACCESS_KEY"
    return None
