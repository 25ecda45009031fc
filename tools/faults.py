"""What is wrong with arguments, in words that a model can act on: where, what was given, what was expected."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgewise.statemachine.arguments import mended
from edgewise.tools.coercion import resolve

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

_VALUE = 80
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "pattern": "text that matches {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} properties",
    "maxProperties": "at most {} properties",
}
_FORMATS = {
    "date-time": "a date and time such as 2024-05-01T12:30:00Z",
    "date": "a date such as 2024-05-01",
    "time": "a time such as 12:30:00Z",
    "duration": "a duration such as PT1H30M",
    "email": "an e-mail address",
    "uri": "a URI such as https://example.org/a",
    "uuid": "a UUID such as 123e4567-e89b-12d3-a456-426614174000",
}


def describe(errors: Iterable[ValidationError], schema: Mapping[str, Any]) -> list[str]:
    """One sentence for each fault; ``schema`` is the whole schema that was validated against."""
    return [fault for error in errors for fault in _describe(error, schema)]


def _describe(error: ValidationError, root: Mapping[str, Any]) -> list[str]:
    kind: Any = error.kind
    keyword = str(kind.name)
    where = path_of(error.instance_path)
    part = _part(root, error.schema_path[:-1])
    if keyword == "required":
        wanted = resolve(part.get("properties", {}), root).get(kind.property, {})
        return [f"{path_of([*error.instance_path, kind.property])} is missing; expected {expected(wanted, root)}"]
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        known = list(part.get("properties", {}))
        return [_unknown(path_of([*error.instance_path, name]), name, known) for name in kind.unexpected]
    if keyword in ("anyOf", "oneOf") and hasattr(kind, "context"):
        # The alternatives of the right type are the ones that were meant; with one of them, say what is wrong in it.
        meant = [
            branch
            for branch in kind.context
            if not any(
                _wrong_type(inner) and list(inner.instance_path) == list(error.instance_path) for inner in branch
            )
        ]
        if len(meant) == 1 and meant[0]:
            return describe(meant[0], root)
    if keyword in ("type", "enum", "const", "anyOf", "oneOf"):
        what = expected(part, root)
    elif keyword == "format":
        what = _FORMATS.get(kind.format, f"text in the format {kind.format}")
    elif keyword == "uniqueItems":
        what = "items that all differ"
    elif keyword in _BOUNDS:
        what = _BOUNDS[keyword].format(part.get(keyword))
    else:
        return [f"{where}: {_shortened(error.message, 3 * _VALUE)}"]
    return [f"{where}: expected {what}, got {shown(error.instance)}"]


def _wrong_type(error: ValidationError) -> bool:
    return error.kind.name in ("type", "enum", "const")


def _part(root: Mapping[str, Any], path: Sequence[str | int]) -> Mapping[str, Any]:
    part: Any = root
    for step in path:
        try:
            part = part[step]
        except (KeyError, IndexError, TypeError):
            return {}
    return part if isinstance(part, Mapping) else {}


def _unknown(where: str, name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"{where}: there is no such argument; did you mean {near[0]}?"
    takes = f"known here: {', '.join(known)}" if known else "none is taken here"
    return f"{where}: there is no such argument; {takes}"


def expected(schema: object, root: Mapping[str, Any], depth: int = 0) -> str:
    """What ``schema`` takes, in a few words.

    >>> expected({"type": "integer", "minimum": 1, "description": "The first line."}, {})
    'integer, at least 1 (The first line.)'
    """
    if not isinstance(schema, Mapping) or depth > 3:
        return "something else"
    schema = resolve(schema, root)
    words = _type_words(schema, root, depth)
    words += [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    if "format" in schema:
        words.append(_FORMATS.get(schema["format"], str(schema["format"])))
    said = ", ".join(words) or "any value"
    description = schema.get("description")
    if depth == 0 and isinstance(description, str) and description:
        said += f" ({_shortened(description, _VALUE)})"
    return said


def _type_words(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> list[str]:
    if "const" in schema:
        return [shown(schema["const"])]
    if "enum" in schema:
        options = [shown(option) for option in schema["enum"]]
        return [f"one of {', '.join(options)}" if len(options) > 1 else options[0]]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            branches = [expected(part, root, depth + 1) for part in schema[keyword]]
            return [" or ".join(dict.fromkeys(branches))]
    types = schema.get("type", ())
    names = [types] if isinstance(types, str) else list(types)
    if "array" in names and isinstance(schema.get("items"), Mapping) and schema["items"]:
        names[names.index("array")] = f"array of {expected(schema['items'], root, depth + 1)}"
    if "object" in names and schema.get("properties") and depth < 2:
        names[names.index("object")] = f"object with {', '.join(schema['properties'])}"
    return [" or ".join(names)] if names else []


def path_of(path: Iterable[str | int]) -> str:
    """Where a value stands, as one writes it.

    >>> path_of(["files", 0, "name"])
    'files[0].name'
    """
    said = ""
    for step in path:
        if isinstance(step, int):
            said += f"[{step}]"
        elif step.isidentifier():
            said += f".{step}" if said else step
        else:
            said += f"[{shown(step)}]" if said else shown(step)
    return said or "the arguments"


def shown(value: object) -> str:
    """``value`` as JSON, cut to a glance."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        text = f"something of type {type(value).__name__}"
    return _shortened(mended(text), _VALUE)


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
