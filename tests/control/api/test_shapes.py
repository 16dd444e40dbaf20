"""What leaves the server: errors, CSV, frames, names of downloads."""

import json

import pytest

from codefyui_core.control.api.answers import json_bytes
from codefyui_core.control.api.errors import error_body
from codefyui_core.control.api.events import frame
from codefyui_core.control.api.runs import envelope, metrics_csv
from codefyui_core.control.api.sending import disposition
from codefyui_core.errors import CodefyError, FormProblem, Problem


def test_an_error_has_a_text_a_code_and_a_request() -> None:
    body = error_body(CodefyError("No.", code="run.not_found"), "r1")
    assert body == {"detail": "No.", "code": "run.not_found", "request_id": "r1"}


def test_a_form_error_says_which_field() -> None:
    body = error_body(FormProblem([Problem(message="too long", field="name", code="long")]), "r1")
    assert body["problems"] == [{"field": "name", "message": "too long", "code": "long"}]


def test_a_spreadsheet_runs_no_formula_out_of_a_metric_name() -> None:
    rows = [
        {"node_id": "=cmd()", "name": "@loss", "step": 1, "value": 0.5, "ts": "t"},
        {"node_id": None, "name": "loss", "step": 2, "value": None, "special": "nan", "ts": "t"},
    ]
    text = metrics_csv("r", rows)
    assert text.startswith("\ufeffrun_id,node_id,name,step,value,ts\r\n")
    assert "r,'=cmd(),'@loss,1,0.5,t\r\n" in text
    assert text.endswith("r,,loss,2,nan,t\r\n")


def test_a_frame_is_one_event_whatever_it_holds() -> None:
    assert frame("log", {"text": "a\nb"}, cursor=3) == b'id: 3\nevent: log\ndata: {"text":"a\\nb"}\n\n'


def test_any_file_name_fits_the_header() -> None:
    header = disposition('é"\r\n.pt')
    assert header.isascii()
    assert "\r" not in header
    assert "filename*=UTF-8''%C3%A9%22%0D%0A.pt" in header


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], "request.schema"),
        ({"graph": 1}, "request.schema"),
        ({"graph": {}, "grpah": 1}, "request.invalid"),
        ({"graph": {}, "options": []}, "request.invalid"),
        ({"graph": {}, "name": "x" * 65}, "request.invalid"),
        ({"graph": {}, "submit_id": 5}, "request.invalid"),
    ],
)
def test_a_bad_envelope_is_refused_by_its_kind(body: object, code: str) -> None:
    with pytest.raises(CodefyError) as refused:
        envelope(body)
    assert refused.value.code == code


def test_texts_that_utf_8_does_not_hold_are_escaped_as_json_does() -> None:
    body = {"said": "\udc80\0é", "n": 2**70}
    assert json.loads(json_bytes(body)) == body
