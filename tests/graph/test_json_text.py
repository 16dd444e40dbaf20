"""JSON that every reader can read."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codefyui_core.graph import json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_values_come_back_as_they_were(value):
    assert json_text.loads(json_text.dumps(value)) == value
    assert json_text.loads(json_text.canonical(value)) == value
    assert json_text.problem_of(value) is None


@given(st.dictionaries(st.text(), VALUES, max_size=6))
def test_the_canonical_text_does_not_depend_on_the_order_of_keys(value):
    turned = dict(reversed(list(value.items())))
    assert json_text.canonical(value) == json_text.canonical(turned)


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-2.5E+4000"])
def test_a_number_that_json_cannot_hold_is_refused_with_its_place(word):
    text = '{"NaN": "Infinity \\" NaN",\n "b": [1' + "0" * 400 + f", {word}]}}"
    with pytest.raises(json_text.NotJson) as caught:
        json_text.loads(text)
    assert (caught.value.line, caught.value.column) == (2, text.splitlines()[1].index(word) + 1)


def test_text_that_stops_being_json_is_refused_with_its_place():
    with pytest.raises(json_text.NotJson, match="line 2, column 3") as caught:
        json_text.loads(b"{\n  oops}")
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_bytes_that_are_no_utf_8_are_refused_with_their_place():
    with pytest.raises(json_text.NotJson, match="line 2, column 2"):
        json_text.loads(b'[\n"\xff"]')


def test_a_byte_order_mark_is_no_matter():
    assert json_text.loads(b"\xef\xbb\xbf[1]") == [1]


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300])
def test_nesting_without_end_is_refused(text):
    with pytest.raises(json_text.NotJson):
        json_text.loads(text)


def test_integers_beyond_2_53_keep_every_digit_and_endless_ones_are_refused():
    assert json_text.loads("9007199254740993") == 9007199254740993
    with pytest.raises(json_text.NotJson, match="digits"):
        json_text.loads("1" * 5000)
    assert "digits" in json_text.problem_of({"a": 10**5000})


def test_of_doubled_keys_the_last_wins():
    assert json_text.loads('{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_non_finite_is_ever_written(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text.dumps([value])
    assert json_text.problem_of({"a": [value]}).startswith("/a/0 is ")


@pytest.mark.parametrize("value", [{1: 2}, {"a": object()}, {"a": {1, 2}}, {"a": b"x"}])
def test_python_values_without_json_text_are_named(value):
    assert "can't hold" in json_text.problem_of(value)


def test_a_value_that_holds_itself_is_found_too_deep():
    value = []
    value.append(value)
    assert "deeper" in json_text.problem_of(value)


def test_letters_are_written_as_they_are():
    assert json_text.dumps("é") == '"é"'


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a":{"\\udfff":1}}', '["\\ud800\\ud800"]'])
def test_text_that_is_not_unicode_is_refused_in_words_that_can_be_sent(text):
    with pytest.raises(json_text.NotJson) as caught:
        json_text.loads(text)
    assert caught.value.message.encode()


def test_a_pair_of_surrogates_is_one_letter():
    assert json_text.loads('"\\ud83d\\ude00"') == "\U0001f600"
