"""Fixtures of a real S3 server, for every folder of tests."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .seaweedfs import SeaweedFS


@pytest.fixture(scope="session")
def seaweedfs() -> "Iterator[SeaweedFS]":
    """Started once, when the first test asks for it."""
    from .seaweedfs import SeaweedFS

    server = SeaweedFS()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def bucket(seaweedfs: "SeaweedFS") -> str:
    """An empty one of the test's own. Its first object takes the server a second."""
    return _made(seaweedfs)


@pytest.fixture(scope="session")
def shared_bucket(seaweedfs: "SeaweedFS") -> str:
    """For tests that keep to a prefix of their own."""
    return _made(seaweedfs)


def _made(seaweedfs: "SeaweedFS") -> str:
    name = f"t{uuid.uuid4().hex[:16]}"
    seaweedfs.client().create_bucket(Bucket=name)
    return name
