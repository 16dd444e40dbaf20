"""Stored texts and derived rows."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.plugin.views import RunStatus
from codefyui_core.runs.conclude import Conclusion
from codefyui_core.runs.events import (
    MAX_PAYLOAD,
    artifact_key,
    closing_event,
    derive,
    fold_final,
    read_text,
    storable,
    stored_text,
)
from codefyui_core.runs.status import Cause

ANY_TEXT = st.text(st.characters(codec=None))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(ANY_TEXT, VALUES, max_size=5))
def test_any_payload_comes_back_from_ascii_text(payload):
    text = stored_text(payload)
    assert text.isascii()
    assert "\0" not in text
    assert read_text(text) == payload
    assert json.loads(text) == payload


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**40, 12345678901234567890.5])
def test_numbers_of_any_size_stay_what_they_are(number):
    read = read_text(stored_text({"n": number}))["n"]
    assert (read, type(read)) == (number, type(number))


@pytest.mark.parametrize(
    "text", ['{"n": NaN}', b'{"n": -Infinity}', '{"n": 12345678901234567890, "x": NaN}', "{"]
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        read_text(text)


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("log", {"x": object()}),
        ("log", {"text": "x" * (MAX_PAYLOAD + 1)}),
        ("", {}),
        ("a" * 65, {}),
        ("nul\0", {}),
        ("log", {"x": math.nan, "y": "\ud800"}),
    ],
)
def test_what_no_database_takes_is_replaced_in_its_place(type_, payload):
    stored, text = storable(type_, payload, 7)
    assert stored == "event_unstorable"
    told = json.loads(text)
    assert told["seq"] == 7
    assert set(told) == {"seq", "bytes", "sha256", "reason"}
    assert len(text) < 1000


@given(st.dictionaries(ANY_TEXT, VALUES, max_size=3))
def test_rows_of_any_payload_fit_their_columns(payload):
    for type_ in ("metric", "artifact"):
        derived = derive(type_, payload | {"points": [payload, {"value": payload, "step": 2**70}]})
        for row in derived.metrics:
            assert (row.value is None) == (row.special is not None)
            assert row.step is None or abs(row.step) < 2**63
        for row in derived.artifacts:
            assert len(row.artifact_id) <= 128


NUMBERS = [
    (1, 1.0, None),
    (True, 1.0, None),
    ("2.5", 2.5, None),
    (10**400, None, "inf"),
    (-(10**400), None, "-inf"),
    ({"__float__": "nan"}, None, "nan"),
    ({"__float__": "inf"}, None, "inf"),
    (math.inf, None, "inf"),
    (math.nan, None, "nan"),
    (None, None, "nan"),
    ("x", None, "nan"),
    ({"__float__": "odd"}, None, "nan"),
]


@pytest.mark.parametrize(("given_value", "value", "special"), NUMBERS)
def test_a_number_is_finite_or_has_a_word(given_value, value, special):
    (row,) = derive("metric", {"points": [{"name": "m", "value": given_value}]}).metrics
    assert (row.value, row.special) == (value, special)


def test_the_last_value_of_each_name_is_final():
    points = [
        {"name": "a", "value": 1},
        {"name": "b", "value": 2},
        {"name": "a", "value": {"__float__": "nan"}},
    ]
    assert fold_final({"c": 3.0, "b": 9.0}, derive("metric", {"points": points}).metrics) == {
        "a": None,
        "b": 2.0,
        "c": 3.0,
    }


def test_an_artifact_is_named_after_its_file():
    (row,) = derive("artifact", {"artifact_id": "a", "kind": "image", "path": "C:\\out\\a.png"}).artifacts
    assert row.name == "a.png"
    assert derive("artifact", {"kind": "image"}).artifacts == ()


@given(ANY_TEXT.filter(bool))
def test_keys_of_artifacts_fit_and_differ(text):
    assert len(artifact_key(text)) <= 128
    assert artifact_key(artifact_key(text)) == artifact_key(text)


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (RunStatus.SUCCEEDED, "execution_complete"),
        (RunStatus.FAILED, "execution_error"),
        (RunStatus.CANCELLED, "execution_stopped"),
        (RunStatus.INTERRUPTED, "execution_stopped"),
    ],
)
def test_the_closing_event_agrees_with_the_status(status, type_):
    made, payload = closing_event(Conclusion(status=status, error="e", cause=Cause.USER_CODE))
    assert made == type_
    if made == "execution_stopped":
        assert payload["reason"] == status
