"""The plugin where boto3 isn't installed, seen from fresh processes."""

import subprocess
import sys

import pytest

BLOCK = """
import sys
sys.modules["boto3"] = sys.modules["botocore"] = None
"""
LOADS = """
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from codefyui_core.loading import load
from codefyui_core.plugin import Plane
from codefyui_core.testing.hosts import AgentStoreDouble, ControlStoreDouble
from pydantic import SecretStr


async def main(folder):
    for plane in (Plane.CONTROL, Plane.AGENT):
        registry = load(plane=plane)
        assert "s3" in registry.backends, registry.failed
    given = {"s3_enabled": True, "s3_bucket": "files", "s3_access_key_id": SecretStr("k"), "s3_secret_access_key": SecretStr("s")}
    host = ControlStoreDouble(root=folder, name="s3", given=given)
    control = registry.backends["s3"].control(host)
    await control.start()
    agent = registry.backends["s3"].agent(AgentStoreDouble(root=folder, name="s3"))
    await agent.start()
    print(control.condition())
    print(await agent.facts())
    await control.aclose()
    await agent.aclose()


with TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
"""


@pytest.mark.spec("s3/boto3-is-an-optional-extra", "s3/log-reason-boto3-missing")
@pytest.mark.spec("s3/agent-without-boto3-does-not-offer-s3")
def test_both_planes_load_it_and_say_what_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + LOADS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    condition, facts = done.stdout.splitlines()
    assert condition.startswith("off: boto3 is missing")
    assert facts == "None"


def test_halves_load_no_boto3_before_a_bucket_is_asked() -> None:
    code = "import codefyui_storage_s3.control, codefyui_storage_s3.agent, sys\nprint({'boto3', 'botocore'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "set()"
