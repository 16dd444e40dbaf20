"""The manual's section on buckets, against the code and a real server."""

import json
import re
from pathlib import Path

import pytest

from cdui_develop.seaweedfs import SeaweedFS
from codefyui_storage_s3.settings import S3Settings

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8").partition("\n## An S3 or MinIO bucket")[2]
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
RULES = ROOT / "deploy" / "s3-lifecycle.json"


def _shown(value: object) -> str:
    if value == "":
        return "empty"
    return f"`{int(value)}`" if isinstance(value, bool) else f"`{value}`"


@pytest.mark.spec("s3/docs-give-bucket-setup-steps")
def test_every_setting_has_a_row_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(CODEFYUI_S3_\w+)` \| (.+?) \|", SETTINGS, re.MULTILINE))
    defaults = S3Settings.model_construct().model_dump(mode="json")
    assert rows == {f"CODEFYUI_{name.upper()}": _shown(value) for name, value in defaults.items()}


@pytest.mark.spec("s3/docs-give-aws-lifecycle-rules")
def test_the_rules_on_the_page_are_those_of_the_file() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    rules = json.loads(RULES.read_text())
    assert json.loads(block) == rules
    aborts, expires = rules["Rules"]
    assert aborts["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}
    assert aborts["Filter"] == {"Prefix": "runs/"}
    assert expires["Expiration"] == {"Days": 30}
    assert expires["Filter"] == {"Prefix": "inputs/"}
    assert "put-bucket-lifecycle-configuration" in PAGE
    assert "CODEFYUI_S3_PREFIX" in PAGE.partition("```json")[2]


@pytest.mark.service
@pytest.mark.spec("s3/docs-give-aws-lifecycle-rules")
def test_a_server_takes_the_rules(seaweedfs: SeaweedFS, bucket: str) -> None:
    client = seaweedfs.client()
    rules = json.loads(RULES.read_text())
    client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=rules)
    found = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert sorted(found, key=lambda rule: rule["ID"]) == rules["Rules"]


@pytest.mark.spec("s3/docs-give-minio-lifecycle-rule")
def test_the_page_gives_minios_rule() -> None:
    assert 'mc ilm rule add lab/codefyui --prefix "inputs/" --expire-days 30' in PAGE
    assert "stale_uploads_expiry" in PAGE


@pytest.mark.spec("s3/boto3-is-an-optional-extra", "s3/docs-give-bucket-setup-steps")
def test_boto3_comes_with_an_extra_alone() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "plugins" / "storage_s3" / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["codefyui-core"]
    assert project["optional-dependencies"] == {"s3": ["boto3>=1.40"]}
    assert '-e "plugins/storage_s3[s3]"' in PAGE
    for core in (ROOT / "pyproject.toml", ROOT / "plugins" / "nodes_torch" / "pyproject.toml"):
        found = tomllib.loads(core.read_text())["project"]
        wanted = [
            *found["dependencies"],
            *(one for many in found["optional-dependencies"].values() for one in many),
        ]
        assert not [one for one in wanted if one.startswith("boto")]
