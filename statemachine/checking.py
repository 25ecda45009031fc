"""Explores everything that a run can do within a declared scope, and holds the invariants to each edge of it.

:func:`explore` goes breadth first from the start: it answers each effect that was ordered with every answer that the
driver could give, and lets people abort, speak and decide at any time. States that differ only in what the machine never
looks at (texts, ids, closed turns that were checked) are merged, so the scope stays small. A broken rule raises
:class:`CounterExample`, whose text is the shortest way there.

"Proved" means: within the scope. A run of three turns, or a reply of four calls, is outside of ``Scope(calls=3, turns=2)``.

>>> explore(Scope(calls=1, turns=1, inputs=0)).untaken == ()
False
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from edgewise.statemachine.errors import Failure, IllegalSignal
from edgewise.statemachine.invariants import RULES, Rule, check_history, check_snapshot, check_step
from edgewise.statemachine.machine import Step, advance, outstanding, start
from edgewise.statemachine.messages import AssistantMessage, Text, ToolCall, ToolResult, UserMessage, user_message
from edgewise.statemachine.signals import (
    AbortRequested,
    CallDecided,
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    HookFailed,
    InputQueued,
    ModelFailed,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.snapshot import Policy, Slot, Snapshot, State
from edgewise.statemachine.table import ROWS, Row
from edgewise.statemachine.verdicts import Continue, Finish, Limit

__all__ = ["CounterExample", "Exploration", "Scope", "check_history", "check_snapshot", "check_step", "explore"]

Advance: TypeAlias = Callable[[Snapshot, Signal], Step]

PLAIN, ALONE = "tool", "alone"
"""The tools of the explored world; calls of the second run alone."""


@attrs.frozen
class Scope:
    """What may happen in the explored runs."""

    calls: int = 2
    """How many calls a reply may hold."""
    turns: int = 2
    """How many turns a run may have; a closing word comes on top."""
    inputs: int = 1
    """How often somebody may say something while the run is at work."""
    held: bool = True
    """Calls may be held for a person, who approves or refuses."""
    stops: bool = True
    """A refusal may end the run."""
    returns: bool = True
    """An after_call hook looks at results."""
    exclusive: bool = True
    """Calls may be to a tool that runs alone."""
    aborts: bool = True
    model_failures: bool = True
    hook_failures: bool = True
    limits: bool = True
    restarts: bool = True
    """The process may die and the run be taken up; a call that ran then starts once more."""
    interrupted: bool = True
    """A run may begin with the unanswered calls of its history."""
    policy: Policy = Policy(max_parallel=2, exclusive=frozenset({ALONE}), model_attempts=2)


class CounterExample(AssertionError):
    """A rule is broken; the text tells the shortest way there, signal by signal."""

    def __init__(self, faults: Sequence[str], story: Sequence[str]) -> None:
        self.faults = tuple(faults)
        self.story = tuple(story)
        super().__init__("\n".join([*self.faults, "", "the shortest way there:", *self.story]))


@attrs.frozen
class Exploration:
    """What was explored."""

    states: int
    edges: int
    depth: int
    """How many signals the longest of the shortest ways to a state has."""
    seconds: float
    taken: Mapping[Row, int] = attrs.field(repr=False)
    """How many edges each row gave; rows never taken are missing."""
    finals: Mapping[State, int] = attrs.field(repr=False)
    """How many states of each final kind there are."""

    @property
    def untaken(self) -> tuple[Row, ...]:
        """The rows of the table that no explored run takes."""
        return tuple(row for row in ROWS if row not in self.taken)

    def __str__(self) -> str:
        return f"{self.states:,} states, {self.edges:,} edges, depth {self.depth}, {self.seconds:.1f} s"


# ---- what can happen


def _results() -> tuple[list[ToolResult], list[ToolResult]]:
    ok = [ToolResult("", "", (Text(f"result {i}"),)) for i in range(16)]
    return ok, [attrs.evolve(result, is_error=True) for result in ok]


def _replies(scope: Scope) -> Iterator[ModelReplied]:
    yield ModelReplied(AssistantMessage((Text("answer"),)))
    names = (PLAIN, ALONE) if scope.exclusive else (PLAIN,)
    for count in range(1, scope.calls + 1):
        for wanted in itertools.product(names, repeat=count):
            # Their ids are all the same, and empty: the machine may not need them.
            content = tuple([ToolCall("", name) for name in wanted])
            yield ModelReplied(AssistantMessage(content, "tool_use" if count > 1 else "stop"))
    yield ModelReplied(AssistantMessage((ToolCall("", PLAIN),) * scope.calls, "length"))


_PARTIAL = AssistantMessage((Text("half an ans"), ToolCall("", PLAIN, '{"pa')), "error")
_CUT_SHORT = (
    ModelFailed(Failure("aborted", "the request was cancelled")),
    ModelFailed(Failure("aborted", "the request was cancelled"), attrs.evolve(_PARTIAL, stop_reason="aborted")),
    ModelReplied(AssistantMessage((ToolCall("", PLAIN),))),
    ModelReplied(AssistantMessage((Text("answer"),))),
)
_FAILURES = (
    ModelFailed(Failure("auth", "no such key")),
    ModelFailed(Failure("network", "broke off", retryable=True), _PARTIAL, delay=1.0),
    ModelFailed(Failure("context_overflow", "too long"), can_compact=True),
)
_ABORT = AbortRequested("enough")


@attrs.frozen
class _World:
    """The signals of a scope, made once."""

    scope: Scope
    replies: tuple[ModelReplied, ...] = attrs.field(init=False)
    verdicts: tuple[TurnJudged, ...] = attrs.field(init=False)
    settled: tuple[tuple[CallSettled, ...], ...] = attrs.field(init=False)

    @replies.default
    def _all_replies(self) -> tuple[ModelReplied, ...]:
        return tuple(_replies(self.scope))

    @verdicts.default
    def _all_verdicts(self) -> tuple[TurnJudged, ...]:
        limits = (Limit("enough turns"), Limit("enough turns", wrap_up=True)) if self.scope.limits else ()
        return tuple(TurnJudged(verdict) for verdict in (Continue(), Finish("good enough"), *limits))

    @settled.default
    def _all_results(self) -> tuple[tuple[CallSettled, ...], ...]:
        return ()
