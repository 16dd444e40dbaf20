"""Hosts and settings for tests of the bucket's backend."""

import importlib.util
import sys
import uuid
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import SecretStr

from cdui_develop.seaweedfs import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, SeaweedFS


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
