"""What each setting is when nobody gave it, and which values it takes."""

import pytest
from pydantic import SecretStr, ValidationError

from codefyui_storage_s3.settings import S3Settings

DEFAULTS = [
    pytest.param("s3_enabled", False, marks=pytest.mark.spec("setting/s3-enabled")),
    pytest.param("s3_endpoint_url", "", marks=pytest.mark.spec("setting/s3-endpoint-url")),
    pytest.param("s3_region", "us-east-1", marks=pytest.mark.spec("setting/s3-region")),
    pytest.param("s3_bucket", "", marks=pytest.mark.spec("setting/s3-bucket")),
    pytest.param("s3_prefix", "", marks=pytest.mark.spec("setting/s3-prefix")),
    pytest.param("s3_addressing_style", "auto", marks=pytest.mark.spec("setting/s3-addressing-style")),
    pytest.param("s3_access_key_id", SecretStr(""), marks=pytest.mark.spec("setting/s3-access-key-id")),
    pytest.param(
        "s3_secret_access_key", SecretStr(""), marks=pytest.mark.spec("setting/s3-secret-access-key")
    ),
    pytest.param("s3_credentials", "auto", marks=pytest.mark.spec("setting/s3-credentials")),
    pytest.param("s3_sts_role_arn", "", marks=pytest.mark.spec("setting/s3-sts-role-arn")),
    pytest.param("s3_sts_duration_s", 3600, marks=pytest.mark.spec("setting/s3-sts-duration")),
    pytest.param("s3_download", "proxy", marks=pytest.mark.spec("setting/s3-download")),
    pytest.param("s3_presign_ttl_s", 900, marks=pytest.mark.spec("setting/s3-presign-ttl")),
]


@pytest.mark.parametrize(("name", "default"), DEFAULTS)
def test_a_setting_that_nobody_gave_has_its_default(name, default):
    assert getattr(S3Settings(), name) == default


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3_addressing_style", "host"),
        ("s3_credentials", "iam"),
        ("s3_download", "direct"),
        ("s3_sts_duration_s", 899),
        ("s3_sts_duration_s", 43201),
        ("s3_presign_ttl_s", 0),
        ("s3_endpoint_url", "minio.lab:9000"),
        ("s3_endpoint_url", "http://key:secret@minio.lab:9000"),
        ("s3_region", "eu west"),
        ("s3_bucket", "lab/codefyui"),
        ("s3_prefix", "/codefyui"),
        ("s3_prefix", "a/../b"),
    ],
)
def test_a_value_that_can_not_be_right_is_refused(name, value):
    with pytest.raises(ValidationError, match=name):
        S3Settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("s3_addressing_style", "path"),
        ("s3_addressing_style", "virtual"),
        ("s3_credentials", "sts"),
        ("s3_credentials", "static"),
        ("s3_download", "presign"),
        ("s3_sts_duration_s", 900),
        ("s3_sts_duration_s", 43200),
        ("s3_prefix", "codefyui/"),
    ],
)
def test_the_other_values_are_taken(name, value):
    assert getattr(S3Settings(**{name: value}), name) == value


def test_keys_are_stars_wherever_settings_are_shown():
    shown = repr(S3Settings(s3_access_key_id="AKIA1", s3_secret_access_key="hidden"))
    assert "AKIA1" not in shown
    assert "hidden" not in shown
