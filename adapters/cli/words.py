"""Calls, results and outcomes in the words that a person reads in a terminal."""

from __future__ import annotations

import re
import shutil
import sys

from edgewise.statemachine.messages import AssistantMessage, Image, Message, ToolCall, ToolResult, UserMessage
from edgewise.statemachine.outcome import Outcome

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINES = 8
_WIDTH = 160


def plain(text: str) -> str:
    """``text`` without what would drive the terminal: models and files may hold anything.

    >>> plain("a\\x1b[31mb")
    'a\\ufffd[31mb'
    """
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def program() -> str:
    """How this command is called from here: by its name, or by its path where the name alone would not find it."""
    return "edgewise" if shutil.which("edgewise") or "edgewise" not in sys.argv[0] else sys.argv[0]


def count(number: int, thing: str) -> str:
    """A number of things.

    >>> count(1, "turn"), count(1200, "token")
    ('1 turn', '1,200 tokens')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def one_line(text: str, width: int = _WIDTH) -> str:
    """``text`` on one line of at most ``width`` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def some_lines(text: str, most: int = _LINES) -> list[str]:
    """The first lines of ``text``, each shortened, and how many more there are."""
    lines = plain(text).strip("\n").split("\n")
    shown = [line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in lines[:most]]
    if len(lines) > most + 1:
        return [*shown, f"… {count(len(lines) - most, 'more line')}"]
    return [*shown, *(one_line(line) for line in lines[most:])]


def call_words(call: ToolCall) -> str:
    """A call as one would write it: ``read_file({"path": "a.txt"})``."""
    return f"{one_line(call.name, 80) or '(no name)'}({one_line(call.arguments)})"


def result_lines(result: ToolResult) -> list[str]:
    """A result's text, shortened, with a word for each picture."""
    pictures = [f"[{block.media_type}]" for block in result.content if isinstance(block, Image)]
    text = result.text
    return [*(some_lines(text) if text.strip() else []), *pictures] or ["(nothing)"]


def totals(outcome: Outcome, seconds: float) -> str:
    """What a run took, on one line."""
    usage = outcome.usage
    parts = [count(outcome.turns, "turn"), count(outcome.snapshot.calls, "call")]
    if usage.total_tokens:
        parts.append(f"{usage.input_tokens:,} + {usage.output_tokens:,} tokens (in + out)")
    if usage.cost:
        parts.append(f"${usage.cost:.4f}")
    return ", ".join([*parts, f"{seconds:.1f} s"])


def message_lines(message: Message) -> list[str]:
    """A message of a conversation, in lines, each beginning with who speaks."""
    if isinstance(message, UserMessage):
        return [f"> {line}" for line in plain(message.text).split("\n")]
    if isinstance(message, ToolResult):
        first, *rest = result_lines(message)
        mark = "✗" if message.is_error else "←"
        return [f"{mark} {one_line(message.name, 80)}: {first}", *(f"    {line}" for line in rest)]
    return _reply_lines(message)


def _reply_lines(message: AssistantMessage) -> list[str]:
    lines = plain(message.text).strip("\n").split("\n") if message.text.strip() else []
    if message.stop_reason in ("aborted", "error", "length"):
        lines.append(f"(broken off: {message.stop_reason})")
    return [*lines, *(f"→ {call_words(call)}" for call in message.tool_calls)]
