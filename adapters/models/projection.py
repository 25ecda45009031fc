"""Our history as the messages of the Chat Completions wire: always valid, and each message computed once.

Pure: values in, values out. What holds for every history, also one that no machine would write:

- Instructions come first. A message that says nothing (only white space) is left out, and so is all thinking.
- Results follow their assistant message directly, in the order of its calls, one each. They are paired by position;
  only when some are missing do ids, then names, say which. A missing one gets a placeholder; results without a call
  are dropped.
- Call ids are unique, not empty and legal (up to 40 of ``A-Z a-z 0-9 _ -``). A legal id that came first is kept; others
  are named after their place in the history, so that they stay the same when it grows.
- Arguments are the JSON text of an object. Everything can be encoded as UTF-8.
- A tool message holds text only: pictures in results follow all the results of their turn, in one user message.
- The result of a failed call begins with ``Error``.

A batch (an assistant message with its results, or any other message) is projected when it is complete, and remembered
by the history's lineage; a longer history of that lineage only has its new batches projected. What is remembered is
never changed, so the earlier part of a request stays the same to the byte, as prompt caches want it.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from edgewise.statemachine.arguments import mended, wire_arguments
from edgewise.statemachine.errors import Failure, ModelError
from edgewise.statemachine.messages import AssistantMessage, Image, Message, Text, ToolCall, ToolResult, UserMessage
from edgewise.statemachine.ports import ToolSpec

WireMessage: TypeAlias = dict[str, Any]

NO_RESULT = "No result: the call was not executed."
NO_OUTPUT = "(no output)"

_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ILLEGAL_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


class ChatProjection:
    """Projects histories for one model. ``images``: whether the model sees; if not, a note stands for each picture.

    >>> from edgewise.statemachine.messages import user_message
    >>> ChatProjection().messages([user_message("hello")], "Be brief.")
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'hello'}]
    """

    __slots__ = ("_images", "_known", "_lock")

    def __init__(self, images: bool = True) -> None:
        self._images = images
        self._known: WeakKeyDictionary[object, _Prefix] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def messages(self, history: Sequence[Message], instructions: str = "") -> list[WireMessage]:
        """The wire messages of ``history``. The dictionaries are shared with later answers: don't change them."""
        with self._lock:
            prefix = self._prefix(history)
            unfinished = prefix.grow(history[prefix.count :], self._images)
            system = [{"role": "system", "content": mended(instructions)}] if instructions.strip() else []
            return [*system, *prefix.wire, *unfinished]

    def _prefix(self, history: Sequence[Message]) -> _Prefix:
        lineage = getattr(history, "lineage", None)
        if lineage is None:
            return _Prefix()
        known = self._known.get(lineage)
        if known is None or not known.of(history):
            known = self._known[lineage] = _Prefix()
        return known if known.count <= len(history) else known.cut(len(history))


class _Prefix:
    """The complete batches at the beginning of a history, projected."""

    __slots__ = ("_ends", "_last", "count", "ids", "wire")

    def __init__(self) -> None:
        self.count = 0
        """How many messages of the history are projected."""
        self.wire: list[WireMessage] = []
        self.ids: set[str] = set()
        self._ends: list[tuple[int, int]] = [(0, 0)]
        """After each batch: how many messages, how many wire messages."""
        self._last: Message | None = None

    def of(self, history: Sequence[Message]) -> bool:
        """Whether ``history`` is what was projected, as far as both go."""
        return self.count == 0 or self.count > len(history) or history[self.count - 1] is self._last

    def cut(self, length: int) -> _Prefix:
        """A copy that goes no further than ``length`` messages."""
        ends = self._ends[: bisect_right(self._ends, length, key=lambda end: end[0])]
        shorter = _Prefix()
        shorter.count, wired = ends[-1]
        shorter.wire = self.wire[:wired]
        shorter.ids = {call["id"] for message in shorter.wire for call in message.get("tool_calls", ())}
        return shorter

    def grow(self, new: Sequence[Message], images: bool) -> list[WireMessage]:
        """Take in what is complete of ``new``; give how the last batch looks for now, if it is not."""
        at = 0
        while at < len(new):
            message = new[at]
            calls = message.tool_calls if isinstance(message, AssistantMessage) else ()
            end = at + 1
            while end < len(new) and end - at <= len(calls) and isinstance(new[end], ToolResult):
                end += 1
            results = [result for result in new[at + 1 : end] if isinstance(result, ToolResult)]
            ids = self._name(calls, self.count)
            wire = _batch(message, calls, results, ids, images)
            if end == len(new) and len(results) < len(calls):
                return wire
            self.wire += wire
            self.ids.update(ids)
            self.count += end - at
            self._ends.append((self.count, len(self.wire)))
            self._last = new[end - 1]
            at = end
        return []

    def _name(self, calls: Sequence[ToolCall], position: int) -> list[str]:
        ids: dict[str, None] = {}
        for slot, call in enumerate(calls):
            chosen, tries = call.id, 0
            while chosen in self.ids or chosen in ids or not _LEGAL_ID.fullmatch(chosen):
                chosen = f"call_{position}_{slot}" + (f"_{tries}" if tries else "")
                tries += 1
            ids[chosen] = None
        return list(ids)


def _batch(
    message: Message, calls: Sequence[ToolCall], results: Sequence[ToolResult], ids: Sequence[str], images: bool
) -> list[WireMessage]:
    if isinstance(message, UserMessage):
        parts = _parts(message.content, images)
        return [{"role": "user", "content": _plain(parts)}] if parts else []
    if isinstance(message, ToolResult):  # its call is not here
        return []
    text = "\n".join(mended(block.text) for block in message.content if isinstance(block, Text))
    spoken = text if text.strip() else None
    if not calls:
        return [{"role": "assistant", "content": spoken}] if spoken else []
    asked = [_call(id, call) for id, call in zip(ids, calls, strict=True)]
    wire: list[WireMessage] = [{"role": "assistant", "content": spoken, "tool_calls": asked}]
    pictures: list[dict[str, Any]] = []
    for id, result in zip(ids, _paired(calls, results), strict=True):
        content = NO_RESULT if result is None else _result_text(result, images)
        wire.append({"role": "tool", "tool_call_id": id, "content": content})
        shown = [block for block in result.content if isinstance(block, Image)] if result and images else []
        if result and shown:
            pictures.append({"type": "text", "text": f"From the result of {wire_name(result.name)} ({id}):"})
            pictures += map(_picture, shown)
    if pictures:
        wire.append({"role": "user", "content": pictures})
    return wire


def _paired(calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult | None]:
    """One result or None for each call, in order."""
    if len(results) == len(calls):
        return list(results)
    paired: list[ToolResult | None] = [None] * len(calls)
    slot = 0
    for after, result in zip(range(len(results) - 1, -1, -1), results, strict=True):
        room = range(slot, len(calls) - after)
        by_id = (slot for slot in room if result.call_id and calls[slot].id == result.call_id)
        by_name = (slot for slot in room if calls[slot].name == result.name)
        slot = next(by_id, next(by_name, slot))
        paired[slot] = result
        slot += 1
    return paired


def _call(id: str, call: ToolCall) -> WireMessage:
    arguments = wire_arguments(call.arguments)
    return {"id": id, "type": "function", "function": {"name": wire_name(call.name), "arguments": arguments}}


def _result_text(result: ToolResult, images: bool) -> str:
    text = "\n".join(mended(block.text) for block in result.content if isinstance(block, Text))
    if not text.strip():
        text = ""
    pictures = [block for block in result.content if isinstance(block, Image)]
    if pictures:
        note = f"[{len(pictures)} image(s): in the user message after the results of this turn]"
        text = "\n".join(filter(None, [text, note if images else "\n".join(map(_note, pictures))]))
    if result.is_error and not text.lstrip().lower().startswith("error"):
        text = f"Error: {text or 'the tool failed and said nothing'}"
    return text or NO_OUTPUT


def _parts(content: Iterable[object], images: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    for block in content:
        if isinstance(block, Text) and block.text.strip():
            parts.append({"type": "text", "text": mended(block.text)})
        elif isinstance(block, Image):
            parts.append(_picture(block) if images else {"type": "text", "text": _note(block)})
    return parts


def _plain(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Text alone goes as a string, which is what every server reads."""
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def _picture(image: Image) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": mended(f"data:{image.media_type};base64,{image.data}")}}


def _note(image: Image) -> str:
    return mended(f"[an image ({image.media_type}) that this model cannot see]")


def wire_name(name: str, taken: Collection[str] = ()) -> str:
    """A function name that the wire allows (up to 64 of ``A-Z a-z 0-9 _ -``) and that is not in ``taken``.

    >>> wire_name("files.read"), wire_name("files.read", {"files_read"})
    ('files_read', 'files_read_2')
    """
    legal = chosen = _ILLEGAL_IN_NAME.sub("_", name)[:64] or "unnamed"
    number = 2
    while chosen in taken:
        chosen = f"{legal[:60]}_{number}"
        number += 1
    return chosen


def wire_tools(tools: Iterable[ToolSpec]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The tools as the wire offers them, and their own names by the names there.

    Raises ModelError when the schema of a tool cannot be written as JSON.
    """
    wire: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for tool in tools:
        name = wire_name(tool.name, names)
        names[name] = tool.name
        try:
            # By way of text, since surrogates may hide anywhere in a schema that came from another program.
            text = json.dumps(dict(tool.parameters), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            message = f"the parameters of tool {tool.name!r} are no JSON Schema: {error}"
            raise ModelError(Failure("invalid_request", message)) from error
        described = {
            "name": name,
            "description": mended(tool.description),
            "parameters": json.loads(mended(text)),
        }
        wire.append({"type": "function", "function": described})
    return wire, names
