"""The backend holds to what every storage backend must, over a real S3 server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar
from urllib.request import urlopen

import pytest

from codefyui_core.plugin import AnyBackend, AttemptView, Family, Reading, Redirect
from codefyui_core.testing.hosts import ControlStoreDouble
from codefyui_core.testing.suites import StorageSuite
from codefyui_storage_s3.plugin import S3Backend

pytestmark = pytest.mark.service


class _OverSeaweedFS(StorageSuite):
    more: ClassVar[dict[str, object]] = {}

    @pytest.fixture
    def backend(self) -> AnyBackend:
        return S3Backend()

    @pytest.fixture
    async def control_host(
        self,
        backend: AnyBackend,
        attempt: AttemptView,
        uploads: dict[tuple[Family, str], bytes],
        tmp_path: Path,
        bucket_settings: dict[str, object],
    ) -> AsyncIterator[ControlStoreDouble]:
        host = ControlStoreDouble(
            root=tmp_path / "control", name="s3", uploads=uploads, given=bucket_settings | self.more
        )
        host.attempts[attempt.run_id] = attempt
        host.folders.root.mkdir(parents=True)
        yield host
        await host.aclose()

    async def bytes_of(self, reading: Reading) -> bytes:
        if not isinstance(reading, Redirect):
            return await super().bytes_of(reading)

        def read() -> bytes:
            with urlopen(reading.url, timeout=10) as answer:
                return bytes(answer.read())

        return await asyncio.to_thread(read)


class TestWithTemporaryKeys(_OverSeaweedFS):
    more: ClassVar = {"s3_credentials": "sts"}


class TestWithOwnKeysAndPresignedDownloads(_OverSeaweedFS):
    more: ClassVar = {"s3_credentials": "static", "s3_download": "presign", "s3_addressing_style": "path"}
