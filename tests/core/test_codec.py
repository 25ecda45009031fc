"""To JSON and back: nothing is lost, nothing is guessed, and what cannot be read says what is wrong and where."""

from __future__ import annotations

import json
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise import Policy, Record, Snapshot, State, Text, ToolCall, Usage, start
from edgewise.statemachine.codec import FORMAT_VERSION, from_data, from_json, to_data, to_json
from edgewise.statemachine.errors import Failure
from edgewise.statemachine.history import History
from edgewise.statemachine.messages import AssistantMessage, Message, user_message
from edgewise.statemachine.records import Happening, RunStarted
from edgewise.statemachine.signals import (
    EFFECTS,
    SIGNALS,
    CallDecided,
    CallStarted,
    ModelFailed,
    ModelReplied,
)
from edgewise.statemachine.snapshot import Batch, Ending, Slot, moved
from edgewise.statemachine.verdicts import Verdict

# Text may hold anything, lone surrogates and NUL too; numbers may be huge; floats may be infinite.
texts = st.text(st.characters(), max_size=5).filter(lambda text: text == json.loads(json.dumps(text)))
whole = st.integers(-(10**30), 10**30)
floats = st.floats(allow_nan=False)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: whole,
    float: floats,
    bool: st.booleans(),
    type(None): st.none(),
}


def _values(cls: Any) -> st.SearchStrategy[Any]:
    """Any value of an attrs class, with our own texts and numbers in it."""
    attrs.resolve_types(cls)
    return st.builds(cls, **{field.name: _field(cls, field) for field in attrs.fields(cls) if field.init})


def _field(cls: type, field: Any) -> st.SearchStrategy[Any]:
    if cls is Policy and field.type is int:
        return st.integers(1, 10**30)
    return _typed(field.type)


def _typed(kind: Any) -> st.SearchStrategy[Any]:
    if kind in SCALARS:
        return SCALARS[kind]
    if kind is History:
        return st.lists(_typed(Message), max_size=3).map(History)
    if kind is State:
        return st.sampled_from(State)
    if kind is Batch:
        return st.lists(_values(Slot), max_size=3).map(Batch.of)
    if attrs.has(kind):
        return _values(kind)
    origin, args = getattr(kind, "__origin__", None), get_args(kind)
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(_typed(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_typed, args))
    if origin is frozenset:
        return st.frozensets(_typed(args[0]), max_size=3)
    if all(isinstance(arg, str) for arg in args):  # a Literal
        return st.sampled_from(args)
    return st.one_of([_typed(arg) for arg in args])  # a union


KINDS: tuple[type, ...] = (
    *get_args(Message),
    *SIGNALS,
    *EFFECTS,
    *get_args(Verdict),
    *(kind for kind in get_args(Happening) if kind not in SIGNALS),
    ToolCall,
    Usage,
    Policy,
    Ending,
    Batch,
    Snapshot,
    Record,
)


# ---- there and back


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_value_comes_back_as_it_was(kind: type) -> None:
    @given(_typed(kind))
    def comes_back(value: Any) -> None:
        text = to_json(value)
        assert text.isascii() and "\n" not in text
        again = from_json(text)
        assert again == value and type(again) is type(value)
        assert from_json(text.encode()) == value
        assert from_data(to_data(value)) == value

    comes_back()


@pytest.mark.parametrize("number", [10**400, -(10**400), 0])
def test_huge_numbers_come_back(number: int) -> None:
    assert from_json(to_json(Usage(number))) == Usage(number)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), 1e-320, 0.1])
def test_odd_floats_come_back(number: float) -> None:
    assert repr(from_json(to_json(Usage(cost=number)))) == repr(Usage(cost=number))


def test_not_a_number_comes_back_as_such() -> None:
    back = from_json(to_json(ModelFailed(Failure("auth", "x"), delay=float("nan"))))
    assert back.delay != back.delay


def test_a_whole_number_may_stand_for_a_float() -> None:
    assert from_json(f'{{"v": {FORMAT_VERSION}, "type": "Usage", "cost": 2}}') == Usage(cost=2.0)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ude00\ud83d", "\0", "\x7f\u2028\u2029", "é😀"])
def test_not_even_a_lone_surrogate_is_lost(text: str) -> None:
    assert from_json(to_json(user_message(text))) == user_message(text)


def test_two_halves_of_a_character_that_meet_become_one() -> None:
    assert from_json(to_json(user_message("\ud83d\ude00"))) == user_message("😀")


def test_a_value_says_its_version_and_its_type() -> None:
    data = to_data(user_message("hi"))
    assert list(data)[:2] == ["v", "type"]
    assert (data["v"], data["type"]) == (FORMAT_VERSION, "UserMessage")


def test_what_a_run_was_governed_by_is_written_out_in_full() -> None:
    names = {field.name for field in attrs.fields(Policy)}
    started = RunStarted((user_message("hi"),))
    snapshot, _ = start(inputs=[user_message("hi")])
    for data in (to_data(started), to_data(snapshot), to_data(Record(2, "r", 0.5, started))["what"]):
        assert set(data["policy"]) >= names


def test_the_same_value_is_always_written_in_the_same_way() -> None:
    assert json.loads(to_json(Policy(exclusive=frozenset("cabed"))))["exclusive"] == ["a", "b", "c", "d", "e"]


def test_fields_of_a_later_release_are_passed_over() -> None:
    data = {**to_data(CallStarted(1)), "colour": "green"}
    assert from_data(data) == CallStarted(1)


@pytest.mark.parametrize("value", ["text", 5, None, {"a": 1}, [Text("a")], object(), State.DONE])
def test_only_the_engines_own_values_are_written(value: object) -> None:
    with pytest.raises(TypeError, match=r"is not one of the values that Edgewise writes: AbortRequested, "):
        to_data(value)


def test_a_stranger_of_the_same_name_is_not_written() -> None:
    stranger = attrs.make_class("UserMessage", ["content"])
    with pytest.raises(TypeError, match="UserMessage is not one of the values"):
        to_data(stranger(()))


# ---- what cannot be read


def _of(kind: str, **fields: Any) -> str:
    return json.dumps({"v": FORMAT_VERSION, "type": kind, **fields})


CALL = {"type": "ToolCall", "id": "a", "name": "f"}
BROKEN: list[tuple[str, str]] = [
    ("", "Expecting value"),
    ("{", "Expecting property name"),
    ("[" * 100_000, "nested too deeply"),
    ("9" * 5_000, "Exceeds the limit"),
    ("[]", "expected an object with 'v' and 'type', not list"),
    ("null", "expected an object with 'v' and 'type', not NoneType"),
    ('{"type": "Usage"}', "format version None: this Edgewise reads 1"),
    ('{"v": 2, "type": "Usage"}', "format version 2: this Edgewise reads 1"),
    ('{"v": true, "type": "Usage"}', "format version True"),
    ('{"v": 1}', "unknown type None; known are AbortRequested, "),
    ('{"v": 1, "type": "Nonsense"}', "unknown type 'Nonsense'"),
    ('{"v": 1, "type": ["Usage"]}', "unknown type ['Usage']"),
    (_of("UserMessage"), "not a valid UserMessage: 'content' is missing @ $.content"),
    (_of("UserMessage", content="abc"), "expected an array, not a string @ $.content"),
    (_of("UserMessage", content={"a": 1}), "expected an array, not an object @ $.content"),
    (_of("UserMessage", content=[7]), "expected an object, not a whole number @ $.content[0]"),
    (_of("UserMessage", content=[{"text": "a"}]), "its type is None; expected Text, Image @ $.content[0]"),
    (_of("UserMessage", content=[CALL]), "its type is 'ToolCall'; expected Text, Image @ $.content[0]"),
    (_of("UserMessage", content=[{"type": ["Text"]}]), "its type is ['Text']; expected Text, Image @ $.content[0]"),
    (
        _of("UserMessage", content=[{"type": "Text", "text": "a"}, {"type": "Text", "text": None}]),
        "expected a string, not null @ $.content[1].text",
    ),
    (_of("CallDecided", slot="1", approved=True), "expected a whole number, not a string @ $.slot"),
    (_of("CallDecided", slot=1.0, approved=True), "expected a whole number, not a number @ $.slot"),
    (_of("CallDecided", slot=True, approved=True), "expected a whole number, not a boolean @ $.slot"),
    (_of("CallDecided", slot=1, approved="false"), "expected a boolean, not a string @ $.approved"),
    (_of("CallDecided", slot=1, approved=0), "expected a boolean, not a whole number @ $.approved"),
    (_of("Usage", cost="1.5"), "expected a number, not a string @ $.cost"),
    (_of("Usage", cost=10**400), "int too large to convert to float @ $.cost"),
    (_of("Policy", max_parallel=0), "'max_parallel' must be >= 1: 0"),
    (_of("Batch", particulars=[[1, {}, 2]]), "expected 2 items, not 3 @ $.particulars[0]"),
    (_of("Batch", particulars=[["1", {}]]), "expected a whole number, not a string @ $.particulars[0]"),
    (_of("Policy", steering="some"), "some not in literal"),
    (_of("Policy", exclusive="abc"), "expected an array, not a string @ $.exclusive"),
    (_of("Snapshot", state="nowhere", history=[]), "'nowhere' is not a valid State @ $.state"),
    (_of("Snapshot", state="done", history=5), "expected an array, not a whole number @ $.history"),
    (_of("Record", seq=1, run="r", at=0.5, what=None), "expected an object, not null @ $.what"),
    (_of("Record", seq=1, run="r", at=0.5, what={"type": "RunStarted", "policy": []}), "not an array @ $.what.policy"),
    (
        _of("ModelFailed", failure={"kind": "auth", "message": "m", "retry_after": "soon"}, partial=7),
        "expected a number, not a string @ $.failure.retry_after; expected an object, not a whole number @ $.partial",
    ),
]


@pytest.mark.parametrize(("text", "wrong"), BROKEN, ids=[wrong[:40] for _, wrong in BROKEN])
def test_what_cannot_be_read_says_what_is_wrong_and_where(text: str, wrong: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        from_json(text)
    assert wrong in str(caught.value)


def test_bytes_that_are_no_text_are_refused_like_the_rest() -> None:
    with pytest.raises(ValueError, match="utf-8"):
        from_json(b'"\xff"')


SAMPLES = [
    to_data(value)
    for value in (
        Record(1, "r", 0.5, ModelReplied(AssistantMessage((Text("a"), ToolCall("i", "f")), usage=Usage(1)))),
        moved(
            Snapshot(State.EXECUTING_TOOLS, History([user_message("hi")])),
            batch=Batch.of([Slot(ToolCall("i", "f"), "running")]),
            ending=Ending("model", "x", Failure("auth", "no")),
        ),
        CallDecided(1, True, "why"),
    )
]
junk = st.recursive(
    st.none() | st.booleans() | whole | st.floats() | st.sampled_from(["Text", "UserMessage", "running", ""]) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "v", "text"]), inner),
    max_leaves=4,
)


def _places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(place for key, value in inner for place in _places(value, (*path, key)))]


def _with(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = _with(copy[path[0]], path[1:], value)
    return copy


@given(st.data())
def test_whatever_stands_where_it_does_not_belong_raises_a_value_error_or_nothing(data: st.DataObject) -> None:
    sample = data.draw(st.sampled_from(SAMPLES))
    place = data.draw(st.sampled_from(_places(sample)))
    broken = _with(sample, place, data.draw(junk))
    try:
        value = from_json(json.dumps(broken))
    except ValueError as error:
        assert str(error)  # noqa: PT017
    else:
        assert from_json(to_json(value)) == value or "nan" in repr(value)


@given(st.text() | st.binary())
def test_no_text_raises_anything_but_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_json(text)
