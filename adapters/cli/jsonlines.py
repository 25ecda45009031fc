"""Shows a run to a program: one JSON object a line on stdout, the outcome last.

Each has an ``event``: the event's name in snake case, as in ``message_delta``, with its fields as they are called in
:mod:`edgewise.statemachine.events`. The last one is ``outcome``. Notes and edge lines go to stderr.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import attrs
from rich.console import Console
from rich.text import Text

from edgewise.adapters.cli.edges import EdgeLines
from edgewise.adapters.cli.screen import error_console
from edgewise.statemachine.codec import to_data
from edgewise.statemachine.events import Event, RunFinished
from edgewise.statemachine.messages import AssistantMessage, ToolCall, ToolResult, Usage
from edgewise.statemachine.outcome import Outcome


class JsonLines:
    """Writes one event after another."""

    def __init__(self, edges: EdgeLines, out: TextIO | None = None, err: Console | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or error_console()
        self._edges = edges

    def show(self, event: Event) -> None:
        """Write one event. Raises BrokenPipeError when nobody reads stdout any more."""
        for line in self._edges.take(getattr(event, "seq", 0)):
            self._err.print(Text(line))
        if not isinstance(event, RunFinished):  # the outcome says it all
            self._write(event_data(event))

    def end_line(self) -> None:
        """There are only whole lines here."""

    def note(self, text: str, style: str = "dim") -> None:
        self._err.print(Text(text, style))

    def finish(self, outcome: Outcome, seconds: float, hint: str) -> None:
        """Write the outcome."""
        for line in self._edges.take():
            self._err.print(Text(line))
        self._write({**outcome_data(outcome), "seconds": round(seconds, 3)})

    def _write(self, data: Mapping[str, Any]) -> None:
        self._out.write(json.dumps(data, default=repr) + "\n")
        self._out.flush()


def event_data(event: Event) -> dict[str, Any]:
    """An event as plain data.

    >>> from edgewise.statemachine.events import MessageStarted
    >>> event_data(MessageStarted(1, 2))
    {'event': 'message_started', 'turn': 1, 'attempt': 2}
    """
    fields = {field.name: _plain(getattr(event, field.name)) for field in attrs.fields(type(event))}
    return {"event": _snake(type(event).__name__), **fields}


def outcome_data(outcome: Outcome) -> dict[str, Any]:
    """How a run ended, as plain data; the whole conversation is in the session's file."""
    return {
        "event": "outcome",
        "run_id": outcome.run_id,
        "state": outcome.state.value,
        "text": outcome.text,
        "reason": outcome.reason,
        "explanation": outcome.explanation,
        "turns": outcome.turns,
        "calls": outcome.snapshot.calls,
        "usage": attrs.asdict(outcome.usage),
        "failure": None if outcome.failure is None else attrs.asdict(outcome.failure),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, (AssistantMessage, ToolResult, ToolCall)):
        data = to_data(value)
        del data["v"], data["type"]
        return data
    if isinstance(value, Usage):
        return attrs.asdict(value)
    return value


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
