"""Shows a run to a person: the model's words on stdout, all else (calls, results, edges, notes) on stderr.

So ``edgewise run "..." > answer.txt`` keeps the answer and nothing else; in a terminal both appear in their order.
"""

from __future__ import annotations

import sys
from typing import Literal, TextIO

from rich.console import Console
from rich.text import Text

from edgewise.adapters.cli.edges import EdgeLines
from edgewise.adapters.cli.words import call_words, one_line, plain, result_lines, totals
from edgewise.statemachine.events import (
    CallBegan,
    CallEnded,
    CallUpdated,
    Edge,
    Event,
    EventsDropped,
    MessageDelta,
    MessageEnded,
    MessageFailed,
    MessageStarted,
)
from edgewise.statemachine.messages import ToolCall
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.snapshot import State

Where = Literal["", "out", "err"]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program here; a run must be ended first."""
        raise BrokenPipeError


def error_console() -> Console:
    """Where everything goes that is not the answer. Lines are not wrapped: the terminal does that."""
    return _Console(file=sys.stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


class Screen:
    """Shows one event after another. Not for two threads at once."""

    def __init__(self, edges: EdgeLines, out: TextIO | None = None, err: Console | None = None) -> None:
        self._out = out or sys.stdout
        self._err = err or error_console()
        self._edges = edges
        self._unfinished: Where = ""
        """Where a line stands that has no end yet."""
        self._words = 0
        """How many characters of the reply under way were shown."""
        self._calls = 0
        """How many calls this turn has."""
        self._begun: set[int] = set()

    def show(self, event: Event) -> None:
        """Show one event. Raises BrokenPipeError when nobody reads stdout any more."""
        if isinstance(event, MessageDelta):
            self._delta(event)
        elif isinstance(event, Edge):
            self._edge_lines(event.seq)
            if event.target is State.ABORTING is not event.source:
                self._line("aborting: what runs may clean up; Ctrl-C once more stops at once", "yellow")
        elif isinstance(event, MessageStarted):
            self._words = 0
        elif isinstance(event, MessageEnded):
            self._message_ended(event)
        elif isinstance(event, MessageFailed):
            self._message_failed(event)
        elif isinstance(event, CallBegan):
            self._call(event.slot, event.call)
        elif isinstance(event, CallUpdated):
            self._line(f"  … {self._which(event.slot)}{event.call.name}: {one_line(str(event.progress))}", "dim")
        elif isinstance(event, CallEnded):
            self._call_ended(event)
        elif isinstance(event, EventsDropped):
            self.note(f"({event.count:,} events are not shown: the output was too slow for them)")

    def note(self, text: str, style: str = "dim") -> None:
        """Say something about the run that is not of the run."""
        self._line(text, style)

    def finish(self, outcome: Outcome, seconds: float, hint: str) -> None:
        """Say how it went."""
        self._edge_lines()
        good = outcome.state == "done"
        self._line(f"{outcome.state}: {totals(outcome, seconds)}", "green" if good else "bold yellow")
        if not good or outcome.reason:
            self._line(outcome.explanation, "yellow" if not good else "")
        if hint:
            self._line(hint, "dim")

    # ---- the parts

    def _delta(self, event: MessageDelta) -> None:
        if event.kind == "arguments":
            return
        text = plain(event.text)
        if event.kind == "thinking":
            self._stream("err")
            self._err.print(Text(text, "dim italic"), end="")
        else:
            self._stream("out")
            self._out.write(text)
            self._out.flush()
            self._words += len(text)
        if text.endswith("\n"):
            self._unfinished = ""

    def _message_ended(self, event: MessageEnded) -> None:
        message = event.message
        if not self._words and message.text.strip():  # it did not stream
            self._stream("out")
            self._out.write(plain(message.text))
        self.end_line()
        if message.stop_reason == "aborted":
            self._line("(the reply was broken off here)", "dim")
        elif message.stop_reason == "length":
            self._line("(the reply was cut by the model's output limit)", "yellow")
        self._words = 0
        self._calls = len(message.tool_calls)
        self._begun = set()

    def _message_failed(self, event: MessageFailed) -> None:
        if not event.retried:
            return  # the last line of all says why
        void = "; what was shown of it is void" if self._words else ""
        wait = f" in {event.delay:.1f} s" if event.delay >= 0.05 else ""
        self._line(f"! no usable reply ({one_line(event.reason)}){void}; asking again{wait}", "yellow")
        self._words = 0

    def _call(self, slot: int, call: ToolCall) -> None:
        self._begun.add(slot)
        self._line(f"→ {self._which(slot)}{call_words(call)}", "cyan")

    def _call_ended(self, event: CallEnded) -> None:
        if event.slot not in self._begun:  # refused before it began: unknown, invalid, not permitted, cut off
            self._call(event.slot, event.call)
        mark, style = ("✗", "red") if event.result.is_error else ("←", "")
        head = f"{mark} {self._which(event.slot)}{one_line(event.call.name, 80)}: "
        lines = result_lines(event.result)
        if len(lines) == 1:
            self._line(head + lines[0], style)
        else:
            self._line("\n".join([head.rstrip(), *(f"    {line}" for line in lines)]), style)

    def _which(self, slot: int) -> str:
        """Calls of one turn run side by side, so their results need to say whose they are."""
        return f"[{slot + 1}] " if self._calls > 1 else ""

    def _edge_lines(self, seq: float = float("inf")) -> None:
        for line in self._edges.take(seq):
            self._line(plain(line), "dim")

    # ---- two streams, one terminal

    def _stream(self, where: Where) -> None:
        if self._unfinished != where:
            self.end_line()
        self._unfinished = where

    def end_line(self) -> None:
        """End a line that was begun, before somebody else writes."""
        if self._unfinished == "out":
            self._out.write("\n")
            self._out.flush()
        elif self._unfinished == "err":
            self._err.print()
        self._unfinished = ""

    def _line(self, text: str, style: str = "") -> None:
        self.end_line()
        self._err.print(Text(text, style))
