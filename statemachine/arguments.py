"""Reads the arguments of a call: from the text that a model wrote to the object that a tool takes.

A call keeps its text, since that is what happened. Three readings of it are given here. :func:`read_arguments` is for
running the call, and forgives what can mean only one thing:

- nothing at all, or ``null``: no arguments; whether that will do is for the tool's schema to say;
- the object encoded twice, as a JSON string: one layer is peeled, and only if an object is inside;
- bare line breaks and tabs in a string, a byte order mark, halves of surrogate pairs.

Everything else is refused, with what came, where it breaks and what is expected. :func:`wire_arguments` is for sending
the history back to a provider, :func:`canonical_arguments` for comparing calls; neither of them raises.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, NoReturn

from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.messages import ToolCall

_EXPECTED = 'Expected one JSON object, as in {"path": "a.txt"}'
_EXCERPT = 60


def read_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of ``call`` as an object. Raises InvalidArguments when they are none.

    >>> read_arguments(ToolCall("1", "read_file", '{"path": "a.txt"}'))
    {'path': 'a.txt'}
    >>> read_arguments(ToolCall("2", "list_files", ""))
    {}
    """
    return _read(call.arguments)[0]


def wire_arguments(text: str) -> str:
    """A text that every JSON parser reads as an object: ``text`` itself if it is one, ``'{}'`` if nothing can be read.

    >>> wire_arguments('{"path": ')
    '{}'
    """
    try:
        value, strict = _read(text)
        return text if strict else json.dumps(value, ensure_ascii=False)
    except (InvalidArguments, RecursionError):
        return "{}"


def canonical_arguments(text: str) -> str:
    """A text that is the same for the same arguments, however they were written; ``text`` itself if it can't be read.

    >>> canonical_arguments('{"b": 1, "a": 2}') == canonical_arguments('{"a":2,"b":1}')
    True
    """
    try:
        return json.dumps(_read(text)[0], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    except (InvalidArguments, RecursionError):
        return text


def _read(text: str) -> tuple[dict[str, Any], bool]:
    """The object, and whether ``text`` is strict JSON for just that object."""
    decode = _decode or _strict_decoder()
    try:
        value = decode(text)
    except Exception:
        return _patient(text), False
    if type(value) is dict:
        return value, True
    return _object(value, text), False


_decode: Callable[[str], Any] | None = None


def _strict_decoder() -> Callable[[str], Any]:
    """msgspec takes a tenth of json's time and is strict; what it refuses is looked at again with more patience."""
    global _decode
    import msgspec.json

    _decode = msgspec.json.decode
    return _decode


def _patient(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        return _object(read_json(text), text)
    except json.JSONDecodeError as error:
        _refuse(text, error)
    except (ValueError, RecursionError) as error:
        reason = "they are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidArguments([f"The arguments can't be read: {reason}. {_EXPECTED}"]) from None


def read_json(text: str) -> Any:
    """The value that ``text`` holds, read with the patience of this module. Raises ValueError or RecursionError."""
    value = _PATIENT.decode(text.removeprefix("\ufeff"))
    return json.loads(mended(json.dumps(value, ensure_ascii=False)))


def _object(value: object, text: str) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        try:
            inner = read_json(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict):
            return inner
    kind = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}[type(value)]
    raise InvalidArguments([f"The arguments are {kind}, not an object: {_excerpt(text)}. {_EXPECTED}"])


def _refuse(text: str, error: json.JSONDecodeError) -> NoReturn:
    problem = error.msg.removesuffix(" starting at")
    where = f"line {error.lineno}, column {error.colno}"
    if error.pos >= len(text.rstrip()) or problem.startswith("Unterminated"):
        what = f"they break off before the JSON is complete ({problem.lower()} at {where})"
        near = f"they end in {_excerpt(text[-_EXCERPT:])}"
    else:
        what = f"{problem[:1].lower()}{problem[1:]} at {where}"
        near = f"near {_excerpt(text[max(0, error.pos - _EXCERPT // 2) : error.pos + _EXCERPT // 2])}"
    raise InvalidArguments([f"The arguments are not valid JSON: {what}, {near}. {_EXPECTED}"]) from None


def _excerpt(text: str) -> str:
    cut = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
    return "`" + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in mended(cut)) + "`"


def mended(text: str) -> str:
    """``text`` fit for UTF-8: surrogates that make a pair are joined, lone ones become U+FFFD.

    >>> mended("caf\\u00e9 \\ud83d\\ude00 \\ud83d")
    'café 😀 �'
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def _whole(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number of {len(digits):,} digits is too long") from None


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {digits[:_EXCERPT]} is out of range")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; use a number or null")


_PATIENT = json.JSONDecoder(strict=False, parse_int=_whole, parse_float=_finite, parse_constant=_no_number)
