"""A reply while it streams in: assembles blocks from deltas, and is what is left when the stream breaks off.

Deltas of calls are assembled by index, else by id, else by arrival, since servers leave out or repeat either. A new id
or a new name on a call that has one already starts another call, whatever its index says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal, TypeAlias

from edgewise.statemachine.messages import (
    NO_USAGE,
    AssistantContent,
    AssistantMessage,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)

DeltaKind: TypeAlias = Literal["text", "thinking", "arguments"]
Listener: TypeAlias = Callable[[DeltaKind, str, int], None]
"""Called with the kind of a delta, its text, and the number of the block that it belongs to."""


class _Block:
    __slots__ = ("call_id", "index", "kind", "name", "parts", "signature")

    def __init__(self, kind: DeltaKind) -> None:
        self.kind: DeltaKind = kind
        self.parts: list[str] = []
        self.signature: str | None = None
        self.index: int | None = None
        self.call_id = ""
        self.name = ""

    def build(self) -> AssistantContent | None:
        text = "".join(self.parts)
        if self.kind == "text":
            return Text(text) if text else None
        if self.kind == "thinking":
            return Thinking(text, self.signature) if text or self.signature else None
        return ToolCall(self.call_id, self.name, text)


def _whole(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except ValueError:
        return False
    return True


class Draft:
    """Collects a streamed reply.

    >>> draft = Draft()
    >>> draft.text("Let me "); draft.text("look.")
    >>> draft.call(0, "a", "list_files", '{"path"'); draft.call(0, arguments=': "."}')
    >>> [type(block).__name__ for block in draft.finish("tool_use").content]
    ['Text', 'ToolCall']
    >>> draft.finish().tool_calls[0].arguments
    '{"path": "."}'
    """

    __slots__ = ("_blocks", "_listener", "model", "usage")

    def __init__(self, listener: Listener | None = None, model: str = "") -> None:
        self._blocks: tuple[_Block, ...] = ()
        self._listener = listener
        self.model = model
        self.usage: Usage = NO_USAGE
        """Set it whenever the provider reports; the last report counts, none is added up."""

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with every delta from now on."""
        self._listener = listener

    def _told(self, block: _Block, text: str) -> None:
        block.parts.append(text)
        if self._listener is not None and text:
            number = len(self._blocks) - 1 if block is self._blocks[-1] else self._blocks.index(block)
            self._listener(block.kind, text, number)

    def _current(self, kind: DeltaKind) -> _Block:
        if not self._blocks or self._blocks[-1].kind != kind:
            self._add(_Block(kind))
        return self._blocks[-1]

    def _add(self, block: _Block) -> None:
        self._blocks = (*self._blocks, block)

    def text(self, delta: str) -> None:
        """Append words to the answer."""
        self._told(self._current("text"), delta)

    def thinking(self, delta: str, signature: str | None = None) -> None:
        """Append to the reasoning; a ``signature`` closes the block."""
        block = self._current("thinking")
        if block.signature is not None:
            block = _Block("thinking")
            self._add(block)
        if signature is not None:
            block.signature = signature
        self._told(block, delta)

    def call(self, index: int | None = None, id: str = "", name: str = "", arguments: str = "") -> None:
        """Append to a tool call: a piece of its JSON arguments, with whatever the server says of which call it is."""
        block = self._find_call(index, id, name, arguments)
        if block is None:
            block = _Block("arguments")
            block.index = index
            self._add(block)
        block.call_id = block.call_id or id
        block.name = block.name or name
        self._told(block, arguments)

    def _find_call(self, index: int | None, id: str, name: str, arguments: str) -> _Block | None:
        calls = [block for block in self._blocks if block.kind == "arguments"]
        if not calls:
            return None
        if id and any(block.call_id == id for block in calls):
            known = [block for block in calls if block.call_id == id]
            same = [block for block in known if index is None or block.index == index]
            found = (same or known)[-1]
            # Two calls may even share their id; a second index, or a name after whole arguments, tells them apart.
            if not same or (name and found.name and arguments and _whole("".join(found.parts))):
                return None
            return found
        if index is not None:
            same = [block for block in calls if block.index == index]
            if not same:
                return None
            found = same[-1]
        elif id:
            return None
        else:
            found = calls[-1]
        if id and found.call_id:
            return None
        if name and found.name and (name != found.name or _whole("".join(found.parts))):
            return None
        return found

    @property
    def empty(self) -> bool:
        return not self._blocks

    def finish(self, stop_reason: StopReason = "stop") -> AssistantMessage:
        """The message as it stands."""
        content = tuple([built for block in self._blocks if (built := block.build()) is not None])
        return AssistantMessage(content, stop_reason, self.usage, self.model)
