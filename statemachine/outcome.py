"""How a run ended: its state, what it said and used, and, unless it is done, why and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from edgewise.statemachine.errors import EdgewiseError, Failure
from edgewise.statemachine.messages import AssistantMessage, Message, ToolResult, Usage, UserMessage
from edgewise.statemachine.snapshot import Snapshot, State

_EXCERPT = 200


def last_action(messages: Sequence[Message]) -> str:
    """What was done last since somebody spoke: a tool call with its outcome, or a reply. Empty when nothing was."""
    result: ToolResult | None = None
    for message in reversed(messages):
        if isinstance(message, ToolResult):
            result = result or message
        elif isinstance(message, AssistantMessage):
            if calls := message.tool_calls:
                call = calls[-1]
                how = "was not answered" if result is None else "failed" if result.is_error else "succeeded"
                more = f" (the last of {len(calls)} calls)" if len(calls) > 1 else ""
                return f"{call.name}({_shortened(call.arguments)}), which {how}{more}"
            if message.text.strip():
                return f'the reply "{_shortened(message.text.strip())}"'
        else:
            break
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + "..."


@attrs.frozen
class Outcome:
    """The end of a run. ``snapshot`` has everything; the properties are its parts that most people want."""

    run_id: str
    snapshot: Snapshot = attrs.field(repr=False)

    @property
    def state(self) -> State:
        """The final state: done, aborted, limit_exceeded or failed."""
        return self.snapshot.state

    @property
    def text(self) -> str:
        """The words of the reply to what was said last; empty when the run ended before there was one."""
        for message in reversed(self.snapshot.history):
            if isinstance(message, AssistantMessage):
                return message.text
            if isinstance(message, UserMessage):
                break
        return ""

    @property
    def messages(self) -> Sequence[Message]:
        """The whole conversation, in order."""
        return self.snapshot.history

    @property
    def usage(self) -> Usage:
        """What this run used."""
        return self.snapshot.usage

    @property
    def turns(self) -> int:
        """How many turns this run had, the one that it ended in included."""
        return self.snapshot.turn

    @property
    def reason(self) -> str:
        """Why the run ended; empty when it simply had nothing left to do."""
        return self.snapshot.ending.reason if self.snapshot.ending is not None else ""

    @property
    def failure(self) -> Failure | None:
        """The model's failure, when that ended the run."""
        return self.snapshot.ending.failure if self.snapshot.ending is not None else None

    @property
    def explanation(self) -> str:
        """A few words for a person: how it ended, what was done last, how to go on."""
        state = self.state.value
        why = f": {self.reason}" if self.reason else ""
        if state == "done":
            return f"Done{why}."
        action = last_action(self.messages)
        last = f"The last action was {action}." if action else "The model had not replied yet."
        if state == "limit_exceeded":
            return (
                f"The task did not converge within its limit{why}. {last} Nothing is lost: continue from here with "
                "session.continue_() or `edgewise resume FILE`, with a new allowance, or narrow the task."
            )
        if state == "aborted":
            return f"The run was aborted{why}. {last} Every call has its result; the conversation can be continued."
        return f"The run failed{why}. {last} Nothing that was said is lost; mend the cause, then continue."

    def raise_for_state(self) -> Outcome:
        """Give this outcome when the run is done; else raise RunAborted, LimitExceeded or RunFailed, which carry it."""
        state = self.state.value
        if state == "aborted":
            raise RunAborted(self)
        if state == "limit_exceeded":
            raise LimitExceeded(self)
        if state == "failed":
            raise RunFailed(self)
        return self


class RunEnded(EdgewiseError):
    """A run did not end in ``done``; ``outcome`` has its messages and the way to continue."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        super().__init__(outcome.explanation)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.outcome,)


class RunAborted(RunEnded):
    """The run was aborted."""


class LimitExceeded(RunEnded):
    """The should-continue hook set a limit and the run reached it."""


class RunFailed(RunEnded):
    """The run met something that more reasoning cannot fix."""
