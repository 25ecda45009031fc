"""To JSON and back: every message, signal, effect, snapshot and record, with a version.

``cattrs`` does the work, since it knows attrs classes and says where a value does not fit; it is imported on first
use. In JSON each value of a union is tagged with its class: ``{"type": "Text", "text": "hello"}``.

>>> from edgewise.statemachine.messages import user_message
>>> to_json(user_message("hello"))
'{"v": 1, "type": "UserMessage", "content": [{"text": "hello", "type": "Text"}]}'
>>> from_json(to_json(user_message("hello"))) == user_message("hello")
True
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast, get_args, get_origin

import attrs

from edgewise.statemachine.history import History
from edgewise.statemachine.messages import AssistantContent, Message, ToolCall, Usage, UserContent
from edgewise.statemachine.records import Happening, Record, RunStarted
from edgewise.statemachine.signals import Effect, Signal
from edgewise.statemachine.snapshot import Batch, Ending, Policy, Slot, Snapshot, State
from edgewise.statemachine.verdicts import Verdict

if TYPE_CHECKING:
    from cattrs import Converter

FORMAT_VERSION = 1

_UNIONS: tuple[Any, ...] = (UserContent, AssistantContent, Message, Verdict, Signal, Effect, Happening)
_SINGLE: tuple[type, ...] = (Snapshot, Record, Batch, Slot, Ending, Policy, Usage, ToolCall)


def _members(union: Any) -> tuple[type, ...]:
    return tuple(get_args(union))


@functools.cache
def _types() -> dict[str, type]:
    classes = [*_SINGLE, *(cls for union in _UNIONS for cls in _members(union))]
    return {cls.__name__: cls for cls in classes}


@functools.cache
def _converter() -> Converter:
    import cattrs
    import cattrs.preconf.json
    from cattrs.gen import make_dict_unstructure_fn, override

    converter = cattrs.preconf.json.make_converter(omit_if_default=True, forbid_extra_keys=False)
    converter.register_unstructure_hook_func(lambda cls: cls == frozenset[str], sorted)
    # A default of today may be another one tomorrow; what a run was governed by is written out.
    converter.register_unstructure_hook(
        Policy, make_dict_unstructure_fn(Policy, converter, _cattrs_omit_if_default=False)
    )
    governed = override(omit_if_default=False)
    converter.register_unstructure_hook_factory(
        lambda cls: cls in (RunStarted, Snapshot),
        lambda cls: make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, policy=governed),
    )
    _be_strict(converter)
    for union in _UNIONS:
        _tag(union, converter)
    many: Any = tuple[Message, ...]
    converter.register_structure_hook(History, lambda data, _: History(converter.structure(data, many)))
    converter.register_unstructure_hook(History, lambda h: converter.unstructure(tuple(h), unstructure_as=many))
    return converter


_JSON_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def _expected(kind: Any, data: Any, length: int | None = None) -> Any:
    if type(data) is not kind and (kind, type(data)) not in ((float, int), (list, tuple)):
        raise ValueError(f"expected {_JSON_NAMES[kind]}, not {_JSON_NAMES.get(type(data), data)}")
    if length is not None and len(data) != length:
        raise ValueError(f"expected {length} items, not {len(data)}")
    return kind(data)


def _be_strict(converter: Converter) -> None:
    """A journal is not guessed at: left alone, cattrs reads "false" as True, null as "None" and [] as an object."""

    def many(kind: Any) -> Callable[[Any, Any], Any]:
        make, kinds = get_origin(kind), get_args(kind)
        if make is tuple and kinds[-1] is not Ellipsis:
            return lambda data, _: tuple(map(converter.structure, _expected(list, data, len(kinds)), kinds))
        items = cast("Any", list)[kinds[0]]
        return lambda data, _: make(converter.structure(_expected(list, data), items))

    def fields(cls: Any) -> Callable[[Any, Any], Any]:
        build = converter.gen_structure_attrs_fromdict(cls)
        return lambda data, _: build(_expected(dict, data), cls)

    for scalar in (str, bool, int, float):
        converter.register_structure_hook(scalar, lambda data, _, scalar=scalar: _expected(scalar, data))
    converter.register_structure_hook(State, lambda data, _: State(data))
    converter.register_structure_hook_factory(lambda kind: cast("Any", get_origin(kind)) in (tuple, frozenset), many)
    converter.register_structure_hook_factory(attrs.has, fields)


def _tag(union: Any, converter: Converter) -> None:
    from cattrs.strategies import configure_tagged_union

    configure_tagged_union(union, converter, tag_name="type")
    build = converter.get_structure_hook(union)
    names = [cls.__name__ for cls in _members(union)]

    def by_tag(data: Any, _: Any) -> Any:
        tag = _expected(dict, data).get("type")
        if tag not in names:
            raise ValueError(f"its type is {tag!r}; expected {', '.join(names)}")
        return build(data, union)

    converter.register_structure_hook(union, by_tag)


def _in_words(error: BaseException, kind: type | None) -> str:
    return f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)


def to_data(value: Any) -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers for ``value``, which must be one of the engine's own.

    Raises TypeError for anything else.
    """
    name = type(value).__name__
    if _types().get(name) is not type(value):
        raise TypeError(f"{name} is not one of the values that Edgewise writes: {', '.join(sorted(_types()))}")
    return {"v": FORMAT_VERSION, "type": name, **_converter().unstructure(value)}


def from_data(data: Any) -> Any:
    """The value that :func:`to_data` made ``data`` of.

    Raises ValueError that says what is wrong and where.
    """
    import cattrs

    if not isinstance(data, dict):
        raise ValueError(f"expected an object with 'v' and 'type', not {type(data).__name__}")
    if type(data.get("v")) is not int or data["v"] != FORMAT_VERSION:
        raise ValueError(f"format version {data.get('v')!r}: this Edgewise reads {FORMAT_VERSION}")
    name = data.get("type")
    cls = _types().get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"unknown type {data.get('type')!r}; known are {', '.join(sorted(_types()))}")
    try:
        return _converter().structure(data, cls)
    except (cattrs.BaseValidationError, cattrs.StructureHandlerNotFoundError, KeyError, TypeError, ValueError) as error:
        faults = cattrs.transform_error(error, format_exception=_in_words)
        raise ValueError(f"not a valid {cls.__name__}: {'; '.join(faults)}") from error


def to_json(value: Any) -> str:
    """One line of JSON, in ASCII, so that not even a lone surrogate is lost."""
    return json.dumps(to_data(value))


def from_json(text: str | bytes) -> Any:
    """The value that :func:`to_json` wrote. Raises ValueError that says what is wrong and where."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("not read: it is nested too deeply") from None
    return from_data(data)
