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
from typing import TYPE_CHECKING, Any, get_args

from edgewise.statemachine.history import History
from edgewise.statemachine.messages import AssistantContent, Message, ToolCall, Usage, UserContent
from edgewise.statemachine.records import Happening, Record
from edgewise.statemachine.signals import Effect, Signal
from edgewise.statemachine.snapshot import Batch, Ending, Policy, Slot, Snapshot
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
    from cattrs.gen import make_dict_unstructure_fn
    from cattrs.strategies import configure_tagged_union

    converter = cattrs.preconf.json.make_converter(omit_if_default=True, forbid_extra_keys=False)
    # A default of today may be another one tomorrow; what a run was governed by is written out.
    converter.register_unstructure_hook(
        Policy, make_dict_unstructure_fn(Policy, converter, _cattrs_omit_if_default=False)
    )
    converter.register_unstructure_hook_func(lambda cls: cls == frozenset[str], sorted)
    for union in _UNIONS:
        configure_tagged_union(union, converter, tag_name="type")
    many: Any = tuple[Message, ...]
    converter.register_structure_hook(History, lambda data, _: History(converter.structure(data, many)))
    converter.register_unstructure_hook(History, lambda h: converter.unstructure(tuple(h), unstructure_as=many))
    return converter


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
    if data.get("v") != FORMAT_VERSION:
        raise ValueError(f"format version {data.get('v')!r}: this Edgewise reads {FORMAT_VERSION}")
    cls = _types().get(data.get("type", ""))
    if cls is None:
        raise ValueError(f"unknown type {data.get('type')!r}; known are {', '.join(sorted(_types()))}")
    try:
        return _converter().structure(data, cls)
    except (cattrs.BaseValidationError, cattrs.StructureHandlerNotFoundError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a valid {cls.__name__}: {'; '.join(cattrs.transform_error(error))}") from error


def to_json(value: Any) -> str:
    """One line of JSON, in ASCII, so that not even a lone surrogate is lost."""
    return json.dumps(to_data(value))


def from_json(text: str | bytes) -> Any:
    """The value that :func:`to_json` wrote. Raises ValueError that says what is wrong and where."""
    return from_data(json.loads(text))
