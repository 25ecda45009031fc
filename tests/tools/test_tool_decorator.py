"""``@tool``: what is read off a function, how it is called, and which functions are refused with which words."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Required, TypedDict

import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest

from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.messages import ToolCall
from edgewise.statemachine.ports import CallContext, Tool
from edgewise.tools import FunctionTool, tool

CONTEXT = CallContext(ToolCall("1", "probe"), "r1", "t1.c0")


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclasses.dataclass
class Point:
    x: int
    y: Annotated[int, msgspec.Meta(ge=0)] = 0


@attrs.define
class Node:
    name: str
    children: list[Node] = attrs.field(factory=list)


class Options(TypedDict, total=False):
    depth: Required[int]
    label: str


class Person(pydantic.BaseModel):
    name: str
    home: Home | None = None


class Home(pydantic.BaseModel):
    city: str


Person.model_rebuild()


def parameter(function: Callable[..., Any], name: str = "it") -> dict[str, Any]:
    schema: dict[str, Any] = tool(function).parameters["properties"][name]
    return schema


# ---- the tool and its function


async def test_an_async_function_stays_callable_and_keeps_its_name_and_docstring() -> None:
    @tool
    async def word_count(text: str) -> int:
        """Count the words."""
        return len(text.split())

    as_port: Tool = word_count
    assert await word_count("one two") == 2
    assert await as_port.run(as_port.check({"text": "one two"}), CONTEXT) == 2
    assert (word_count.__name__, word_count.__doc__) == ("word_count", "Count the words.")
    assert (word_count.name, word_count.description) == ("word_count", "Count the words.")
    assert not word_count.blocking
    assert repr(word_count) == "<tool word_count(text)>"


def test_a_plain_function_is_blocking_unless_it_says_otherwise() -> None:
    @tool
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add.blocking
    assert add(1, 2) == 3
    assert add.run(add.check({"a": 1}), CONTEXT) == 2


async def test_a_plain_function_that_returns_at_once_can_run_in_place() -> None:
    @tool(blocking=False)
    def add(a: int) -> int:
        return a + 1

    assert add(1) == 2
    assert await add.run({"a": 1}, CONTEXT) == 2


async def test_a_wrapped_async_function_is_async() -> None:
    async def wait(n: int) -> int:
        return n

    @functools.wraps(wait)
    def logged(*args: Any, **kwargs: Any) -> Any:
        return wait(*args, **kwargs)

    made = tool(logged)
    assert not made.blocking
    assert await made.run(made.check({"n": 1}), CONTEXT) == 1


def test_options_are_kept() -> None:
    @tool(name="go", description="Go on.", timeout=2.5, exclusive=True, replay="safe")
    def f() -> None:
        """Not this."""

    assert isinstance(f, FunctionTool)
    assert (f.name, f.description, f.timeout, f.exclusive, f.replay) == ("go", "Go on.", 2.5, True, "safe")


def test_defaults_are_cautious() -> None:
    @tool
    def f() -> None: ...

    assert (f.timeout, f.exclusive, f.replay, f.description) == (None, False, "never", "")
    assert f.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_bound_methods_partials_and_callable_objects_are_tools() -> None:
    class Counter:
        start = 10

        def add(self, n: int) -> int:
            """Add to it."""
            return self.start + n

        def __call__(self, n: int) -> int:
            return n

    bound = tool(Counter().add)
    assert (bound.name, bound.description, bound.run({"n": 1}, CONTEXT)) == ("add", "Add to it.", 11)

    def scale(factor: int, n: int) -> int:
        """Scale it."""
        return factor * n

    part = tool(functools.partial(scale, 3), name="triple")
    assert (part.description, list(part.parameters["properties"])) == ("Scale it.", ["n"])
    assert part.run(part.check({"n": "2"}), CONTEXT) == 6

    assert tool(Counter(), name="count").run({"n": 4}, CONTEXT) == 4


async def test_an_async_method_of_an_object_is_async() -> None:
    class Waiter:
        async def __call__(self, n: int) -> int:
            return n

    made = tool(Waiter(), name="wait")
    assert not made.blocking
    assert await made.run({"n": 1}, CONTEXT) == 1


def test_a_context_parameter_is_filled_in_and_hidden_from_the_model() -> None:
    @tool
    def keyed(n: int, context: CallContext) -> str:
        return f"{n} {context.key}"

    @tool
    def maybe(context: CallContext | None = None) -> CallContext | None:
        return context

    assert list(keyed.parameters["properties"]) == ["n"]
    assert keyed.run(keyed.check({"n": 1}), CONTEXT) == "1 r1.t1.c0"
    assert maybe.run({}, CONTEXT) is CONTEXT


# ---- schemas


def test_the_schema_closes_the_object_and_lists_what_is_required() -> None:
    @tool
    def f(a: str, b: int = 3, c: str | None = None, d: float | None = 1.5) -> None: ...

    assert f.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": "integer", "default": 3},
            "c": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "d": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": 1.5},
        },
        "required": ["a"],
        "additionalProperties": False,
    }


def test_descriptions_come_from_annotations_first_then_from_the_docstring() -> None:
    @tool
    def f(
        a: Annotated[str, "The first."],
        b: Annotated[int, msgspec.Meta(ge=1, description="The second.")],
        c: str,
        d: Annotated[str, msgspec.Meta(min_length=1)],
    ) -> None:
        """Do it.

        Args:
            a: Not this.
            c: The third.
            d: The fourth.
        """

    properties = f.parameters["properties"]
    assert f.description == "Do it."
    assert [properties[name]["description"] for name in "abcd"] == [
        "The first.",
        "The second.",
        "The third.",
        "The fourth.",
    ]
    assert properties["b"]["minimum"] == 1
    assert properties["d"]["minLength"] == 1


def test_a_default_of_none_lets_null_in() -> None:
    def f(it: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    made = tool(f)
    assert made.check({"it": None}) == {"it": None}


def test_an_unannotated_parameter_takes_anything() -> None:
    def f(it, other=1): ...  # type: ignore[no-untyped-def]

    made = tool(f)
    assert made.parameters["properties"] == {"it": {}, "other": {"default": 1}}
    assert made.check({"it": [1, {"a": None}]}) == {"it": [1, {"a": None}]}


def test_classes_are_inlined_and_closed() -> None:
    def f(it: list[Point]) -> None: ...

    items = parameter(f)["items"]
    assert items["additionalProperties"] is False
    assert items["required"] == ["x"]
    assert "$defs" not in tool(f).parameters


def test_a_class_that_contains_itself_keeps_its_references() -> None:
    @tool
    def f(root: Node, at: Point | None = None) -> str:
        return root.children[0].name

    jsonschema_rs.validator_for(f.parameters)
    assert set(f.parameters["$defs"]) == {"Node", "Point"}
    assert f.run(f.check({"root": {"name": "a", "children": [{"name": "b"}]}}), CONTEXT) == "b"


def test_a_field_named_like_a_keyword_is_no_keyword() -> None:
    @dataclasses.dataclass
    class Awkward:
        properties: dict[str, int]
        type: str
        default: Point

    @tool
    def f(it: Awkward) -> Awkward:
        return it

    value = {"properties": {"a": 1}, "type": "object", "default": {"x": 1}}
    assert f.run(f.check({"it": value}), CONTEXT) == Awkward({"a": 1}, "object", Point(1))


def test_every_schema_is_a_valid_json_schema() -> None:
    @tool
    def f(
        a: Unit, b: Point, c: Node, d: Options, e: Person, f: Literal["x", None], g: dict[int, list[str]],
        h: tuple[int, str], i: set[str], j: datetime.datetime | None, k: bytes, s: pathlib.Path, m: decimal.Decimal,
        n: object, o: list[object], p: Any, q: list, r: dict,  # type: ignore[type-arg]
    ) -> None: ...  # fmt: skip

    jsonschema_rs.validator_for(f.parameters, validate_formats=True)


# ---- Python values


@pytest.mark.parametrize(
    ("hint", "given", "value"),
    [
        (Unit, "kelvin", Unit.KELVIN),
        (Point, {"x": 1}, Point(1)),
        (list[Point], [{"x": 1, "y": 2}], [Point(1, 2)]),
        (Node, {"name": "a"}, Node("a")),
        (Options, {"depth": 1}, {"depth": 1}),
        (Person, {"name": "A", "home": {"city": "B"}}, Person(name="A", home=Home(city="B"))),
        (datetime.datetime, "2024-05-01T12:00:00Z", datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)),
        (datetime.datetime, "2024-05-01T12:00:00", datetime.datetime(2024, 5, 1, 12)),
        (datetime.date, "2024-05-01", datetime.date(2024, 5, 1)),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (list[pathlib.Path] | None, ["a"], [pathlib.Path("a")]),
        (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (bytes, "YWJj", b"abc"),
        (Literal["x", "y"], "x", "x"),
        (object, [1], [1]),
    ],
)
def test_arguments_arrive_as_what_the_hint_asks_for(hint: Any, given: object, value: object) -> None:
    def f(it):  # type: ignore[no-untyped-def]
        return it

    f.__annotations__ = {"it": hint}
    made = tool(f)
    arrived = made.run(made.check({"it": given}), CONTEXT)
    assert arrived == value
    assert type(arrived) is type(value)


def test_plain_hints_need_no_conversion() -> None:
    @tool
    def f(a: str, b: int | None, c: list[dict[str, float]], d: Literal["x"], e: Annotated[bool, "e"]) -> None: ...

    assert f._shape.convert is None


def test_classes_made_beside_the_tool_inside_a_function_are_found() -> None:
    @dataclasses.dataclass
    class Local:
        n: int

    @tool
    def f(it: Local) -> int:
        return it.n

    @tool()
    def g(it: Local) -> int:
        return it.n

    assert f.run({"it": {"n": 3}}, CONTEXT) == g.run({"it": {"n": 3}}, CONTEXT) == 3


# ---- a schema given by hand

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}


def by_name(city, days=1):  # type: ignore[no-untyped-def]
    return {"city": city, "days": days}


def all_names(**arguments: object) -> object:
    return arguments


def one_dict(arguments: dict[str, object]) -> object:
    return arguments


def one_anything(arguments, context: CallContext):  # type: ignore[no-untyped-def]
    assert context is CONTEXT
    return arguments


@pytest.mark.parametrize("function", [by_name, all_names, one_dict, one_anything])
def test_a_schema_by_hand_gives_plain_values(function: Callable[..., Any]) -> None:
    made = tool(function, parameters=CITY)
    assert made.parameters == CITY
    assert made.run(made.check({"city": "Oslo", "days": "3"}), CONTEXT) == {"city": "Oslo", "days": 3}


def test_a_schema_by_hand_is_a_copy() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    made = tool(all_names, parameters=schema)
    schema["properties"]["late"] = {"type": "string"}
    assert made.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "must be a JSON Schema of an object"),
        ({"type": "array"}, "must be a JSON Schema of an object"),
        ([1], "must be a JSON Schema of an object"),
        (
            {"type": "object", "properties": {"city": {"type": "strng"}}},
            "not a valid JSON Schema at properties/city/type",
        ),
        ({"type": "object", "properties": []}, "not a valid JSON Schema at properties"),
        ({"type": "object", "properties": {"city": {"pattern": "("}}}, "not a valid JSON Schema"),
        ({"type": "object", "properties": {"city": {"$ref": "#/$defs/none"}}}, "does not exist"),
        ({"type": "object", "properties": {"city": {"$ref": "https://example.org/s.json"}}}, "never fetched"),
        ({"type": "object", "properties": {"city": {"$ref": "file:///etc/passwd"}}}, "never fetched"),
        ({"type": "object", "$schema": "https://example.org/meta"}, "not a valid JSON Schema"),
        ({"type": "object", "default": object()}, "is not JSON"),
        ({"type": "object", "properties": {"town": {}}}, "the schema has 'town', but the function takes city"),
        (
            {"type": "object", "properties": {"city": {}}},
            "the function needs 'city', but the schema doesn't require it",
        ),
    ],
)
def test_a_bad_schema_by_hand_is_refused_when_the_tool_is_made(schema: Any, words: str) -> None:
    def f(city: str) -> None: ...

    with pytest.raises(MisuseError) as caught:
        tool(f, parameters=schema)
    assert str(caught.value).startswith("f: ")
    assert words in str(caught.value)


# ---- what is refused


def refused(function: Any, **options: Any) -> str:
    with pytest.raises(MisuseError) as caught:
        tool(function, **options)
    return str(caught.value)


def test_parameters_without_a_name_in_json_are_refused() -> None:
    def stars(*items: int) -> None: ...
    def more(**items: int) -> None: ...
    def slash(a: int, /) -> None: ...

    assert refused(stars) == "stars: *items has no names to give in JSON; take a list: items: list"
    assert "**items doesn't say which arguments there are" in refused(more)
    assert refused(slash) == "slash: 'a' is positional-only, but arguments come by name; take away the / after it"


def test_hints_without_a_schema_are_refused_by_parameter() -> None:
    def called(a: int, b: Callable[[], int]) -> None: ...
    def either(it: Point | Node) -> None: ...
    def nowhere(it: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert "called: the hint of 'b' has no JSON Schema" in refused(called)
    assert "either: the hint of 'it' has no JSON Schema: Type unions may not contain more than one" in refused(either)
    assert "nowhere: the hint of 'it', 'Nowhere', can't be read" in refused(nowhere)


def test_a_method_without_its_object_is_refused() -> None:
    class Shop:
        def sell(self, n: int) -> None: ...

    assert refused(Shop.sell) == (
        "sell: a method has no object yet inside its class; make the tool of the bound one: tool(it.sell)"
    )


def test_generators_are_refused() -> None:
    def count() -> Iterator[int]:
        yield 1

    assert "a tool returns once" in refused(count)


def test_two_contexts_are_refused() -> None:
    def f(a: CallContext, b: CallContext) -> None: ...

    assert refused(f) == "f: 'a' and 'b' both take the CallContext; keep one"


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "5"])
def test_a_timeout_is_seconds(timeout: Any) -> None:
    assert "timeout must be seconds above 0" in refused(all_names, timeout=timeout)


def test_an_async_function_is_not_run_in_a_thread() -> None:
    async def f() -> None: ...

    assert "leave blocking out" in refused(f, blocking=True)


def test_an_object_with_attributes_of_its_own_does_not_shadow_the_tool() -> None:
    class Odd:
        def __init__(self) -> None:
            self.run = self.check = self.name = "mine"

        def __call__(self, n: int) -> int:
            return n

    made = tool(Odd(), name="odd")
    assert made.run(made.check({"n": "1"}), CONTEXT) == 1


def test_other_misuse_is_refused() -> None:
    made = tool(parameters=CITY)(all_names)
    assert refused(made) == "all_names is a tool already"
    assert "takes a function, not 3" in refused(3)
    assert "is no name for a tool" in refused(lambda: None)
    assert "is no name for a tool" in refused(all_names, name="two words")
    assert "replay must be 'safe' or 'never'" in refused(all_names, replay="maybe")
