"""What the parties say: content blocks, the three messages, and what a reply cost.

All values are frozen and hold no parsed JSON: a call's arguments are kept as the text that the model wrote, since
that is what happened; :mod:`edgewise.statemachine.arguments` reads them. Call ids are data from outside (providers
send empty, double and foreign ones); the machine counts calls by slot, the position in their message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

StopReason: TypeAlias = str
"""Why a reply ended, in the field's words. Known values are :data:`STOP_REASONS`; others pass through as they came."""

STOP_REASONS = ("stop", "tool_use", "length", "refusal", "content_filter", "aborted", "error")


@attrs.frozen
class Text:
    """Words."""

    type: ClassVar[str] = "text"
    text: str


@attrs.frozen
class Thinking:
    """A model's reasoning; ``signature`` is what its provider wants back with it, verbatim."""

    type: ClassVar[str] = "thinking"
    text: str
    signature: str | None = None


@attrs.frozen
class Image:
    """A picture: base64 data and its media type, as in ``Image(data, "image/png")``."""

    type: ClassVar[str] = "image"
    data: str = attrs.field(repr=lambda data: f"<{len(data)} base64 characters>")
    media_type: str


@attrs.frozen
class ToolCall:
    """A model's wish to run a tool; ``arguments`` is the JSON text as the model wrote it."""

    type: ClassVar[str] = "tool_call"
    id: str
    name: str
    arguments: str = "{}"

    @classmethod
    def of(cls, name: str, /, id: str = "", **arguments: Any) -> ToolCall:
        """Build a call from plain values.

        >>> ToolCall.of("read_file", path="a.txt").arguments
        '{"path": "a.txt"}'
        """
        return cls(id, name, json.dumps(arguments))


UserContent: TypeAlias = Text | Image
AssistantContent: TypeAlias = Text | Thinking | ToolCall


def text_of(content: Iterable[object]) -> str:
    """The text blocks of ``content``, joined."""
    return "".join(block.text for block in content if type(block) is Text)


@attrs.frozen
class Usage:
    """Tokens, and money where a price is known. ``cost`` is in US dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost: float = 0.0

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if other is NO_USAGE:
            return self
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.cost + other.cost,
        )


NO_USAGE = Usage()


@attrs.frozen
class UserMessage:
    """What a person, or a program in their place, said."""

    role: ClassVar[Literal["user"]] = "user"
    content: tuple[UserContent, ...]

    @property
    def text(self) -> str:
        return text_of(self.content)


@attrs.frozen
class AssistantMessage:
    """A model's reply: one turn. ``stop_reason`` explains; only the calls in ``content`` decide what happens next."""

    role: ClassVar[Literal["assistant"]] = "assistant"
    content: tuple[AssistantContent, ...]
    stop_reason: StopReason = "stop"
    usage: Usage = NO_USAGE
    model: str = ""

    @property
    def text(self) -> str:
        return text_of(self.content)

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple([block for block in self.content if type(block) is ToolCall])


@attrs.frozen
class ToolResult:
    """The one answer to one call, addressed to the model; ``is_error`` marks what it should react to."""

    role: ClassVar[Literal["tool"]] = "tool"
    call_id: str
    name: str
    content: tuple[UserContent, ...]
    is_error: bool = False

    @property
    def text(self) -> str:
        return text_of(self.content)


Message: TypeAlias = UserMessage | AssistantMessage | ToolResult

Input: TypeAlias = str | UserMessage | Sequence[UserContent]
"""What may stand for a user's message: words, blocks or the message itself."""


def user_message(said: Input) -> UserMessage:
    """Make a user's message of ``said``.

    >>> user_message("hello")
    UserMessage(content=(Text(text='hello'),))
    """
    if isinstance(said, UserMessage):
        return said
    if isinstance(said, str):
        return UserMessage((Text(said),))
    return UserMessage(tuple(said))


def error_result(call: ToolCall, text: str) -> ToolResult:
    """The answer to a call that failed: a text that the model can act on."""
    return ToolResult(call.id, call.name, (Text(text),), True)
