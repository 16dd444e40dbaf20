"""Control half: which runs the bucket serves, their inputs, their workers' keys, and what becomes of their objects."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import quote

from pydantic import ValidationError

from codefyui_core.plugin import (
    Assignment,
    AttemptView,
    Busy,
    ControlStoreHost,
    Discard,
    DiscardReason,
    JsonObject,
    Offer,
    Output,
    Place,
    Reading,
    Redirect,
    Refusal,
    Refused,
    RunFiles,
    RunId,
    RunView,
    Staged,
    StorageControl,
    StorageProblem,
    StoredObject,
    WorkerView,
)

from .accepting import first_whole, whole_at
from .client import BucketClient
from .credentials import Issuer, own_keys
from .inputs import Inputs
from .models import (
    Bucket,
    S3Facts,
    S3Grant,
    S3Receipt,
    S3Ticket,
    StoredIn,
    UploadBegun,
    output_key,
    run_folder,
)
from .naming import is_named_after
from .offering import offer
from .probe import bucket_of
from .reading import stream
from .removing import abort, keys_of_run, places_of, remove_keys
from .settings import Download, S3Settings
from .standing import Standing, Working
from .store_time import WORTH_SAYING, StoreTime, clock_off
from .style import styles_to_try
from .threads import Threads
from .unfinished import INPUTS, ROOM, Unfinished, Upload, owner_of

THREADS = 24
SWEEP_S = 60.0
"""Between two tries to abort what couldn't be reached."""


class S3Control(StorageControl[S3Ticket, S3Receipt, S3Grant, S3Facts]):
    """Keeps keys of objects; their bytes pass it only when a person asks for them."""

    def __init__(self, host: ControlStoreHost) -> None:
        self._host = host
        self._threads = Threads(THREADS, "s3")
        self._standing = Standing(host, self._client, self._clock_problem)
        self._unfinished = Unfinished(host.documents)
        self._inputs = Inputs(self._unfinished)
        self._issuer = Issuer(threads=self._threads, clock=host.clock, log=host.log)
        self._clients: dict[Bucket, tuple[S3Settings, BucketClient]] = {}
        self._store_times: defaultdict[str, StoreTime] = defaultdict(StoreTime)
        """By endpoint."""
        self._left: Sequence[Upload] = ()
        """Uploads of inputs that an earlier process began."""
        self._sweeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._left = await self._unfinished.of(INPUTS)
        await self._standing.start()
        if await self._host.documents.keys(ROOM):
            self._sweep()

    def condition(self) -> str:
        return self._standing.line()

    async def aclose(self) -> None:
        await self._standing.aclose()
        self._threads.close()

    # ------------------------------------------------------------ before a run

    def offer(self, files: RunFiles, worker: WorkerView, facts: S3Facts | None) -> Offer | Refusal:
        return offer(self._standing.state, files, worker, facts)

    async def stage(
        self, run: RunView, worker: WorkerView, attempt: AttemptView
    ) -> Staged[S3Ticket, S3Grant]:
        working = self._standing.working()
        items = await self._host.inputs(run)
        client, prefix = self._client(working.bucket, working.settings), working.settings.s3_prefix
        await self._inputs.put_all(client, prefix, items, self._host.input_path)
        ticket = S3Ticket(inputs=items, bucket=working.bucket, prefix=prefix)
        grant = await self._issuer.issue(working.settings, ticket, run.id, client)
        return Staged(ticket=ticket, grant=grant)

    async def renew(self, given: Assignment[S3Ticket]) -> S3Grant:
        settings, ticket = self._host.settings(S3Settings), given.ticket
        client = self._client(ticket.bucket, settings)
        return await self._issuer.issue(settings, ticket, given.run.id, client)

    # ------------------------------------------------------------ while it runs

    async def told(self, given: Assignment[S3Ticket], message: JsonObject) -> None:
        try:
            begun = UploadBegun.model_validate(message)
        except ValidationError:
            raise Refused("its agent says something that isn't the beginning of an upload") from None
        folder = run_folder(given.ticket.prefix, given.run.id)
        if not begun.key.startswith(folder):
            raise Refused(f"{begun.key!r} is none of this run's keys, which begin with {folder}")
        await self._unfinished.add(_owner(given), given.ticket.bucket, begun)

    async def accept(self, given: Assignment[S3Ticket], output: Output, receipt: S3Receipt) -> StoredObject:
        ticket = given.ticket
        base = output_key(
            ticket.prefix,
            given.run.id,
            kind=output.kind,
            name=output.name,
            relative_path=output.relative_path,
        )
        sent_to = receipt.key or base
        for key in (sent_to, *receipt.taken):
            if not is_named_after(key, base):
                raise Refused(f"{key!r} is no key that {output.name} may have")
        key = await self._key_of(given, output, sent_to, receipt)
        if receipt.upload_id:
            await self._unfinished.done(_owner(given), sent_to, receipt.upload_id)
        return StoredObject(
            key=output.key,
            kind=output.kind,
            name=output.name,
            relative_path=key,
            size_bytes=receipt.size_bytes,
            sha256=receipt.sha256,
            data=StoredIn(bucket=ticket.bucket.name, prefix=ticket.prefix).to_json(),
        )

    async def _key_of(
        self, given: Assignment[S3Ticket], output: Output, sent_to: str, receipt: S3Receipt
    ) -> str:
        client = self._current(given.ticket.bucket)
        if not receipt.taken:
            return await whole_at(client, sent_to, receipt)
        for listed in await self._host.stored(given.run.id):
            waits = not listed.data
            if listed.key == output.key and not waits:  # the receipt came before
                return listed.relative_path
        return await first_whole(client, sent_to, receipt)

    async def settled(self, given: Assignment[S3Ticket]) -> None:
        try:
            await self._abort(_owner(given))
        except Busy as error:
            self._host.log.warning("unfinished uploads of run %s are aborted later: %s", given.run.id, error)
            self._sweep()

    # ------------------------------------------------------------ afterwards

    def place(self, stored: StoredObject) -> Place:
        at = StoredIn.model_validate(stored.data)
        return Place(path=f"s3://{at.bucket}/{stored.relative_path}")

    async def read(self, stored: StoredObject, span: tuple[int, int | None] | None) -> Reading:
        settings = self._host.settings(S3Settings)
        client = self._of(StoredIn.model_validate(stored.data).bucket)
        key = stored.relative_path
        if settings.s3_download is Download.PROXY:
            return await stream(client, stored, span)
        # a browser would show the bucket's own XML for one that is gone
        await client.call("head_object", key)
        name = quote(stored.name.rpartition("/")[2])
        disposition = f"attachment; filename*=UTF-8''{name}"
        ttl_s = settings.s3_presign_ttl_s
        url = await self._threads.run(
            client.presigned, key, ttl_s=ttl_s, ResponseContentDisposition=disposition
        )
        return Redirect(url=url)

    async def discard(self, order: Discard) -> None:
        going = [one for one in order.stored if one.data and one.kind not in order.keep_kinds]
        for place in self._places(order):
            client = self._of(place.bucket)
            keys = {one.relative_path for one in going if StoredIn.model_validate(one.data) == place}
            if order.why is not DiscardReason.ARTIFACT:
                keys |= set(await keys_of_run(client, place.prefix, order.run.id, order.keep_kinds))
            await remove_keys(client, sorted(keys))
        if order.why is not DiscardReason.ARTIFACT:
            await self._abort(owner_of(order.run.id))

    def _places(self, order: Discard) -> Sequence[StoredIn]:
        """Where objects of it are; those of a run may be where runs go now without a row, when its worker died."""
        places, state = places_of(order.stored), self._standing.state
        if order.why is DiscardReason.ARTIFACT or not isinstance(state, Working):
            return places
        now = StoredIn(bucket=state.bucket.name, prefix=state.settings.s3_prefix)
        return [*places, *({now} - set(places))]

    # ------------------------------------------------------------ unfinished uploads

    async def _abort(self, owner: str) -> None:
        await self._abort_these(owner, await self._unfinished.of(owner))

    async def _abort_these(self, owner: str, uploads: Sequence[Upload]) -> None:
        await abort(
            self._unfinished, owner, uploads, lambda upload: self._current(upload.bucket), self._host.log
        )

    def _sweep(self) -> None:
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = self._host.tasks.start(self._sweep_until_done(), name="s3 unfinished uploads")

    async def _sweep_until_done(self) -> None:
        """What attempts left that hold their run no more, and what this server left by a crash."""
        while True:
            try:
                await self._abort_these(INPUTS, self._left)
                self._left = ()
                for run_id, number in await self._unfinished.owners():
                    holder = await self._host.attempt(RunId(run_id))
                    if holder is None or holder.number != number:
                        await self._abort(owner_of(run_id, number))
                return
            except StorageProblem as error:
                self._host.log.info("unfinished uploads wait to be aborted: %s", error)
            await self._host.clock.sleep(SWEEP_S)

    # ------------------------------------------------------------ clients

    def _client(self, bucket: Bucket, settings: S3Settings) -> BucketClient:
        """With the control plane's own keys. Remembered while the settings stay."""
        known = self._clients.get(bucket)
        if known is not None and known[0] == settings:
            return known[1]
        client = BucketClient(
            bucket,
            own_keys(settings),
            threads=self._threads,
            clock=self._host.clock,
            store_time=self._store_times[bucket.endpoint_url],
            machine="server",
        )
        self._clients[bucket] = (settings, client)
        return client

    def _clock_problem(self, endpoint_url: str) -> str:
        """Empty: none that is worth saying."""
        ahead = self._store_times[endpoint_url].ahead()
        return clock_off(ahead, "server") if abs(ahead) >= WORTH_SAYING else ""

    def _current(self, bucket: Bucket) -> BucketClient:
        return self._client(bucket, self._host.settings(S3Settings))

    def _of(self, name: str) -> BucketClient:
        """A bucket that a row names, which may be another than runs get now.

        Raises: Refused when the settings can't reach any.
        """
        settings = self._host.settings(S3Settings)
        state = self._standing.state
        if isinstance(state, Working) and state.settings == settings and name == state.bucket.name:
            return self._client(state.bucket, settings)
        if not settings.s3_access_key_id.get_secret_value():
            raise Refused(
                f"bucket {name} can't be reached without keys; set CODEFYUI_S3_ACCESS_KEY_ID and "
                "CODEFYUI_S3_SECRET_ACCESS_KEY"
            )
        styles = styles_to_try(settings.s3_endpoint_url, name, settings.s3_addressing_style.style)
        style = styles[0]
        if isinstance(state, Working) and state.settings == settings and state.bucket.style in styles:
            style = state.bucket.style
        return self._client(bucket_of(settings, style).model_copy(update={"name": name}), settings)


def _owner(given: Assignment[S3Ticket]) -> str:
    return owner_of(given.run.id, given.attempt.number)
