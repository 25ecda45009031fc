"""Reading what a model wrote as arguments: what is forgiven, what is refused and how it is said."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.statemachine.arguments import canonical_arguments, read_arguments, wire_arguments
from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.messages import ToolCall

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=4)
any_text = st.text(st.characters(codec=None, categories=None), max_size=60) | st.text(
    '{}[]":,\\ntrue0123eE+-.u d8', max_size=40
)


def read(text: str) -> dict[str, object]:
    return read_arguments(ToolCall("1", "probe", text))


def fault(text: str) -> str:
    with pytest.raises(InvalidArguments) as caught:
        read(text)
    (only,) = caught.value.faults
    only.encode()
    return only


@pytest.mark.parametrize("text", ["", "  \n\t", "null", " null ", "{}"])
def test_nothing_means_no_arguments(text: str) -> None:
    assert read(text) == {}
    assert wire_arguments(text) in ("{}", text)
    assert json.loads(wire_arguments(text)) == {}


def test_one_layer_of_string_is_peeled_off_an_object() -> None:
    assert read(json.dumps('{"path": "a"}')) == {"path": "a"}
    assert wire_arguments(json.dumps('{"path": "a"}')) == '{"path": "a"}'


@pytest.mark.parametrize("inner", ["[1]", "3", "null", "", "words", '"{}"'])
def test_a_string_that_holds_no_object_is_not_peeled(inner: str) -> None:
    assert "are a string, not an object" in fault(json.dumps(inner))


def test_two_layers_of_string_are_refused() -> None:
    assert "are a string" in fault(json.dumps(json.dumps('{"path": "a"}')))


@pytest.mark.parametrize(
    ("text", "kind"), [("[1]", "an array"), ("3", "a number"), ("1.5", "a number"), ("true", "a boolean")]
)
def test_what_is_no_object_is_named(text: str, kind: str) -> None:
    assert (
        fault(text)
        == f'The arguments are {kind}, not an object: `{text}`. Expected one JSON object, as in {{"path": "a.txt"}}'
    )


def test_broken_json_says_where_it_breaks() -> None:
    said = fault('{"path": "a",\n "offset" 5}')
    assert "line 2, column 11" in said
    assert '"offset" 5' in said
    assert "Expected one JSON object" in said


@pytest.mark.parametrize("text", ['{"path": "src/ma', '{"path": ', '{"path": "a"', "{"])
def test_json_that_was_cut_off_is_called_so(text: str) -> None:
    assert "break off before the JSON is complete" in fault(text)


def test_a_second_object_is_refused() -> None:
    assert "extra data at line 1, column 9" in fault('{"a": 1}{"b": 2}')


def test_a_long_text_is_quoted_in_excerpt() -> None:
    assert len(fault("word " * 10_000)) < 300


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_json_cannot_carry_are_refused(number: str) -> None:
    assert "can't be read" in fault(f'{{"n": {number}}}')
    assert wire_arguments(f'{{"n": {number}}}') == "{}"


def test_whole_numbers_of_any_size_are_kept() -> None:
    assert read('{"n": 123456789012345678901234567890}') == {"n": 123456789012345678901234567890}


def test_the_last_of_two_equal_keys_wins() -> None:
    assert read('{"a": 1, "a": 2}') == {"a": 2}


def test_bare_line_breaks_in_a_string_are_kept_and_escaped_on_the_wire() -> None:
    text = '{"content": "one\ntwo\tthree"}'
    assert read(text) == {"content": "one\ntwo\tthree"}
    assert msgspec.json.decode(wire_arguments(text)) == {"content": "one\ntwo\tthree"}


@pytest.mark.parametrize("text", ['{"a": "\ud800x"}', '{"a": "\\ud800x"}', json.dumps('{"a": "\\ud800x"}')])
def test_lone_surrogates_are_replaced(text: str) -> None:
    assert read(text) == {"a": "\ufffdx"}


def test_the_halves_of_a_surrogate_pair_are_joined() -> None:
    assert read('{"a": "\ud83d\ude00"}') == {"a": "😀"}


def test_a_byte_order_mark_is_passed_over() -> None:
    assert read('\ufeff{"a": 1}') == {"a": 1}


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000])
def test_depths_that_no_parser_follows_are_refused(text: str) -> None:
    assert "nested too deeply" in fault(text)
    assert wire_arguments(text) == "{}"
    assert canonical_arguments(text) == text


def test_the_wire_text_of_a_good_object_is_that_text() -> None:
    text = '{"b" : 1,  "a": [1.0, "é"]}'
    assert wire_arguments(text) is text


def test_calls_compare_equal_however_they_were_written() -> None:
    same = {'{"a": 1, "b": [2]}', '{ "b":[2],"a":1 }', json.dumps('{"b": [2], "a": 1}'), '{"a": 1, "b": [2], "a": 1}'}
    assert len({canonical_arguments(text) for text in same}) == 1
    assert canonical_arguments("") == canonical_arguments("null") == canonical_arguments("{}")
    assert canonical_arguments('{"a": 1}') != canonical_arguments('{"a": 2}')
    assert canonical_arguments("not json") == "not json"


@given(json_objects)
def test_every_json_object_is_read_back(value: dict[str, object]) -> None:
    assert read(json.dumps(value)) == value
    assert read(json.dumps(value, ensure_ascii=False)) == value
    assert read(json.dumps(json.dumps(value))) == value


@given(any_text)
def test_no_text_crashes_and_the_wire_is_always_a_strict_object(text: str) -> None:
    wire = wire_arguments(text)
    wire.encode()
    assert isinstance(msgspec.json.decode(wire), dict)
    canonical_arguments(text)
    try:
        arguments = read(text)
    except InvalidArguments as error:
        str(error).encode()
        assert wire == "{}"
    else:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
        assert msgspec.json.decode(wire) == arguments
