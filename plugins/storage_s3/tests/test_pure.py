"""Keys, policies, styles, settings: what is decided without a bucket."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from codefyui_core.plugin import Sha256
from codefyui_storage_s3.models import Bucket, Style, input_key, output_key
from codefyui_storage_s3.policy import LIMIT_CHARS, session_policy, writing_policy
from codefyui_storage_s3.settings import S3Settings
from codefyui_storage_s3.style import styles_to_try
from codefyui_storage_s3.uploading import MOST_PARTS, PART_BYTES, part_bytes_for

BUCKET = Bucket(name="codefyui", endpoint_url="http://minio.lab:9000", region="us-east-1", style=Style.PATH)
HASHES = [Sha256(f"{number:064x}"[::-1]) for number in range(100)]


@pytest.mark.spec("s3/key-prefix", "s3/input-key-is-content-hash")
def test_an_input_is_named_by_its_content_below_the_prefix() -> None:
    assert input_key("", HASHES[0]) == f"inputs/{HASHES[0]}"
    assert input_key("codefyui/", HASHES[0]) == f"codefyui/inputs/{HASHES[0]}"


@pytest.mark.spec("s3/artifact-key-layout", "s3/writer-output-key-layout", "s3/tensorboard-file-by-file")
@pytest.mark.parametrize(
    ("kind", "name", "relative", "key"),
    [
        ("checkpoint", "epoch-1.pt", "models/epoch-1.pt", "runs/r/checkpoint/epoch-1.pt"),
        ("tensorboard", "log/events.1", "output/log/events.1", "runs/r/tensorboard/log/events.1"),
        ("output", "models/iris/model.pt", "models/iris/model.pt", "runs/r/output/models/iris/model.pt"),
        ("output", "iris/model.pt", "models/iris/model.pt", "runs/r/output/models/iris/model.pt"),
    ],
)
def test_an_output_has_its_place_in_the_runs_folder(kind: str, name: str, relative: str, key: str) -> None:
    assert output_key("", "r", kind=kind, name=name, relative_path=relative) == key


# ------------------------------------------------------------ policies


@pytest.mark.spec("s3/sts-policy-limits-writes-to-run", "s3/sts-policy-limits-reads-to-run-inputs")
def test_a_policy_allows_writing_below_the_run_and_reading_its_inputs_and_nothing_else() -> None:
    text = session_policy(BUCKET, "p/", "r1", HASHES[:2])
    writes, reads = json.loads(text)["Statement"]
    assert set(writes["Action"]) == {
        "s3:PutObject",
        "s3:AbortMultipartUpload",
        "s3:ListMultipartUploadParts",
    }
    assert writes["Resource"] == ["arn:aws:s3:::codefyui/p/runs/r1/*"]
    assert reads["Action"] == ["s3:GetObject"]
    assert reads["Resource"] == sorted(f"arn:aws:s3:::codefyui/p/inputs/{one}" for one in HASHES[:2])


def test_a_policy_is_compact_since_some_stores_read_no_other_json() -> None:
    assert " " not in session_policy(BUCKET, "", "r1", HASHES[:2])


def test_a_run_without_inputs_may_read_nothing() -> None:
    assert "GetObject" not in session_policy(BUCKET, "", "r1", ())


@given(count=st.integers(0, 100))
def test_a_policy_names_all_inputs_within_what_sts_takes_or_none(count: int) -> None:
    text = session_policy(BUCKET, "", "0" * 32, HASHES[:count])
    if text is None:
        assert count > 5
    else:
        assert len(text) <= LIMIT_CHARS
        assert all(f"inputs/{one}" in text for one in HASHES[:count])
        assert "*" not in text.partition("GetObject")[2]


def test_keys_that_name_no_input_read_nothing() -> None:
    assert writing_policy(BUCKET, "p/", "r1") == session_policy(BUCKET, "p/", "r1", ())


def test_the_longest_names_leave_room_for_a_run_without_inputs() -> None:
    bucket = BUCKET.model_copy(update={"name": "b" * 255})
    assert session_policy(bucket, "p" * 200, "0" * 32, ()) is not None


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_amazons_separate_clouds_have_names_of_their_own(region: str, partition: str) -> None:
    bucket = BUCKET.model_copy(update={"region": region})
    assert f"arn:{partition}:s3:::codefyui/runs/r1/*" in session_policy(bucket, "", "r1", ())


# ------------------------------------------------------------ addressing


@pytest.mark.spec("s3/addressing-style-setting")
@pytest.mark.parametrize(
    ("endpoint", "bucket", "styles"),
    [
        ("http://10.0.0.7:9000", "codefyui", [Style.PATH]),
        ("http://[fd00::1]:9000", "codefyui", [Style.PATH]),
        ("http://localhost:9000", "codefyui", [Style.PATH]),
        ("https://gateway.lab/s3", "codefyui", [Style.PATH]),
        ("https://minio.lab", "my.bucket", [Style.PATH]),
        ("https://minio.lab", "My_Bucket", [Style.PATH]),
        ("", "my.bucket", [Style.PATH]),
        ("http://minio.lab:9000", "codefyui", [Style.PATH, Style.VIRTUAL]),
        ("", "codefyui", [Style.VIRTUAL, Style.PATH]),
        ("https://s3.eu-central-1.amazonaws.com", "codefyui", [Style.VIRTUAL, Style.PATH]),
    ],
)
def test_auto_tries_the_styles_that_can_work_the_likelier_one_first(
    endpoint: str, bucket: str, styles: list[Style]
) -> None:
    assert list(styles_to_try(endpoint, bucket, None)) == styles
    assert list(styles_to_try(endpoint, bucket, Style.VIRTUAL)) == [Style.VIRTUAL]


# ------------------------------------------------------------ settings


@pytest.mark.spec("s3/off-by-default-on-by-setting", "s3/auto-mode-is-default-and-tries-sts-first")
@pytest.mark.spec("s3/presign-ttl-setting", "s3/sts-duration-setting", "s3/download-proxied-by-default")
def test_the_defaults_are_those_of_the_manual() -> None:
    settings = S3Settings.model_construct()
    assert settings.model_dump(mode="json") == {
        "s3_enabled": False,
        "s3_endpoint_url": "",
        "s3_region": "us-east-1",
        "s3_bucket": "",
        "s3_prefix": "",
        "s3_addressing_style": "auto",
        "s3_access_key_id": "",
        "s3_secret_access_key": "",
        "s3_credentials": "auto",
        "s3_sts_role_arn": "",
        "s3_sts_duration_s": 3600,
        "s3_download": "proxy",
        "s3_presign_ttl_s": 900,
    }


@pytest.mark.spec("s3/sts-duration-setting")
@pytest.mark.parametrize(
    "wrong",
    [
        {"s3_sts_duration_s": 899},
        {"s3_sts_duration_s": 43201},
        {"s3_presign_ttl_s": 0},
        {"s3_endpoint_url": "minio.lab:9000"},
        {"s3_endpoint_url": "http://key:secret@minio.lab"},
        {"s3_bucket": "s3://codefyui"},
        {"s3_prefix": "/codefyui/"},
        {"s3_prefix": "a/../b/"},
        {"s3_prefix": "*/"},
        {"s3_prefix": "${aws:username}/"},
        {"s3_credentials": "none"},
    ],
)
def test_a_setting_that_cannot_be_right_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        S3Settings(**wrong)


@pytest.mark.spec("s3/worker-needs-no-s3-settings")
def test_the_settings_are_the_control_planes_alone() -> None:
    assert {str(plane) for plane in S3Settings.planes} == {"control"}


# ------------------------------------------------------------ parts


@given(size=st.integers(1, 5 << 40))
def test_a_file_has_no_more_parts_than_a_store_takes(size: int) -> None:
    part = part_bytes_for(size)
    assert part >= PART_BYTES
    assert part % (1 << 20) == 0
    assert -(-size // part) <= MOST_PARTS
