"""What stores answer, and which of the four problems it is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, HTTPClientError, SSLError
from botocore.exceptions import ConnectTimeoutError as BotoConnectTimeout

from codefyui_core.plugin import Busy, Corrupt, Expired, Refused, TransferStopped
from codefyui_storage_s3.models import Bucket, Style
from codefyui_storage_s3.problems import (
    AlreadyThere,
    Circumstances,
    Missing,
    NotOffered,
    UploadGone,
    problem_of,
)

BUCKET = Bucket(name="codefyui", endpoint_url="http://minio.lab:9000", region="us-east-1", style=Style.PATH)
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def at(*, temporary: bool = True, past_expiry: bool = False, machine: str = "worker") -> Circumstances:
    return Circumstances(
        bucket=BUCKET,
        operation="put_object",
        key="runs/1/a.pt",
        temporary=temporary,
        by_link=False,
        past_expiry=past_expiry,
        now=NOW,
        machine=machine,
    )


def answered(code: str | None, status: int = 403, **headers: str) -> ClientError:
    answer: Any = {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers}}
    if code is not None:
        answer["Error"] = {"Code": code, "Message": "because"}
    return ClientError(answer, "PutObject")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("SlowDown", 503, Busy),
        ("InternalError", 500, Busy),
        ("502", 502, Busy),
        ("504", 504, Busy),
        ("TooManyRequests", 429, Busy),
        ("RequestTimeout", 400, Busy),
        ("AccessDenied", 403, Refused),
        ("NoSuchBucket", 404, Refused),
        ("SignatureDoesNotMatch", 403, Refused),
        ("EntityTooLarge", 400, Refused),
        ("PermanentRedirect", 301, Refused),
        ("AuthorizationHeaderMalformed", 400, Refused),
        ("InvalidArgument", 400, Refused),
        ("NoSuchKey", 404, Missing),
        ("404", 404, Missing),
        ("NoSuchUpload", 404, UploadGone),
        ("InvalidPart", 400, UploadGone),
        ("PreconditionFailed", 412, AlreadyThere),
        ("NotImplemented", 501, NotOffered),
        ("BadDigest", 400, Corrupt),
        ("XAmzContentSHA256Mismatch", 400, Corrupt),
    ],
)
@pytest.mark.spec("s3/refused-upload-stays-on-worker")
def test_an_answer_is_the_problem_that_it_means(code: str, status: int, kind: type[Exception]) -> None:
    assert type(problem_of(answered(code, status), at())) is kind


@pytest.mark.parametrize(("code", "status"), [("ExpiredToken", 400), ("ExpiredTokenException", 403)])
@pytest.mark.spec("s3/expired-temporary-credentials-retried")
def test_temporary_keys_that_the_store_calls_expired_are(code: str, status: int) -> None:
    assert isinstance(problem_of(answered(code, status), at()), Expired)
    assert isinstance(problem_of(answered(code, status), at(temporary=False)), Refused)


@pytest.mark.parametrize("code", ["InvalidAccessKeyId", "InvalidToken", "InvalidClientTokenId"])
@pytest.mark.spec("s3/invalid-access-key-retried-only-when-expired-temporary")
def test_an_unknown_key_is_an_expired_one_only_for_temporary_keys_past_their_expiry(code: str) -> None:
    assert isinstance(problem_of(answered(code), at(past_expiry=True)), Expired)
    assert type(problem_of(answered(code), at(past_expiry=False))) is Refused
    assert type(problem_of(answered(code), at(temporary=False, past_expiry=True))) is Refused


def test_access_denied_is_final_even_for_keys_past_their_expiry() -> None:
    assert type(problem_of(answered("AccessDenied"), at(past_expiry=True))) is Refused


def off_by(minutes: float) -> str:
    """The date of a server whose clock ours is so far ahead of."""
    return (NOW - timedelta(minutes=minutes)).strftime("%a, %d %b %Y %H:%M:%S GMT")


@pytest.mark.parametrize(("minutes", "way"), [(20, "ahead of"), (-20, "behind")])
@pytest.mark.parametrize("machine", ["worker", "server"])
@pytest.mark.parametrize(
    "code", ["RequestTimeTooSkewed", "SignatureDoesNotMatch", "AccessDenied", "403", None]
)
def test_a_wrong_clock_is_waited_for_and_named_with_its_minutes(
    code: str | None, minutes: int, way: str, machine: str
) -> None:
    problem = problem_of(answered(code, date=off_by(minutes)), at(machine=machine))
    assert isinstance(problem, Busy)
    assert f"the {machine}'s clock is off by 20 min, {way} the bucket's; correct it" in problem.message


@pytest.mark.parametrize("minutes", [4, -4])
@pytest.mark.parametrize("code", ["AccessDenied", "403", None])
def test_a_clock_that_is_off_by_less_than_anybody_minds_is_not_the_reason(
    code: str | None, minutes: int
) -> None:
    problem = problem_of(answered(code, date=off_by(minutes)), at())
    assert type(problem) is Refused
    assert "clock" not in problem.message


@pytest.mark.parametrize(
    ("code", "status", "kind"), [("404", 404, Missing), ("InvalidArgument", 400, Refused)]
)
def test_a_wrong_clock_is_no_reason_for_answers_of_another_kind(
    code: str, status: int, kind: type[Exception]
) -> None:
    assert type(problem_of(answered(code, status, date=off_by(60)), at())) is kind


def test_keys_that_ran_out_did_so_whatever_the_clock_says() -> None:
    date = off_by(60)
    assert isinstance(problem_of(answered("ExpiredToken", date=date), at()), Expired)
    unknown = problem_of(answered("InvalidAccessKeyId", date=date), at(past_expiry=True))
    assert isinstance(unknown, Expired)


def test_a_wrong_clock_is_named_without_a_date_too() -> None:
    problem = problem_of(answered("RequestTimeTooSkewed"), at())
    assert isinstance(problem, Busy)
    assert "the worker's clock is off from the bucket's; correct it" in problem.message


@pytest.mark.parametrize(("status", "kind"), [(403, Refused), (404, Refused), (500, Busy), (503, Busy)])
def test_an_answer_without_error_and_message_is_judged_by_its_status(
    status: int, kind: type[Exception]
) -> None:
    assert isinstance(problem_of(answered(None, status), at()), kind)


def test_the_servers_wish_when_to_come_again_is_passed_on() -> None:
    problem = problem_of(answered("SlowDown", 503, **{"retry-after": "7"}), at())
    assert isinstance(problem, Busy)
    assert problem.retry_after_s == 7


@pytest.mark.parametrize(
    "error",
    [
        EndpointConnectionError(endpoint_url="http://minio.lab:9000"),
        BotoConnectTimeout(endpoint_url="http://minio.lab:9000"),
        HTTPClientError(error=OSError("broken")),
        ConnectionResetError(),
        SSLError(endpoint_url="https://minio.lab", error="EOF occurred"),
    ],
)
@pytest.mark.spec("s3/same-endpoint-address-for-both-sides")
def test_what_cannot_be_reached_is_busy_and_named_by_its_address(error: Exception) -> None:
    problem = problem_of(error, at())
    assert isinstance(problem, Busy)
    assert "http://minio.lab:9000" in problem.message


def test_a_certificate_that_is_not_trusted_is_final_and_says_what_to_set() -> None:
    error = SSLError(endpoint_url="https://minio.lab", error="[SSL: CERTIFICATE_VERIFY_FAILED]")
    problem = problem_of(error, at())
    assert isinstance(problem, Refused)
    assert "AWS_CA_BUNDLE" in problem.message


def test_a_stop_in_the_middle_of_a_request_stays_a_stop() -> None:
    stopped = TransferStopped("stop")
    assert problem_of(HTTPClientError(error=stopped), at()) is stopped


def test_a_bug_stays_a_bug() -> None:
    assert problem_of(KeyError("UploadId"), at()) is None
