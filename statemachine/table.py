"""Every legal move of an agent run, in one table.

A run waits in a *state*. Something happens: a *signal*. The first row of that state and signal whose *guard* holds
fires: it leads to its *target* state, and its *move* computes the next snapshot and the *effects*, orders for the
driver. A row without a target is internal: the state stays. What is not a row is refused, and changes nothing.

::

                      ┌────────────────────── go on ───────────────────────┐
                      ▼                                                    │
    start ──▶ awaiting_model ──── no calls ─────────────────────▶ between_turns ──▶ done, limit_exceeded
                 │  │ has calls                                         ▲
                 │  └────────▶ executing_tools ─── all settled ─────────┤
                 │               │        ▲                             │
                 │     only held │        │ approved      last refused  │
                 │               ▼        │                             │
                 │             awaiting_approval ───────────────────────┘
                 │
                 └─ not retryable ──▶ failed          abort, from anywhere ──▶ aborting ──▶ aborted

Three rules shape it. Whether a message holds calls decides the way, never its stop reason. A batch is left only when
each of its calls has its result, so no history ever has a call without one. Leaving for ``aborting`` starts nothing
and waits for what runs.

The table is checked when this module is imported; see :func:`validate`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from edgewise.statemachine import guards as g
from edgewise.statemachine import moves as m
from edgewise.statemachine.errors import TableError
from edgewise.statemachine.guards import Guard, guard_label
from edgewise.statemachine.moves import Move
from edgewise.statemachine.signals import (
    SIGNALS,
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
from edgewise.statemachine.snapshot import State

TABLE_VERSION = 1
"""Counted up when a recorded run could take another way through this table than the one it took."""

INITIAL = State.AWAITING_MODEL


def _label(guard: Guard | None) -> str:
    return guard_label(guard) if guard is not None else ""


@attrs.frozen(eq=False)
class Row:
    """One legal move: ``source`` + ``signal`` [``guard``] -> ``target``, doing ``move``."""

    source: State
    signal: type[Signal]
    guard: Guard | None
    target: State | None
    move: Move
    to: State = attrs.field(init=False, default=attrs.Factory(lambda row: row.target or row.source, takes_self=True))
    """The state afterwards: the target, or the source when the row is internal."""
    label: str = attrs.field(init=False, default=attrs.Factory(lambda row: _label(row.guard), takes_self=True))
    """The guard in words; empty when there is none."""

    def __str__(self) -> str:
        guard = f" [{self.label}]" if self.guard else ""
        return f"{self.source} + {self.signal.__name__}{guard} -> {self.target or '(internal)'}"


AWAITING_MODEL = State.AWAITING_MODEL
EXECUTING_TOOLS = State.EXECUTING_TOOLS
AWAITING_APPROVAL = State.AWAITING_APPROVAL
BETWEEN_TURNS = State.BETWEEN_TURNS
ABORTING = State.ABORTING
DONE = State.DONE
ABORTED = State.ABORTED
LIMIT_EXCEEDED = State.LIMIT_EXCEEDED
FAILED = State.FAILED

# fmt: off
ROWS: tuple[Row, ...] = (
    # source, signal, [guard], target (None: internal), move
    Row(AWAITING_MODEL, ModelReplied, g.closing_word, LIMIT_EXCEEDED, m.take_closing_word),
    Row(AWAITING_MODEL, ModelReplied, g.calls_cut_off, BETWEEN_TURNS, m.answer_cut_off_calls),
    Row(AWAITING_MODEL, ModelReplied, g.calls_made, EXECUTING_TOOLS, m.run_calls),
    Row(AWAITING_MODEL, ModelReplied, g.no_calls, BETWEEN_TURNS, m.take_answer),
    Row(AWAITING_MODEL, ModelFailed, g.can_compact, AWAITING_MODEL, m.compact_and_retry),
    Row(AWAITING_MODEL, ModelFailed, g.may_retry, AWAITING_MODEL, m.retry),
    Row(AWAITING_MODEL, ModelFailed, g.closing_word, LIMIT_EXCEEDED, m.take_closing_word),
    Row(AWAITING_MODEL, ModelFailed, None, FAILED, m.give_up),
    Row(AWAITING_MODEL, AbortRequested, None, ABORTING, m.cancel_request),
    Row(AWAITING_MODEL, HookFailed, None, FAILED, m.hook_failed),
    Row(AWAITING_MODEL, InputQueued, None, None, m.queue_input),

    Row(EXECUTING_TOOLS, CallStarted, g.about_to_run, None, m.mark_running),
    Row(EXECUTING_TOOLS, CallReturned, g.is_running, None, m.note_return),
    Row(EXECUTING_TOOLS, CallHeld, g.held_others_open, None, m.hold),
    Row(EXECUTING_TOOLS, CallHeld, g.held_alone, AWAITING_APPROVAL, m.hold),
    Row(EXECUTING_TOOLS, CallDecided, g.approved, None, m.admit),
    Row(EXECUTING_TOOLS, CallDecided, g.refused_others_open, None, m.settle),
    Row(EXECUTING_TOOLS, CallSettled, g.others_open, None, m.settle),
    Row(EXECUTING_TOOLS, CallSettled, g.all_settled, BETWEEN_TURNS, m.settle_last),
    Row(EXECUTING_TOOLS, CallSettled, g.only_held_left, AWAITING_APPROVAL, m.settle),
    Row(EXECUTING_TOOLS, CallSettled, g.stops_others_run, ABORTING, m.settle_and_stop),
    Row(EXECUTING_TOOLS, CallSettled, g.stops, ABORTED, m.settle_and_stop),
    Row(EXECUTING_TOOLS, AbortRequested, g.calls_running, ABORTING, m.abort),
    Row(EXECUTING_TOOLS, AbortRequested, None, ABORTED, m.abort),
    Row(EXECUTING_TOOLS, HookFailed, g.calls_running, ABORTING, m.hook_failed),
    Row(EXECUTING_TOOLS, HookFailed, None, FAILED, m.hook_failed),
    Row(EXECUTING_TOOLS, InputQueued, None, None, m.queue_input),

    Row(AWAITING_APPROVAL, CallDecided, g.approved, EXECUTING_TOOLS, m.admit),
    Row(AWAITING_APPROVAL, CallDecided, g.refused_last, BETWEEN_TURNS, m.settle_last),
    Row(AWAITING_APPROVAL, CallDecided, g.refused_others_open, None, m.settle),
    Row(AWAITING_APPROVAL, AbortRequested, None, ABORTED, m.abort),
    Row(AWAITING_APPROVAL, InputQueued, None, None, m.queue_input),

    Row(BETWEEN_TURNS, TurnJudged, g.goes_on, AWAITING_MODEL, m.next_turn),
    Row(BETWEEN_TURNS, TurnJudged, g.nothing_left, DONE, m.end),
    Row(BETWEEN_TURNS, TurnJudged, g.finish, DONE, m.end),
    Row(BETWEEN_TURNS, TurnJudged, g.limit_with_word, AWAITING_MODEL, m.grant_word),
    Row(BETWEEN_TURNS, TurnJudged, g.limit, LIMIT_EXCEEDED, m.end),
    Row(BETWEEN_TURNS, AbortRequested, None, ABORTED, m.abort),
    Row(BETWEEN_TURNS, HookFailed, None, FAILED, m.hook_failed),
    Row(BETWEEN_TURNS, InputQueued, None, None, m.queue_input),

    Row(ABORTING, CallSettled, g.others_run, None, m.settle_stopping),
    Row(ABORTING, CallSettled, g.last_after_fault, FAILED, m.settle_stopping),
    Row(ABORTING, CallSettled, g.last, ABORTED, m.settle_stopping),
    Row(ABORTING, ModelReplied, g.request_under_way, ABORTED, m.keep_what_came),
    Row(ABORTING, ModelFailed, g.request_under_way, ABORTED, m.keep_what_came),
    Row(ABORTING, InputQueued, None, None, m.queue_input),
)
# fmt: on


def validate(rows: Sequence[Row], initial: State = INITIAL) -> None:
    """Raise TableError unless ``rows`` make sense together.

    Every name exists; guards are declared to give a bool; within a cell (state and signal) nothing follows an unguarded
    row; every state but ``initial`` is a target, and reachable; no row leaves a final state; from every live state a
    final one can be reached; every signal is taken somewhere.
    """
    closed: set[tuple[State, type[Signal]]] = set()
    for row in rows:
        if not (isinstance(row.source, State) and (row.target is None or isinstance(row.target, State))):
            raise TableError(f"{row.signal.__name__} from {row.source!r} to {row.target!r}: no such state")
        if row.signal not in SIGNALS:
            raise TableError(f"{row}: no such signal")
        if not callable(row.move):
            raise TableError(f"{row}: its move cannot be called")
        if row.source.final:
            raise TableError(f"{row}: leads out of a final state")
        if row.guard is not None and getattr(row.guard, "__annotations__", {}).get("return") not in ("bool", bool):
            raise TableError(f"{row}: its guard is not declared to give a bool")
        cell = (row.source, row.signal)
        if cell in closed:
            raise TableError(f"{row}: never fires, since a row before it in the same cell has no guard")
        if row.guard is None:
            closed.add(cell)
    reached = _closure(initial, {state: {row.to for row in rows if row.source is state} for state in State})
    if missing := [state for state in State if state not in reached]:
        raise TableError(f"no way leads from {initial} to {', '.join(missing)}")
    for state in State:
        ways = _closure(state, {s: {row.to for row in rows if row.source is s} for s in State})
        if not state.final and not any(s.final for s in ways):
            raise TableError(f"no way leads from {state} to a final state")
    if unheard := [signal.__name__ for signal in SIGNALS if all(row.signal is not signal for row in rows)]:
        raise TableError(f"no row takes {', '.join(unheard)}")


def _closure(start: State, ways: dict[State, set[State]]) -> set[State]:
    found, todo = {start}, [start]
    while todo:
        for state in ways[todo.pop()] - found:
            found.add(state)
            todo.append(state)
    return found


validate(ROWS)
