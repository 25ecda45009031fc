"""Makes a tool result of whatever a tool gave back, so that no value can break a later request or the journal.

What comes out is always text and pictures that UTF-8 and JSON can hold, never empty (providers refuse that), and never
longer than the limit. A plain short string, the usual case, is done first and costs about a microsecond; the rest
goes through :func:`_content`. Errors take the other door, :func:`failed_result`.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Sequence
from typing import Any

from edgewise.statemachine.arguments import mended
from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.messages import Image, Text, ToolCall, ToolResult, UserContent, error_result
from edgewise.statemachine.rendering import media_type_of, safe_repr, simpler, to_json

TEXT_LIMIT = 50_000
"""Characters of text in one result, unless told otherwise."""

IMAGE_LIMIT = 3_750_000
"""Bytes of a picture: 5 MB as base64, which the strictest of the large providers take."""

NOTHING = "Done; the tool returned nothing."
EMPTY = "Done; the tool returned an empty text."

IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def make_result(call: ToolCall, value: object, limit: int = TEXT_LIMIT) -> ToolResult:
    """The result of ``call`` whose tool returned ``value``; ``limit`` is in characters of text.

    Text and Image blocks, alone or in a sequence (plain strings may be among them), pass as they are; a ToolResult
    keeps its content and ``is_error``; a returned exception is an error. None, bytes and everything else become text
    or JSON. A text over the limit is cut in the middle, with a note that says what was left out.

    >>> make_result(ToolCall("1", "add"), {"sum": 5}).text
    '{"sum": 5}'
    >>> make_result(ToolCall("1", "add"), None).text
    'Done; the tool returned nothing.'
    """
    if value is None:
        value = NOTHING
    if type(value) is str and len(value) <= limit and value and not value.isspace():
        return ToolResult(call.id, call.name, (Text(mended(value)),))
    try:
        return _result(call, value, limit)
    except Exception as error:
        return error_result(call, _fit(f"What {call.name} returned can't be read: {explain(error)}", limit))


def failed_result(call: ToolCall, error: BaseException, limit: int = TEXT_LIMIT) -> ToolResult:
    """The result of ``call`` that failed with ``error``: a text that the model can act on.

    An exception whose class says ``for_model = True`` is written for the model, and shown as its bare message.

    >>> failed_result(ToolCall("1", "read"), FileNotFoundError("no file a.txt")).text
    'FileNotFoundError: no file a.txt'
    """
    return error_result(call, _fit(explain(error, call.name), limit))


def explain(error: BaseException, tool: str = "the tool") -> str:
    """What went wrong, for a reader who sees no traceback."""
    if isinstance(error, InvalidArguments):
        if len(error.faults) == 1:
            return f"Invalid arguments for {tool}: {error.faults[0]}"
        return f"Invalid arguments for {tool}:" + "".join(f"\n- {fault}" for fault in error.faults)
    if isinstance(error, BaseExceptionGroup):
        leaves = _leaves(error)
        if len(leaves) == 1:
            return explain(leaves[0], tool)
        return f"{len(leaves)} errors at once:" + "".join(f"\n- {explain(leaf, tool)}" for leaf in leaves)
    name = type(error).__name__
    try:
        message = str(error).strip()
    except Exception as broken:
        message = f"(its message can't be had: {type(broken).__name__})"
    if getattr(type(error), "for_model", False) is True:
        return message or name
    said = f"{name}: {message}" if message else f"{name} (without a message)"
    notes = getattr(error, "__notes__", ())
    said += "".join(f"\n{note}" for note in notes if isinstance(note, str))
    if error.__cause__ is not None and error.__cause__ is not error:
        said += f"\ncaused by {_name_and_message(error.__cause__)}"
    return said


def _name_and_message(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    waiting = list(group.exceptions)
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting[:0] = error.exceptions
        else:
            found.append(error)
    return found


# ---- from any value to blocks


def _result(call: ToolCall, value: object, limit: int) -> ToolResult:
    if isinstance(value, BaseException):
        return failed_result(call, value, limit)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        return error_result(call, f"{call.name} is broken: it returned a {type(value).__name__}, which nobody awaits.")
    if isinstance(value, ToolResult):
        content = _content(call, value.content or "")
        return ToolResult(call.id, call.name, _bounded(content, limit), bool(value.is_error))
    return ToolResult(call.id, call.name, _bounded(_content(call, value), limit))


def _content(call: ToolCall, value: object) -> tuple[UserContent, ...]:
    if isinstance(value, (Text, Image)):
        return (_block(value),)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return (_from_bytes(bytes(value)),)
    if isinstance(value, (list, tuple)) and _are_blocks(value):
        return tuple([_block(item) for item in value])
    if isinstance(value, str):
        return (Text(str.__str__(value)),)
    odd: set[str] = set()
    plain = value if isinstance(value, (dict, list, tuple, bool, int, float)) else simpler(value, odd)
    text = plain if isinstance(plain, str) else to_json(plain, odd)
    if odd:
        what = ", ".join(sorted(odd))
        text += f"\n[{call.name} returned what JSON cannot hold ({what}); its repr is shown.]"
    return (Text(text),)


def _are_blocks(items: Sequence[Any]) -> bool:
    """At least one block, and nothing else but words: a list of strings alone is data."""
    return any(isinstance(item, (Text, Image)) for item in items) and all(
        isinstance(item, (Text, Image, str)) for item in items
    )


def _block(item: Text | Image | str) -> UserContent:
    if isinstance(item, Image):
        data: object = item.data
        if isinstance(data, (bytes, bytearray)):
            return Image(base64.b64encode(data).decode("ascii"), item.media_type)
        return item
    words: object = item.text if isinstance(item, Text) else item
    return Text(words if isinstance(words, str) else safe_repr(words))


def _from_bytes(data: bytes) -> UserContent:
    media_type = media_type_of(data)
    if media_type in IMAGE_TYPES and len(data) <= IMAGE_LIMIT:
        return Image(base64.b64encode(data).decode("ascii"), media_type)
    if media_type is None and b"\0" not in data:
        try:
            return Text(data.decode())
        except UnicodeDecodeError:
            pass
    shown = f" ({IMAGE_LIMIT:,} bytes are the most that can be shown)" if media_type in IMAGE_TYPES else ""
    return Text(f"[{len(data):,} bytes of {media_type or 'binary data'}, not shown{shown}]")


# ---- from blocks to blocks that fit

_NOTE = 100
"""Room for a note on what was left out. It counts towards a large limit, so that what was cut is not cut again."""


def _room_for_note(limit: int) -> int:
    return _NOTE if limit >= 10 * _NOTE else 0


def _bounded(content: tuple[UserContent, ...], limit: int) -> tuple[UserContent, ...]:
    total = sum(len(block.text) for block in content if isinstance(block, Text))
    left = limit if total <= limit or len(content) == 1 else limit - _room_for_note(limit)
    least = _room_for_note(limit) or 1
    dropped, fitting = 0, list[UserContent]()
    for block in content:
        if isinstance(block, Image):
            fitting.append(block)
        elif left < min(len(block.text), least):
            dropped += len(block.text)
        elif block.text and not block.text.isspace():
            shown = _fit(block.text, limit, left)
            fitting.append(Text(shown))
            left -= len(shown)
    if dropped:
        fitting.append(Text(f"[... {dropped:,} more characters left out; the limit is {limit:,} ...]"))
    return tuple(fitting) or (Text(EMPTY),)


def _fit(text: str, limit: int, left: int | None = None) -> str:
    """``text`` mended, and cut in the middle when it is longer than ``left`` (what is left of ``limit``)."""
    left = limit if left is None else left
    if len(text) <= left:
        return mended(text)
    kept = left - _room_for_note(limit)
    tail = kept // 3
    note = f"[... {len(text) - kept:,} characters left out here; the limit is {limit:,} ...]"
    return f"{mended(text[: kept - tail])}\n{note}\n{mended(text[len(text) - tail :])}"
