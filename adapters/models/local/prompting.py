"""What the embedded model reads: the tools, how to use them, a few examples, and the conversation so far.

The model is small, so the words here were chosen by trying: with the examples it calls a tool before it answers, leaves
out arguments that nobody named, and tries again after an error that names what would be right. All of it comes before
the conversation and stays the same from turn to turn, so it is computed once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from edgewise.adapters.models.local.grammar import ANSWER
from edgewise.statemachine.arguments import mended, read_arguments
from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.messages import AssistantMessage, Image, Message, Text, ToolCall, ToolResult, UserMessage
from edgewise.statemachine.ports import ToolSpec

DEFAULT_INSTRUCTIONS = "You are a helpful assistant."
_HOW = (
    'Reply with one line of JSON: {"tool": NAME, "arguments": {...}}. Use a tool whenever it can help; never guess '
    "what a tool can tell you. When you have what you need, or no tool can help, use the tool answer."
)
_SPECIAL = re.compile(r"<(?=\|\w+\|>|/?s>|(?:start|end)_of_turn>)|\[(?=/?INST\])")


@attrs.frozen
class Tool:
    """A tool as this model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def told(tools: Iterable[ToolSpec], lean: bool) -> tuple[Tool, ...]:
    """The tools as the model gets them; ``lean`` leaves out optional numbers and switches, which confuse it."""
    shown = _leaner if lean else dict
    return tuple([Tool(tool.name, tool.description, shown(tool.parameters)) for tool in tools])


def _leaner(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return parameters
    required = parameters.get("required") or ()
    kept = {name: value for name, value in properties.items() if name in required or not _knob(value)}
    return {**parameters, "properties": kept} if kept else parameters


def _knob(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in ("integer", "number", "boolean")


def chat(messages: Sequence[Message], instructions: str, tools: Sequence[Tool]) -> tuple[list[dict[str, str]], bool]:
    """The messages for a chat template, and whether the reply is to be a step in JSON (else it is plain text)."""
    in_steps = bool(tools) or any(isinstance(message, AssistantMessage) and message.tool_calls for message in messages)
    system = instructions.strip() or DEFAULT_INSTRUCTIONS
    said: list[tuple[str, str]] = []
    if in_steps:
        system = f"{system}\n\nTools:\n{_listing(tools)}\n\n{_HOW}"
        said += _EXAMPLES if tools else ()
    said += _conversation(messages, in_steps)
    turns: list[dict[str, str]] = [{"role": "system", "content": _plain(system)}]
    for role, content in said:
        content = _plain(content)
        if turns[-1]["role"] == role:  # many templates want the roles to alternate
            turns[-1]["content"] += f"\n\n{content}"
        else:
            turns.append({"role": role, "content": content})
    return turns, in_steps


def calls_made(messages: Sequence[Message]) -> list[ToolCall]:
    """The calls since a person spoke last."""
    made: list[ToolCall] = []
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if isinstance(message, UserMessage):
            break
        if isinstance(message, AssistantMessage):
            made[:0] = message.tool_calls
    return made


def _listing(tools: Sequence[Tool]) -> str:
    lines = [f"- {tool.name}({_signature(tool.parameters)}) - {' '.join(tool.description.split())}" for tool in tools]
    return "\n".join([*lines, f"- {ANSWER}(text: string) - Tell the user your answer, in words."])


def _signature(parameters: Mapping[str, Any]) -> str:
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return ""
    required = parameters.get("required") or ()
    return ", ".join(f"{name}{'' if name in required else '?'}: {_kind(schema)}" for name, schema in properties.items())


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(chosen := schema.get("enum"), Sequence):
        return "|".join(json.dumps(value, ensure_ascii=False) for value in chosen)
    if schema.get("type") == "array":
        return f"{_kind(schema.get('items'))}[]"
    if schema.get("type") == "object" and schema.get("properties"):
        return f"{{{_signature(schema)}}}"
    if isinstance(options := schema.get("anyOf", schema.get("oneOf")), Sequence):
        return "|".join(dict.fromkeys(map(_kind, options)))
    kind = schema.get("type", "any")
    return kind if isinstance(kind, str) else "|".join(map(str, kind))


def _conversation(messages: Sequence[Message], in_steps: bool) -> Iterable[tuple[str, str]]:
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if isinstance(message, UserMessage):
            if text := _text(message.content):
                yield "user", text
        elif isinstance(message, AssistantMessage):
            results: list[ToolResult] = []
            while at < len(messages) and isinstance(result := messages[at], ToolResult):
                results.append(result)
                at += 1
            calls = message.tool_calls
            # A model that makes one call at a time is shown many as one after another. Results are in order, one each.
            for call, result in zip(calls, results, strict=False):
                yield "assistant", _step(call.name, _arguments(call))
                yield "user", _returned(result)
            if not calls and message.stop_reason not in ("aborted", "error") and (text := _text(message.content)):
                yield "assistant", _step(ANSWER, {"text": text}) if in_steps else text


def _step(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"tool": name, "arguments": arguments}, ensure_ascii=False)


def _arguments(call: ToolCall) -> Mapping[str, Any]:
    try:
        return read_arguments(call)
    except InvalidArguments:
        return {}


def _returned(result: ToolResult) -> str:
    text = _text(result.content) or "(nothing)"
    return f"{result.name} failed: {text}" if result.is_error else f"{result.name} returned:\n{text}"


def _text(content: Iterable[object]) -> str:
    parts = []
    for block in content:
        if isinstance(block, Text) and block.text.strip():
            parts.append(block.text)
        elif isinstance(block, Image):
            parts.append(f"[a picture ({block.media_type}), which you cannot see]")
    return "\n".join(parts)


def _plain(text: str) -> str:
    """Text that a tokenizer takes for text: marks that begin and end turns are broken, so that none can be forged.

    >>> _plain("<|im_end|>")
    '< |im_end|>'
    """
    return _SPECIAL.sub(lambda mark: f"{mark[0]} ", mended(text))


_EXAMPLES: tuple[tuple[str, str], ...] = (
    ("user", "Good morning!"),
    ("assistant", _step(ANSWER, {"text": "Good morning! What can I do for you?"})),
    ("user", "Which rooms are there in the house?"),
    ("assistant", _step("list_rooms", {})),
    ("user", "list_rooms returned:\nhall\nkitchen"),
    ("assistant", _step(ANSWER, {"text": "The rooms are hall and kitchen."})),
    ("user", "Who wrote Hamlet?"),
    ("assistant", _step(ANSWER, {"text": "William Shakespeare wrote Hamlet."})),
    ("user", "What is in the kitchen?"),
    ("assistant", _step("look_into", {"room": "kitchin"})),
    ("user", "look_into failed: No room kitchin. Did you mean kitchen?"),
    ("assistant", _step("look_into", {"room": "kitchen"})),
    ("user", "look_into returned:\na table and 3 chairs"),
    ("assistant", _step(ANSWER, {"text": "In the kitchen are a table and 3 chairs."})),
)
