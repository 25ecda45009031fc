"""Whatever a tool gives back becomes content that every later request can carry."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import types
import uuid
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.messages import Image, Text, ToolCall, ToolResult
from edgewise.statemachine.results import IMAGE_LIMIT, explain, failed_result, make_result
from edgewise.tools import ToolError

CALL = ToolCall("call-1", "probe")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: Any = None


@attrs.define
class Shelf:
    name: str
    books: list[Any]


class Record(msgspec.Struct):
    n: int


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class Impostor:
    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("who am I")


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


def text_of(value: object, limit: int = 50_000) -> str:
    result = make_result(CALL, value, limit)
    sound(result)
    return result.text


def sound(result: ToolResult) -> None:
    assert (result.call_id, result.name) == ("call-1", "probe")
    assert result.content
    for block in result.content:
        if isinstance(block, Text):
            assert block.text.strip()
            block.text.encode()
        else:
            base64.b64decode(block.data, validate=True)


def test_plain_text_passes() -> None:
    assert make_result(CALL, "hello") == ToolResult("call-1", "probe", (Text("hello"),))


def test_none_says_that_nothing_came_back() -> None:
    assert text_of(None) == "Done; the tool returned nothing."


@pytest.mark.parametrize("value", ["", " \n", b"", Text(""), [Text("")], ToolResult("x", "y", ())])
def test_an_empty_text_is_said_in_words(value: object) -> None:
    assert text_of(value) == "Done; the tool returned an empty text."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (5, "5"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        ([], "[]"),
        (["a", "b"], '["a", "b"]'),
        ((1, 2), "[1, 2]"),
        (Colour.RED, "red"),
        (datetime.datetime(2024, 5, 1, 12), "2024-05-01T12:00:00"),
        (datetime.timedelta(hours=1), "1:00:00"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.10"), "1.10"),
        ({3, 1, 2}, "[1, 2, 3]"),
        ({"a": {1}}, '{"a": [1]}'),
        (collections.deque([1]), "[1]"),
        ({"a": 1}.keys(), '["a"]'),
        (types.MappingProxyType({"a": 1}), '{"a": 1}'),
        (Point(1, Shelf("s", [Record(2), Colour.RED])), '{"x": 1, "y": {"name": "s", "books": [{"n": 2}, "red"]}}'),
        ({1: "a", None: "b", (1, 2): "c", Colour.RED: "d"}, '{"1": "a", "null": "b", "(1, 2)": "c", "red": "d"}'),
        ([ValueError("bad")], '["ValueError: bad"]'),
        (b"caf\xc3\xa9", "café"),
        ({"raw": b"abc"}, '{"raw": "abc"}'),
        ("a\0b", "a\0b"),
    ],
)
def test_values_become_readable_json_or_words(value: object, text: str) -> None:
    assert text_of(value) == text


def test_blocks_pass_alone_and_in_sequences() -> None:
    picture = Image("AAAA", "image/png")
    assert make_result(CALL, picture).content == (picture,)
    assert make_result(CALL, [Text("a"), picture, "b"]).content == (Text("a"), picture, Text("b"))
    assert make_result(CALL, (Text("a"),)).content == (Text("a"),)


def test_bytes_of_a_picture_become_a_picture() -> None:
    (block,) = make_result(CALL, PNG).content
    assert block == Image(base64.b64encode(PNG).decode(), "image/png")


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (b"\xff\xfe\x00\x01", "[4 bytes of binary data, not shown]"),
        (b"%PDF-1.7 ...", "[12 bytes of application/pdf, not shown]"),
        (b"\x00\x00\x00", "[3 bytes of binary data, not shown]"),
    ],
)
def test_other_bytes_become_a_note_of_size_and_type(data: bytes, note: str) -> None:
    assert text_of(data) == note
    assert text_of(memoryview(data)) == note


@pytest.mark.parametrize("words", [b"GIF89a is a format", b"The ftyp box", b"x" * 257 + b"ustar"])
def test_words_that_look_like_a_mark_of_a_format_stay_words(words: bytes) -> None:
    assert text_of(words) == words.decode()


def test_a_picture_that_providers_refuse_for_its_size_becomes_a_note() -> None:
    assert "3,750,000 bytes are the most" in text_of(PNG + b"\0" * IMAGE_LIMIT)


def test_what_json_cannot_hold_is_shown_by_its_repr_and_names_the_tool() -> None:
    assert text_of(Opaque()) == "<opaque>\n[probe returned what JSON cannot hold (Opaque); its repr is shown.]"
    assert text_of({"it": Opaque()}).startswith('{"it": "<opaque>"}\n[probe returned')


def test_an_object_without_a_working_repr_does_not_crash() -> None:
    assert "Unprintable object whose repr raises RuntimeError" in text_of(Unprintable())
    assert "Unprintable object whose repr raises RuntimeError" in text_of([Unprintable()])


def test_an_object_that_raises_when_looked_at_is_an_error_result() -> None:
    result = make_result(CALL, Impostor())
    sound(result)
    assert result.is_error
    assert "What probe returned can't be read: RuntimeError: who am I" in result.text


def test_cycles_are_cut() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert text_of(ring) == '["<the same list again>"]'
    table: dict[str, object] = {}
    table["self"] = Point(1, table)
    assert "the same dict again" in text_of(table)


def test_depths_are_cut() -> None:
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in text_of(deep)


def test_numbers_that_python_will_not_print_are_described() -> None:
    assert "bits" in text_of(10**5000)
    assert "bits" in text_of({"n": 10**5000})


def test_lone_surrogates_are_replaced_everywhere() -> None:
    assert text_of("a\ud800b") == "a\ufffdb"
    assert text_of({"\ud800": ["\udfff"]}) == '{"\ufffd": ["\ufffd"]}'
    assert text_of([Text("\ud83d\ude00")]) == "😀"
    sound(failed_result(CALL, ValueError("\ud800")))


def test_a_tool_result_keeps_content_and_error_but_answers_this_call() -> None:
    given_back = ToolResult("other", "other", (Text("so it went"),), True)
    assert make_result(CALL, given_back) == ToolResult("call-1", "probe", (Text("so it went"),), True)


def test_a_returned_exception_is_an_error_result() -> None:
    result = make_result(CALL, ValueError("no such city"))
    assert result.is_error
    assert result.text == "ValueError: no such city"


async def test_a_coroutine_that_nobody_awaits_is_an_error_result() -> None:
    async def later() -> None: ...

    result = make_result(CALL, later())  # closed, or the warning would fail this test
    assert result.is_error
    assert "probe is broken" in result.text


# ---- limits


def test_a_long_text_is_cut_in_the_middle_with_a_note() -> None:
    text = text_of("a" * 50_000 + "z" * 50_000)
    assert len(text) <= 50_000
    assert text.startswith("aaa")
    assert text.endswith("zzz")
    note = text.strip("az").strip()
    left_out = int(note.split()[1].replace(",", ""))
    assert text.count("a") + text.count("z") - note.count("a") - note.count("z") == 100_000 - left_out
    assert "the limit is 50,000" in note


def test_a_small_limit_still_shows_that_much() -> None:
    assert text_of("x" * 1000, 10) == "xxxxxxx\n[... 990 characters left out here; the limit is 10 ...]\nxxx"


def test_the_limit_counts_over_all_blocks() -> None:
    result = make_result(CALL, [Text("a" * 30_000), Image("AAAA", "image/png"), Text("b" * 30_000), Text("c" * 30_000)])
    sound(result)
    assert sum(len(block.text) for block in result.content if isinstance(block, Text)) <= 50_000
    assert Image("AAAA", "image/png") in result.content
    assert result.text.endswith("30,000 more characters left out; the limit is 50,000 ...]")


@pytest.mark.parametrize("value", ["x" * 90_000, ["y"] * 90_000, [Text("a" * 40_000)] * 3])
def test_what_was_cut_is_not_cut_again(value: object) -> None:
    once = make_result(CALL, value)
    assert make_result(CALL, once) == once


@given(st.text(st.characters(codec=None, categories=None), max_size=300), st.integers(0, 400))
def test_any_text_fits_utf8_and_says_what_was_left_out(text: str, limit: int) -> None:
    said = text_of(text, limit)
    if len(text) > limit:
        assert "characters left out" in said


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, categories=None))
    | st.binary()
    | st.datetimes()
    | st.decimals()
    | st.uuids()
    | st.builds(Unprintable)
    | st.sampled_from([Opaque(), Colour.RED, len, Point, Text("t"), Image("AAAA", "image/png")]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.builds(Point, st.integers(), inner)
        | st.builds(lambda value: {"value": value}, st.frozensets(st.integers() | st.text(max_size=3), max_size=3))
    ),
    max_leaves=12,
)


@given(anything, st.sampled_from([0, 7, 200, 50_000]))
def test_any_value_makes_a_sound_result(value: object, limit: int) -> None:
    sound(make_result(CALL, value, limit))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    ).filter(lambda value: isinstance(value, (list, dict)))
)
def test_json_values_come_out_as_that_json(value: object) -> None:
    assert json.loads(text_of(value)) == value


# ---- errors


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            FileNotFoundError(2, "No such file or directory", "a.txt"),
            "FileNotFoundError: [Errno 2] No such file or directory: 'a.txt'",
        ),
        (KeyError("name"), "KeyError: 'name'"),
        (TimeoutError(), "TimeoutError (without a message)"),
        (ToolError("File not found: a. Did you mean b?"), "File not found: a. Did you mean b?"),
        (ExceptionGroup("g", [ValueError("one")]), "ValueError: one"),
        (
            ExceptionGroup("g", [ValueError("one"), ExceptionGroup("h", [KeyError(2), ToolError("three")])]),
            "3 errors at once:\n- ValueError: one\n- KeyError: 2\n- three",
        ),
        (InvalidArguments(["n: expected integer"]), "Invalid arguments for probe: n: expected integer"),
        (InvalidArguments(["a", "b"]), "Invalid arguments for probe:\n- a\n- b"),
    ],
)
def test_an_error_is_told_in_words_that_a_model_can_act_on(error: BaseException, text: str) -> None:
    result = failed_result(CALL, error)
    assert result.is_error
    assert result.text == text


def test_the_cause_and_the_notes_of_an_error_are_told() -> None:
    error = RuntimeError("no weather")
    error.add_note("try another city")
    error.__cause__ = ConnectionError("refused")
    assert explain(error) == "RuntimeError: no weather\ntry another city\ncaused by ConnectionError: refused"


def test_an_error_whose_message_raises_is_still_told() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("hush")

    assert failed_result(CALL, Mute()).text == "Mute: (its message can't be had: RuntimeError)"


def test_only_a_class_can_say_that_its_message_is_for_the_model() -> None:
    error = ValueError("plain")
    error.for_model = True  # type: ignore[attr-defined]
    assert failed_result(CALL, error).text == "ValueError: plain"


def test_a_long_error_is_cut() -> None:
    assert len(failed_result(CALL, ValueError("x" * 90_000)).text) <= 50_000
