"""Which keys a worker gets."""

import json
import logging

import pytest
from pydantic import SecretStr
from s3_planes import RUN_ID, MakeSite

from cdui_develop.bucket_stub import Asked, Says, Stub, error, sts_error
from codefyui_core.plugin import Busy, Refused
from codefyui_storage_s3.credentials import HOLD_OFF_S


def _refuse_sts(code: str = "AccessDenied", status: int = 403):
    def rule(asked: Asked) -> Says | None:
        return sts_error(code, status) if asked.method == "POST" and asked.path == "/" else None

    return rule


@pytest.mark.spec("s3/sts-mode-issues-temporary-credentials", "s3/sts-minio-needs-no-role")
async def test_sts_gives_a_run_keys_of_its_own_without_a_role(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves = await (await site_of(stub_settings, s3_credentials="sts", s3_prefix="p/")).start()
    staged = await halves.staged()
    assert staged.grant is not None
    assert staged.grant.access_key_id.get_secret_value() == "TEMPORARY1"
    assert staged.grant.session_token is not None
    (asked,) = stub.assumed
    assert "RoleArn" not in asked
    assert asked["RoleSessionName"] == f"codefyui-{RUN_ID}"
    resources = [one["Resource"] for one in json.loads(asked["Policy"])["Statement"]]
    (item,) = staged.ticket.inputs
    assert resources == [
        [f"arn:aws:s3:::codefyui/p/runs/{RUN_ID}/*"],
        [f"arn:aws:s3:::codefyui/p/inputs/{item.sha256}"],
    ]


@pytest.mark.spec("s3/sts-duration-setting")
@pytest.mark.parametrize(("more", "seconds"), [({}, "3600"), ({"s3_sts_duration_s": 900}, "900")])
async def test_temporary_keys_last_as_long_as_set(
    site_of: MakeSite,
    stub_settings: dict[str, object],
    stub: Stub,
    more: dict[str, object],
    seconds: str,
) -> None:
    halves = await (await site_of(stub_settings, s3_credentials="sts", **more)).start()
    grant = (await halves.staged()).grant
    assert stub.assumed[0]["DurationSeconds"] == seconds
    assert grant is not None
    assert grant.expires_in_s == pytest.approx(float(seconds), abs=2)


@pytest.mark.spec("s3/sts-credentials-renewed-while-run-lasts")
async def test_new_keys_are_due_before_the_old_ones_run_out_and_keep_the_ticket(
    site_of: MakeSite, stub_settings: dict[str, object]
) -> None:
    halves = await (await site_of(stub_settings, s3_credentials="sts")).start()
    staged = await halves.staged()
    assert staged.grant is not None
    assert staged.grant.renew_in_s is not None
    assert staged.grant.expires_in_s is not None
    assert staged.grant.renew_in_s < staged.grant.expires_in_s - 60
    halves.host.given["s3_prefix"] = "changed/"
    renewed = await halves.control.renew(halves.given(staged))
    assert renewed.access_key_id.get_secret_value() == "TEMPORARY2"


async def test_the_life_of_keys_is_measured_by_the_clock_of_the_server_that_made_them(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    """The control plane's own clock stands in January."""
    stub.life_s = 1200
    halves = await (await site_of(stub_settings, s3_credentials="sts")).start()
    grant = (await halves.staged()).grant
    assert grant is not None
    assert grant.expires_in_s == pytest.approx(1200, abs=2)


@pytest.mark.spec("s3/sts-aws-role-arn")
async def test_the_role_of_the_settings_is_assumed(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    role = "arn:aws:iam::123456789012:role/codefyui"
    halves = await (await site_of(stub_settings, s3_credentials="sts", s3_sts_role_arn=role)).start()
    await halves.staged()
    assert stub.assumed[0]["RoleArn"] == role


@pytest.mark.spec("s3/run-fails-before-send-when-no-credentials")
@pytest.mark.parametrize(
    ("code", "status"), [("AccessDenied", 403), ("InvalidParameterValue", 400), ("NotImplemented", 501)]
)
async def test_a_run_without_keys_is_refused_before_it_is_sent(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, code: str, status: int
) -> None:
    stub.rule = _refuse_sts(code, status)
    halves = await (await site_of(stub_settings, s3_credentials="sts")).start()
    with pytest.raises(Refused, match=f"no temporary keys for the run.*{code}") as caught:
        await halves.staged()
    assert caught.value.code == "storage.credentials"
    assert "CODEFYUI_S3_STS_ROLE_ARN" in caught.value.message


@pytest.mark.parametrize("mode", ["sts", "auto"])
async def test_an_sts_that_is_down_is_waited_for_and_gives_nobody_the_own_keys(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub, mode: str
) -> None:
    stub.rule = _refuse_sts("ServiceUnavailable", 503)
    halves = await (await site_of(stub_settings, s3_credentials=mode)).start()
    with pytest.raises(Busy):
        await halves.staged()


@pytest.mark.spec("s3/static-mode-hands-out-own-keys")
async def test_static_gives_the_own_keys_and_never_asks_sts(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves = await (await site_of(stub_settings, s3_credentials="static")).start()
    staged = await halves.staged()
    assert staged.grant is not None
    assert staged.grant.access_key_id.get_secret_value() == "OWNKEY"
    assert staged.grant.session_token is None
    assert staged.grant.expires_in_s is None
    assert staged.grant.renew_in_s is None
    assert stub.assumed == []


@pytest.mark.spec("s3/auto-mode-is-default-and-tries-sts-first")
async def test_auto_gives_temporary_keys_where_sts_gives_some(
    site_of: MakeSite, stub_settings: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    halves = await (await site_of(stub_settings)).start()
    grant = (await halves.staged()).grant
    assert grant is not None
    assert grant.access_key_id.get_secret_value() == "TEMPORARY1"
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.spec("s3/auto-mode-falls-back-with-warning")
@pytest.mark.parametrize(
    "answer",
    [
        sts_error("AccessDenied"),
        error("MethodNotAllowed", 405),
        Says(404, b"<html>not found</html>"),
        Says(200, b"<html>welcome</html>"),
        Says(501, b""),
    ],
)
async def test_auto_gives_the_own_keys_when_sts_refuses_and_says_so_in_the_log(
    site_of: MakeSite,
    stub_settings: dict[str, object],
    stub: Stub,
    caplog: pytest.LogCaptureFixture,
    answer: Says,
) -> None:
    stub.rule = lambda asked: answer if asked.method == "POST" and asked.path == "/" else None
    halves = await (await site_of(stub_settings)).start()
    grant = (await halves.staged()).grant
    assert grant is not None
    assert grant.access_key_id.get_secret_value() == "OWNKEY"
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "STS" in warning
    assert "10 minutes" in warning


@pytest.mark.spec("s3/auto-mode-holds-off-sts-ten-minutes")
async def test_auto_asks_an_sts_that_refused_again_after_ten_minutes(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    stub.rule = _refuse_sts()
    halves = await (await site_of(stub_settings)).start()
    for minutes, asked in ((0, 1), (5, 1), (6, 2)):
        await halves.clock.advance(minutes * 60)
        await halves.staged()
        assert len(stub.assumed) == asked
    assert HOLD_OFF_S == 600


@pytest.mark.spec("s3/auto-mode-hold-off-reset-by-settings-change")
async def test_a_change_of_the_settings_ends_the_hold_off(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    stub.rule = _refuse_sts()
    halves = await (await site_of(stub_settings)).start()
    staged = await halves.staged()
    await halves.clock.advance(60)
    halves.host.given["s3_sts_role_arn"] = "arn:aws:iam::123456789012:role/codefyui"
    stub.rule = lambda asked: None
    grant = await halves.control.renew(halves.given(staged))
    assert grant.access_key_id.get_secret_value() == "TEMPORARY1"


@pytest.mark.spec("s3/control-plane-keys-from-environment-only", "s3/credentials-travel-in-assignment")
async def test_keys_are_in_the_grant_alone(site_of: MakeSite, stub_settings: dict[str, object]) -> None:
    halves = await (await site_of(stub_settings, s3_credentials="static")).start()
    staged = await halves.staged()
    stored = await halves.stored(staged)
    kept = staged.ticket.model_dump_json() + repr(stored) + json.dumps(halves.host.documents.values)
    assert "OWNKEY" not in kept
    assert "own-secret" not in kept
    assert staged.grant is not None
    sent = staged.grant.model_dump(mode="json", context={"reveal": True})
    assert sent["secret_access_key"] == "own-secret"


@pytest.mark.spec("s3/same-endpoint-address-for-both-sides", "s3/endpoint-url-empty-means-aws")
async def test_the_ticket_has_the_endpoint_as_it_is_set(
    site_of: MakeSite, stub_settings: dict[str, object], stub: Stub
) -> None:
    halves = await (await site_of(stub_settings | {"s3_secret_access_key": SecretStr("x")})).start()
    assert (await halves.staged()).ticket.bucket.endpoint_url == stub.url
