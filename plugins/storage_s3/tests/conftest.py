"""Hosts and settings for tests of the bucket's backend."""

import importlib.util
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import SecretStr

from cdui_develop.bucket_stub import Stub
from cdui_develop.seaweedfs import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, SeaweedFS
from codefyui_core.testing.hosts import MemoryDocuments


def _module(name: str, file: str) -> ModuleType:
    """Test folders aren't packages: a shared module is loaded by its file."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(file))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


planes = _module("s3_planes", "planes.py")


@pytest.fixture
def bucket_settings(seaweedfs: SeaweedFS, shared_bucket: str) -> dict[str, object]:
    """Settings of a control half on the real server, below a prefix of the test's own."""
    return {
        "s3_enabled": True,
        "s3_endpoint_url": seaweedfs.endpoint_url,
        "s3_region": REGION,
        "s3_bucket": shared_bucket,
        "s3_prefix": f"{uuid.uuid4().hex[:8]}/",
        "s3_access_key_id": SecretStr(ACCESS_KEY_ID),
        "s3_secret_access_key": SecretStr(SECRET_ACCESS_KEY),
    }


@pytest.fixture
def stub() -> "Iterator[Stub]":
    """A server that answers as the test wants."""
    made = Stub()
    yield made
    made.close()


@pytest.fixture
def stub_settings(stub: "Stub") -> dict[str, object]:
    return {
        "s3_enabled": True,
        "s3_endpoint_url": stub.url,
        "s3_bucket": "codefyui",
        "s3_access_key_id": SecretStr("OWNKEY"),
        "s3_secret_access_key": SecretStr("own-secret"),
    }


@pytest.fixture
async def site_of(tmp_path: Path) -> "AsyncIterator[planes.MakeSite]":
    """Makes both halves with doubles for hosts; ends them."""
    made: list[planes.Halves] = []

    async def make(
        given: dict[str, object], *, documents: MemoryDocuments | None = None, **more: object
    ) -> "planes.Halves":
        halves = planes.Halves.of(tmp_path / f"site-{len(made)}", given | more)
        if documents is not None:
            halves.host.documents = documents
            halves = replace(halves, control=planes.S3Control(halves.host))
        made.append(halves)
        return halves

    yield make
    for halves in made:
        await halves.aclose()
