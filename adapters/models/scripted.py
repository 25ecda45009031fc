"""A model that says what it is told to: for tests of agents, with streaming, delays and failures.

>>> from edgewise import Agent
>>> agent = Agent(ScriptedModel([says("Hello.")]))
>>> agent.run_sync("Hi").text
'Hello.'
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeAlias

import attrs
import trio

from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import Failure, FailureKind, MisuseError, ModelError
from edgewise.statemachine.messages import (
    AssistantContent,
    AssistantMessage,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
)
from edgewise.statemachine.ports import ModelRequest


@attrs.frozen
class Scripted:
    """A reply and how it comes.

    ``delay``: seconds before it begins. ``pace``: seconds between pieces when it streams. ``failure``: raised in
    place of the end of the message, after ``content`` has streamed.
    """

    content: tuple[AssistantContent, ...] = ()
    stop_reason: StopReason | None = None
    usage: Usage = Usage()
    delay: float = 0.0
    stream: bool = False
    pace: float = 0.0
    failure: Failure | None = None

    def message(self, model: str = "") -> AssistantMessage:
        stop = self.stop_reason
        if stop is None:
            stop = "tool_use" if any(isinstance(block, ToolCall) for block in self.content) else "stop"
        return AssistantMessage(self.content, stop, self.usage, model)


def says(
    text: str,
    *,
    thinking: str = "",
    stop_reason: StopReason | None = None,
    usage: Usage = Usage(),  # noqa: B008
    delay: float = 0.0,
    stream: bool = False,
    pace: float = 0.0,
) -> Scripted:
    """A reply in words."""
    content: tuple[AssistantContent, ...] = (Text(text),) if text else ()
    if thinking:
        content = (Thinking(thinking), *content)
    return Scripted(content, stop_reason, usage, delay, stream, pace)


def calls(
    *wanted: str | ToolCall,
    text: str = "",
    stop_reason: StopReason | None = None,
    usage: Usage = Usage(),  # noqa: B008
    delay: float = 0.0,
    stream: bool = False,
    pace: float = 0.0,
) -> Scripted:
    """A reply that calls tools: names for calls without arguments, or ``ToolCall.of("read_file", path="a.txt")``.

    Calls without an id get one of their own.
    """
    content: list[AssistantContent] = [Text(text)] if text else []
    for n, call in enumerate(wanted):
        call = ToolCall("", call) if isinstance(call, str) else call
        content.append(call if call.id else attrs.evolve(call, id=f"call_{n}"))
    return Scripted(tuple(content), stop_reason, usage, delay, stream, pace)


def fails(
    kind: FailureKind = "network",
    message: str = "the connection was lost",
    *,
    retryable: bool | None = None,
    retry_after: float | None = None,
    after: str = "",
    delay: float = 0.0,
) -> Scripted:
    """A model call that fails, perhaps after some words have come."""
    if retryable is None:
        retryable = kind in ("network", "timeout", "rate_limited", "overloaded", "protocol", "empty_reply")
    failure = Failure(kind, message, retryable, retry_after, provider="scripted")
    content = (Text(after),) if after else ()
    return Scripted(content, delay=delay, stream=bool(after), failure=failure)


Reply: TypeAlias = Scripted | AssistantMessage | str
Script: TypeAlias = Iterable[Reply] | Callable[[ModelRequest], Reply | Awaitable[Reply]]


class ScriptedModel:
    """Gives the replies of a list in turn, or those of a function of the request. Keeps the requests that it got."""

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        """The requests so far, each with the messages as they were then."""
        self._function = script if callable(script) else None
        self._replies: Iterator[Reply] = iter(()) if callable(script) else iter(script)

    async def reply(self, request: ModelRequest, draft: Draft) -> AssistantMessage:
        self.requests.append(request)
        reply = await self._next(request)
        if isinstance(reply, AssistantMessage):
            await trio.lowlevel.checkpoint()
            return reply
        if isinstance(reply, str):
            reply = says(reply)
        if reply.delay:
            await trio.sleep(reply.delay)
        else:
            await trio.lowlevel.checkpoint()
        if reply.stream:
            await _stream(reply, draft)
        if reply.failure is not None:
            raise ModelError(reply.failure)
        return reply.message(self.name)

    async def _next(self, request: ModelRequest) -> Reply:
        if self._function is not None:
            reply = self._function(request)
            return await reply if inspect.isawaitable(reply) else reply
        try:
            return next(self._replies)
        except StopIteration:
            number = len(self.requests)
            raise MisuseError(f"the script has {number - 1} replies, and this is request {number}") from None


async def _stream(reply: Scripted, draft: Draft) -> None:
    """Send the content in pieces of a word, or of a few characters of arguments."""
    for number, block in enumerate(reply.content):
        if isinstance(block, ToolCall):
            draft.call(number, block.id, block.name)
            pieces = re.findall(r".{1,8}", block.arguments, re.DOTALL)
        else:
            pieces = re.findall(r"\s*\S+|\s+$", block.text)
        for piece in pieces:
            if isinstance(block, ToolCall):
                draft.call(number, arguments=piece)
            elif isinstance(block, Thinking):
                draft.thinking(piece)
            else:
                draft.text(piece)
            if reply.pace:
                await trio.sleep(reply.pace)
            else:
                await trio.lowlevel.checkpoint()
