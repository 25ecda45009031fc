"""The chunks of a streamed chat completion, fed to a draft.

Lenient in what it takes: null deltas, chunks without choices, several choices (the first counts), arguments as an
object, both names of reasoning, a whole completion where a stream was asked for. Strict in one thing: a stream that
does not say that it has ended, by a finish reason or by ``[DONE]``, has not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from edgewise.adapters.models.openai.failures import cut_off, failure_in_stream
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import ModelError
from edgewise.statemachine.messages import AssistantMessage, StopReason, Usage

_STOP_REASONS: Mapping[str, StopReason] = {
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "max_tokens": "length",
    "eos": "stop",
    "end_turn": "stop",
}
IMAGE_NOTE = "[The model sent an image here, which is not kept.]"


class Reading:
    """Reads one reply into ``draft``. ``names``: the tools' own names by the names that the wire has for them."""

    __slots__ = ("_choice", "_draft", "_finish", "_names", "_noted", "_provider", "_refused", "done")

    def __init__(self, draft: Draft, names: Mapping[str, str], provider: str) -> None:
        self._draft = draft
        self._names = names
        self._provider = provider
        self._choice: int | None = None
        self._finish: str | None = None
        self._refused = False
        self._noted = False
        self.done = False
        """Whether ``[DONE]`` was read."""

    @property
    def complete(self) -> bool:
        """Whether the server said that the reply has ended."""
        return self.done or self._finish is not None

    def event(self, data: str) -> None:
        """Take the data of one event. Raises ModelError when it is an error, or broken."""
        data = data.strip()
        if data.startswith("[DONE]"):
            self.done = True
        elif data:
            self.chunk(data)

    def chunk(self, text: str | bytes) -> None:
        """Take a chunk, or a whole completion, as JSON text."""
        try:
            chunk = json.loads(text)
        except ValueError as error:
            raise ModelError(cut_off(f"an event holds broken JSON ({error})", self._provider)) from error
        if not isinstance(chunk, dict):
            return
        if problem := chunk.get("error") or (chunk if chunk.get("object") == "error" else None):
            raise ModelError(failure_in_stream(problem, self._provider))
        if isinstance(usage := chunk.get("usage"), dict):
            self._draft.usage = _usage(usage)
        for choice in chunk.get("choices") or ():
            if isinstance(choice, dict):
                self._take(choice)

    def _take(self, choice: dict[str, Any]) -> None:
        index = choice.get("index") or 0
        if self._choice is None:
            self._choice = index
        if index != self._choice:
            return
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._delta(delta)
        if finish := choice.get("finish_reason"):
            if finish == "error":
                problem = choice.get("error") or "the server ended the reply with an error"
                raise ModelError(failure_in_stream(problem, self._provider))
            self._finish = str(finish)

    def _delta(self, delta: dict[str, Any]) -> None:
        draft = self._draft
        if thought := _text(delta.get("reasoning_content") or delta.get("reasoning")):
            draft.thinking(thought)
        if text := _text(delta.get("content")):
            draft.text(text)
        if refusal := _text(delta.get("refusal")):
            self._refused = True
            draft.text(refusal)
        if delta.get("images") and not self._noted:
            self._noted = True
            draft.text(IMAGE_NOTE)
        calls = delta.get("tool_calls") or ()
        if isinstance(older := delta.get("function_call"), dict):
            calls = [{"function": older}]
        for call in calls:
            if isinstance(call, dict):
                self._call(call)

    def _call(self, call: dict[str, Any]) -> None:
        function = call.get("function")
        if not isinstance(function, dict):
            function = {}
        index, name, arguments = call.get("index"), function.get("name") or "", function.get("arguments")
        if not isinstance(arguments, str):
            arguments = "" if arguments is None else json.dumps(arguments)
        self._draft.call(
            index if isinstance(index, int) else None,
            str(call.get("id") or ""),
            self._names.get(name, name),
            arguments,
        )

    def finish(self) -> AssistantMessage:
        """The reply. Raises ModelError when the server never said that it was one."""
        if not self.complete:
            raise ModelError(cut_off("the stream ended without its final event", self._provider))
        if self._refused:
            return self._draft.finish("refusal")
        if self._finish is None:
            reply = self._draft.finish()
            return self._draft.finish("tool_use") if reply.tool_calls else reply
        return self._draft.finish(_STOP_REASONS.get(self._finish, self._finish))


def _text(content: object) -> str:
    """Text, however it is wrapped: some servers send it in parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return ""


def _usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    if not isinstance(details, dict):
        details = {}
    return Usage(
        input_tokens=_count(usage.get("prompt_tokens")),
        output_tokens=_count(usage.get("completion_tokens")),
        cache_read_tokens=_count(details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")),
        cache_write_tokens=_count(details.get("cache_write_tokens")),
    )


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
