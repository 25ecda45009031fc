"""From type hints to a JSON Schema, and from JSON values to what the hints ask for.

msgspec does the work: it knows dataclasses, attrs classes, TypedDict, NamedTuple, enums, Literal, dates and
``Annotated[..., Meta(...)]``. Added here are paths, pydantic models and errors that name the parameter. References are
inlined, so that a schema can stand inside a larger one; only types that contain themselves keep their ``$ref``.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import pathlib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from edgewise.statemachine.errors import MisuseError

_PLAIN = (str, int, float, bool, type(None), dict, list, Any, object)


def bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def alternatives(hint: Any) -> tuple[Any, ...]:
    hint = bare(hint)
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def is_plain(hint: Any) -> bool:
    """Whether a JSON value that fits ``hint`` is already what ``hint`` asks for."""
    hint = bare(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return all(isinstance(argument, (str, int, type(None))) and type(argument) in _PLAIN for argument in arguments)
    if origin in (Union, types.UnionType, list):
        return all(is_plain(argument) for argument in arguments)
    if origin is dict:
        return not arguments or (arguments[0] is str and is_plain(arguments[1]))
    return any(hint is plain for plain in _PLAIN)


def described(hint: Any, default: Any, said: str | None) -> Any:
    """``hint`` with its description (its own, else ``said``), and optional where the default is None."""
    import msgspec

    for note in getattr(hint, "__metadata__", ()):
        text = (
            note
            if isinstance(note, str)
            else getattr(note, "documentation", None) or getattr(note, "description", None)
        )
        said = text if isinstance(text, str) else said
    if default is None and not any(part in (None, type(None), Any, object) for part in alternatives(hint)):
        hint = Union[hint, None]  # noqa: UP007  (a hint may be a string's worth of typing object without |)
    extra: dict[str, Any] = {}
    if datetime.datetime in alternatives(hint):
        extra["format"] = "date-time"
    if not said and not extra:
        return hint
    return Annotated[hint, msgspec.Meta(description=said, extra_json_schema=extra or None)]


def schemas_of(hints: Mapping[str, Any], tool: str) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    import msgspec

    extra: dict[str, Any] = {}
    hook = functools.partial(_schema_of_custom, definitions=extra)
    try:
        schemas, definitions = msgspec.json.schema_components(hints.values(), schema_hook=hook)
    except Exception:
        for name, hint in hints.items():
            try:
                msgspec.json.schema_components([hint], schema_hook=hook)
            except Exception as error:
                reason = str(error).strip().splitlines()[-1]
                raise MisuseError(
                    f"{tool}: the hint of {name!r} has no JSON Schema: {reason}. Take types that JSON can carry "
                    "(str, int, list, dict, dataclasses, enums, ...) or give @tool(parameters={...})"
                ) from None
        raise
    return schemas, {**definitions, **extra}


def _is_path(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, pathlib.PurePath)


def _schema_of_custom(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind is object:
        return {"description": "Any value."}  # msgspec takes an empty schema for none
    if _is_path(kind):
        return {"type": "string"}
    if hasattr(kind, "model_json_schema") and hasattr(kind, "model_validate"):
        schema: dict[str, Any] = kind.model_json_schema()
        definitions.update(schema.pop("$defs", {}))
        return schema
    raise NotImplementedError(f"{kind} is not supported")


def _value_of_custom(kind: Any, value: Any) -> Any:
    if kind is object:
        return value
    if _is_path(kind):
        return kind(value)
    return kind.model_validate(value)


def converter_for(hints: Mapping[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    import msgspec

    # msgspec reads a class once and keeps what it found, hence a class: one that a subset of the arguments fits.
    arguments: Any = typing.TypedDict("Arguments", dict(hints), total=False)  # type: ignore[misc]
    return functools.partial(msgspec.convert, type=arguments, dec_hook=_value_of_custom, str_keys=True)


def add_default(schema: dict[str, Any], default: Any) -> None:
    import msgspec

    try:
        plain = msgspec.to_builtins(default, enc_hook=os.fspath)
        json.dumps(plain, allow_nan=False)
    except Exception:
        return
    schema["default"] = plain


# ---- one schema of its own


def assembled(whole: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """``whole`` with its references inlined; with all definitions beside it when one of them contains itself."""
    try:
        inlined: dict[str, Any] = _closed(whole, definitions, ())
        return inlined
    except _Recursive:
        kept: dict[str, Any] = _closed(whole, None, ())
        kept["$defs"] = {name: _closed(part, None, ()) for name, part in definitions.items()}
        return kept


class _Recursive(Exception):
    pass


def _closed(schema: Any, definitions: Mapping[str, Any] | None, inside: tuple[str, ...]) -> Any:
    """``schema`` with objects of named properties closed to others, and references inlined out of ``definitions``."""
    if not isinstance(schema, dict):
        return schema
    ref = schema.get("$ref")
    if definitions is not None and isinstance(ref, str):
        name = ref.rpartition("/")[2]
        if name in inside:
            raise _Recursive
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _closed({**definitions[name], **beside}, definitions, (*inside, name))
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties"):
            closed[key] = {name: _closed(part, definitions, inside) for name, part in value.items()}
        elif key in ("items", "additionalProperties"):
            closed[key] = _closed(value, definitions, inside)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            closed[key] = [_closed(part, definitions, inside) for part in value]
        elif key != "discriminator":
            closed[key] = value
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed
