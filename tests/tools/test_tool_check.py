"""Arguments against a schema: what is put right, what is refused, and that every fault is told."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.messages import ToolCall
from edgewise.statemachine.ports import CallContext
from edgewise.tools import FunctionTool, tool
from edgewise.tools.coercion import coerce


def a_tool(schema: dict[str, Any], **root: Any) -> FunctionTool[..., Any]:
    """A tool with one required argument ``it`` of ``schema``."""
    whole = {"type": "object", "properties": {"it": schema}, "required": ["it"], **root}

    def probe(**arguments: object) -> object:
        return arguments

    return tool(probe, parameters=whole)


def faults(made: FunctionTool[..., Any], arguments: Any) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        made.check(arguments)
    return list(caught.value.faults)


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
NULL = {"type": "null"}
POINT = {"type": "object", "properties": {"x": INTEGER}, "required": ["x"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "given", "value"),
    [
        (INTEGER, "5", 5),
        (INTEGER, " -5 ", -5),
        (INTEGER, 5.0, 5),
        (INTEGER, "5.0", 5),
        (NUMBER, "5", 5),
        (NUMBER, "2.5", 2.5),
        (BOOLEAN, "true", True),
        (BOOLEAN, "False", False),
        (NULL, "null", None),
        ({"type": "array", "items": INTEGER}, "[1, 2]", [1, 2]),
        ({"type": "array", "items": INTEGER}, ["1", 2.0], [1, 2]),
        (POINT, '{"x": "1"}', {"x": 1}),
        ({"type": "array", "items": POINT}, [{"x": "1"}], [{"x": 1}]),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": "1"}, {"a": 1}),
        ({"type": "array", "prefixItems": [STRING, INTEGER]}, ["1", "2"], ["1", 2]),
        ({"anyOf": [INTEGER, NULL]}, "5", 5),
        ({"anyOf": [INTEGER, NULL]}, "null", None),
        ({"anyOf": [POINT, NULL]}, {"x": "1"}, {"x": 1}),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": 3}, "3", 3),
        ({"allOf": [INTEGER, {"minimum": 1}]}, "5", 5),
        ({"$ref": "#/$defs/n"}, "5", 5),
    ],
)
def test_the_right_value_in_the_wrong_type_is_put_right(schema: Any, given: object, value: object) -> None:
    made = a_tool(schema, **{"$defs": {"n": INTEGER}})
    arguments = {"it": given}
    checked = made.check(arguments)
    assert checked == {"it": value}
    assert type(checked["it"]) is type(value)
    assert arguments == {"it": given}, "what was given is left as it was"


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (STRING, "5"),
        ({}, "5"),
        ({"anyOf": [INTEGER, STRING]}, "5"),
        ({"enum": ["1", 1]}, "1"),
        (NUMBER, 5.0),
        (NUMBER, 5),
    ],
)
def test_a_value_that_fits_is_left_alone(schema: Any, given: object) -> None:
    checked = a_tool(schema).check({"it": given})["it"]
    assert checked == given
    assert type(checked) is type(given)


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (STRING, "5"),
        ({}, "5"),
        ({"anyOf": [INTEGER, STRING]}, "5"),
        ({"enum": ["1", 1]}, "1"),
        (NUMBER, 5.0),
        ({"type": ["integer", "number"]}, 5.0),
        ({"anyOf": [POINT, {"type": "object", "properties": {"x": STRING}}]}, {"x": "1"}),
    ],
)
def test_a_value_that_fits_is_left_alone_while_another_is_put_right(schema: Any, given: object) -> None:
    made = a_tool({"type": "object", "properties": {"wrong": INTEGER, "right": schema}})
    checked = made.check({"it": {"wrong": "7", "right": given}})["it"]
    assert checked == {"wrong": 7, "right": given}
    assert type(checked["right"]) is type(given)


@pytest.mark.parametrize(
    ("schema", "given"),
    [
        (INTEGER, "five"),
        (INTEGER, "5.5"),
        (INTEGER, 5.5),
        (INTEGER, True),
        (INTEGER, ""),
        (INTEGER, "0x10"),
        (INTEGER, "NaN"),
        (INTEGER, [5]),
        (BOOLEAN, "yes"),
        (BOOLEAN, 1),
        (BOOLEAN, "1"),
        (STRING, 5),
        ({"type": "array"}, "a, b"),
        ({"type": "array"}, '{"a": 1}'),
        (POINT, "[1]"),
        (POINT, "words"),
    ],
)
def test_what_could_mean_several_things_is_refused(schema: Any, given: object) -> None:
    assert faults(a_tool(schema), {"it": given})


def test_null_for_an_optional_argument_that_takes_none_is_left_out() -> None:
    @tool
    def f(path: str, limit: int = 5, nested: dict[str, int] | None = None) -> int:
        return limit

    assert f.check({"path": "a", "limit": None, "nested": None}) == {"path": "a", "nested": None}
    assert faults(f, {"path": None}) == ["path: expected string, got null"]


def test_good_arguments_are_given_back_as_they_are() -> None:
    @tool
    def f(path: str, limit: int = 5) -> None: ...

    arguments = {"path": "a", "limit": 3}
    assert f.check(arguments) is arguments


def test_every_fault_is_told_with_path_value_and_expectation() -> None:
    @dataclasses.dataclass
    class Edit:
        old: str
        count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1

    @tool
    def edit(
        path: Annotated[str, "The file."],
        edits: list[Edit],
        mode: Literal["fast", "safe"] = "safe",
        since: datetime.date | None = None,
        name: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", max_length=3)] = "a",
    ) -> None: ...

    given = {
        "pth": "a.txt",
        "edits": [{"old": 1, "count": 0}, {"count": "many"}, {"old": "a", "cuont": 1}],
        "mode": "slow",
        "since": "yesterday",
        "name": "UPPER",
    }
    assert set(faults(edit, given)) == {
        "path is missing; expected string (The file.)",
        "pth: there is no such argument; did you mean path?",
        "edits[0].old: expected string, got 1",
        "edits[0].count: expected at least 1, got 0",
        "edits[1].old is missing; expected string",
        'edits[1].count: expected integer, at least 1, at most 9, got "many"',
        "edits[2].cuont: there is no such argument; did you mean count?",
        'mode: expected one of "fast", "safe", got "slow"',
        'since: expected a date such as 2024-05-01, got "yesterday"',
        'name: expected text that matches ^[a-z]+$, got "UPPER"',
        'name: expected at most 3 characters, got "UPPER"',
    }


@pytest.mark.parametrize(
    ("schema", "given", "fault"),
    [
        ({"type": "integer", "multipleOf": 5}, 3, "it: expected a multiple of 5, got 3"),
        ({"type": "number", "exclusiveMinimum": 0}, 0, "it: expected more than 0, got 0"),
        ({"type": "array", "maxItems": 1}, [1, 2], "it: expected at most 1 items, got [1, 2]"),
        ({"type": "array", "uniqueItems": True}, [1, 1], "it: expected items that all differ, got [1, 1]"),
        ({"const": "a"}, "b", 'it: expected "a", got "b"'),
        ({"anyOf": [INTEGER, NULL]}, "x", 'it: expected integer or null, got "x"'),
        ({"oneOf": [{"type": "array", "items": STRING}, BOOLEAN]}, 1, "it: expected array of string or boolean, got 1"),
        ({"anyOf": [POINT, NULL]}, {"x": "a"}, 'it.x: expected integer, got "a"'),
        ({"type": "string", "format": "email"}, "x", 'it: expected an e-mail address, got "x"'),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, {"b": 1}, None),
        ({"not": STRING}, "a", None),
        (POINT, {"x": 1, "a b": 2}, 'it["a b"]: there is no such argument; known here: x'),
        (STRING, ["y" * 500], 'it: expected string, got ["' + "y" * 78 + "…"),
    ],
)
def test_each_kind_of_fault_has_its_words(schema: Any, given: object, fault: str | None) -> None:
    told = faults(a_tool(schema), {"it": given})
    assert len(told) == 1
    assert told[0].startswith("it")
    assert fault is None or told == [fault]


def test_an_argument_for_a_tool_without_any_is_refused() -> None:
    @tool
    def now() -> None: ...

    assert faults(now, {"zone": "UTC"}) == ["zone: there is no such argument; none is taken here"]


def test_arguments_that_a_schema_by_hand_does_not_name_are_refused_where_the_function_takes_names() -> None:
    def f(city: str) -> None: ...

    schema = {"type": "object", "properties": {"city": STRING}, "required": ["city"]}
    assert faults(tool(f, parameters=schema), {"city": "Oslo", "cty": 1}) == [
        "cty: there is no such argument; did you mean city?"
    ]
    assert a_tool(STRING).check({"it": "a", "else": 1}) == {"it": "a", "else": 1}


def test_what_only_the_python_type_can_refuse_is_a_fault_too() -> None:
    @dataclasses.dataclass
    class Range:
        start: int
        end: int

        def __post_init__(self) -> None:
            if self.end < self.start:
                raise ValueError("end lies before start")

    @tool
    def f(it: list[Range]) -> None: ...

    assert faults(f, {"it": [{"start": 2, "end": 1}]}) == ["it[0]: end lies before start"]


def test_values_that_are_no_json_are_a_fault() -> None:
    assert "not JSON" in faults(a_tool(STRING), {"it": b"raw"})[0]


def test_the_faults_of_a_long_list_are_bounded() -> None:
    assert len(faults(a_tool({"type": "array", "items": INTEGER}), {"it": ["x"] * 10_000})) == 100


def test_a_schema_that_refers_to_itself_coerces_and_ends() -> None:
    tree = {"type": "object", "properties": {"n": INTEGER, "next": {"$ref": "#/$defs/tree"}}}
    made = a_tool({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree, "loop": {"$ref": "#/$defs/loop"}}})
    assert made.check({"it": {"n": "1", "next": {"n": 2.0}}}) == {"it": {"n": 1, "next": {"n": 2}}}
    loop = {"$ref": "#/$defs/loop"}
    assert coerce("5", loop, {"$defs": {"loop": loop}}) == "5"


schemas = st.recursive(
    st.sampled_from([INTEGER, NUMBER, BOOLEAN, STRING, NULL, {}, {"enum": [1, "a", None]}]),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner)
        | st.builds(
            lambda a, b: {
                "type": "object",
                "properties": {"a": a, "b": b},
                "required": ["a"],
                "additionalProperties": False,
            },
            inner,
            inner,
        )
    ),
    max_leaves=5,
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([1.0, 1.5])
    | st.sampled_from(["1", "1.0", "true", "null", "[1]", '{"a": "1"}', "a", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=6,
)


@given(schemas, values)
def test_coercion_gives_what_fits_never_spoils_what_fits_and_is_done_after_once(schema: Any, value: Any) -> None:
    made = a_tool(schema)
    try:
        checked = made.check({"it": value})
    except InvalidArguments:
        return
    assert made.check(checked) == checked
    made.run(checked, CallContext(ToolCall("1", "probe")))
