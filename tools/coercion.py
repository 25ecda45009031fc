"""Arguments that mean the right thing in the wrong JSON type, put right: ``"5"`` for an integer becomes ``5``.

Only where the schema takes no string (or no fraction) and what the text holds is of a type that it does take, so that
there is one reading:

- ``"5"``, ``"true"``, ``"null"``, ``'["a"]'`` where a number, boolean, null, array or object is expected: parsed;
- ``5.0`` where an integer is expected: ``5``;
- ``null`` for an optional property that takes no null: left out, which is what the model meant.

Values are copied where they change, never changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgewise.statemachine.arguments import read_json

_DEPTH = 40
_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def coerce(value: Any, schema: object, root: Mapping[str, Any], depth: int = 0) -> Any:
    """``value`` put right for ``schema``, a part of ``root``; the same object when there was nothing to put right.

    >>> schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    >>> coerce({"n": "5"}, schema, schema)
    {'n': 5}
    """
    if depth > _DEPTH or not isinstance(schema, Mapping):
        return value
    schema = resolve(schema, root)
    kinds = kinds_of(schema, root)
    if kinds is not None:
        if type(value) is str and "string" not in kinds:
            value = _parsed(value, kinds)
        elif type(value) is float and "integer" in kinds and "number" not in kinds and value.is_integer():
            value = int(value)
    if type(value) is dict:
        value = _object(value, schema, root, depth)
    elif type(value) is list:
        value = _array(value, schema, root, depth)
    else:
        return value
    for part in _applicable(schema, kind_of(value), root):
        value = coerce(value, part, root, depth + 1)
    return value


def has_whole_float(values: Iterable[Any]) -> bool:
    """Whether a number such as 5.0 is anywhere in ``values``: an integer to JSON Schema, but not to Python."""
    for value in values:
        kind = type(value)
        if kind is float:
            if value.is_integer():
                return True
        elif (kind is dict and has_whole_float(value.values())) or (kind is list and has_whole_float(value)):
            return True
    return False


def kind_of(value: object) -> str:
    """The JSON Schema type of a parsed value."""
    return "null" if value is None else _KINDS.get(type(value), "")


def resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """``schema`` with a ``$ref`` into its own document followed; one that leads elsewhere is left out."""
    for _ in range(_DEPTH):
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            break
        target: Any = root if ref.startswith("#") else {}
        for step in ref.lstrip("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list):
                target = target[int(name)] if name.isdigit() and int(name) < len(target) else {}
            else:
                target = target.get(name, {}) if isinstance(target, Mapping) else {}
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**target, **beside} if isinstance(target, Mapping) else beside
    return schema


def kinds_of(schema: object, root: Mapping[str, Any], depth: int = 0) -> frozenset[str] | None:
    """The JSON types that ``schema`` takes, None when it doesn't say."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return None
    schema = resolve(schema, root)
    if "type" in schema:
        types = schema["type"]
        return frozenset([types] if isinstance(types, str) else types)
    if "const" in schema:
        return frozenset([kind_of(schema["const"])])
    if "enum" in schema:
        return frozenset(kind_of(option) for option in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            parts = [kinds_of(part, root, depth + 1) for part in schema[keyword]]
            known = [part for part in parts if part is not None]
            return frozenset().union(*known) if len(known) == len(parts) else None
    for part in schema.get("allOf", ()):
        kinds = kinds_of(part, root, depth + 1)
        if kinds is not None:
            return kinds
    return None


def _parsed(text: str, kinds: frozenset[str]) -> Any:
    lowered = text.strip().lower()
    if "boolean" in kinds and lowered in ("true", "false"):
        return lowered == "true"
    if "null" in kinds and lowered in ("null", "none"):
        return None
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        return text
    kind = kind_of(value)
    if kind in kinds or (kind == "integer" and "number" in kinds):
        return value
    if kind == "number" and "integer" in kinds and value.is_integer():
        return int(value)
    return text


def _object(value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    changed: dict[str, Any] | None = None
    for name, item in value.items():
        part = properties.get(name, others)
        if item is None and name in properties and name not in schema.get("required", ()):
            kinds = kinds_of(part, root)
            if kinds is not None and "null" not in kinds:
                changed = dict(value) if changed is None else changed
                del changed[name]
                continue
        new = coerce(item, part, root, depth + 1)
        if new is not item:
            changed = dict(value) if changed is None else changed
            changed[name] = new
    return value if changed is None else changed


def _array(value: list[Any], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[Any]:
    first = schema.get("prefixItems", ())
    rest = schema.get("items")
    new = [coerce(item, first[i] if i < len(first) else rest, root, depth + 1) for i, item in enumerate(value)]
    return value if all(a is b for a, b in zip(new, value, strict=True)) else new


def _applicable(schema: Mapping[str, Any], kind: str, root: Mapping[str, Any]) -> list[Any]:
    """The parts of ``schema`` that surely apply to an object or array: all of ``allOf``, an only alternative."""
    parts = list(schema.get("allOf", ()))
    for keyword in ("anyOf", "oneOf"):
        fitting = [part for part in schema.get(keyword, ()) if kind in (kinds_of(part, root) or {kind})]
        if len(fitting) == 1:
            parts += fitting
    return parts
