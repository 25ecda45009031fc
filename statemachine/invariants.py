"""What must hold of every run, as functions that say in words what is wrong.

:func:`check_history` looks at messages alone, :func:`check_snapshot` at a run at rest, :func:`check_step` at one step
of it. All give a list of faults, empty when there are none. The checker (:mod:`edgewise.statemachine.checking`) asks
them at each edge of an explored machine; a test can ask them of any run.

The eight invariants, and the rules that hold them:

1. *paired*, 2. *ordered*: ``check_history``, ``new_messages_are_paired``, ``results_are_those_given``
3. *content decides*: ``content_decides``
4. *nothing starts after abort*: ``nothing_starts_once_stopping``
5. *stated once*: ``input_enters_once``
6. *it ends*: the checker, on the whole graph
7. *replay*: the machine is pure; the tests fold random walks
8. *started means settled or unknown*: ``calls_live_in_order``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from edgewise.statemachine.machine import Step
from edgewise.statemachine.messages import Message, UserMessage
from edgewise.statemachine.signals import (
    AbortRequested,
    CallDecided,
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    Effect,
    InputQueued,
    ModelFailed,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.snapshot import Snapshot, State
from edgewise.statemachine.verdicts import Finish, Limit
from edgewise.statemachine.wellformed import STATUS, check_history, check_snapshot

__all__ = ["RULES", "Rule", "check_history", "check_snapshot", "check_step"]

Rule: TypeAlias = Callable[[Snapshot, Signal, Step], Iterator[str]]
"""Looks at one step and yields what is wrong with it."""


def it_goes_where_its_row_leads(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """a step ends in the state that its row names"""
    if step.snapshot.state is not step.row.to:
        yield f"{step.row} led to {step.snapshot.state}"


def history_only_grows(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """the history only grows"""
    old, new = before.history, step.snapshot.history
    if len(new) < len(old):
        yield f"{len(old) - len(new)} messages are gone"
    elif old.lineage is not new.lineage and any(a != b for a, b in zip(old, new, strict=False)):
        yield "a message was changed"


def replies_are_kept(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """a whole reply enters the history as it came"""
    if isinstance(signal, ModelReplied) and signal.message not in _entered(before, step.snapshot)[:1]:
        yield f"the reply is missing: {signal.message}"


def new_messages_are_paired(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """each call has its one result, in order"""
    first = len(before.history) - bool(before.batch.calls)
    open_end = bool(step.snapshot.batch.calls)
    for fault in check_history(step.snapshot.history[first:], open_end=open_end):
        yield f"{fault} (counted from message {first})"


def results_are_those_given(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """a call keeps the result that it was given, and it enters in the place of the call"""
    after, now = step.snapshot, step.snapshot.batch.results
    entered = _entered(before, after) if before.batch.calls and not now else None
    for i, known in enumerate(before.batch.results):
        given = signal.result if isinstance(signal, CallSettled) and signal.slot == i else None
        if given is None:
            given = known
        if given is None:
            continue
        results: Sequence[Message | None] = now if entered is None else entered
        result = results[i] if i < len(results) else None
        if result != given:
            yield f"call {i} was given {_said(given)} and has {_said(result)}"


def _said(message: Message | None) -> str:
    return repr(message.text) if message is not None else "nothing"


def _entered(before: Snapshot, after: Snapshot) -> list[Message]:
    return list(after.history[len(before.history) :])


def content_decides(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """whether a reply holds calls decides, not its stop reason"""
    if not isinstance(signal, ModelReplied) or before.state is not State.AWAITING_MODEL or before.closing:
        return
    calls, after = signal.message.tool_calls, step.snapshot
    runs = after.state is State.EXECUTING_TOOLS
    cut_off = signal.message.stop_reason == "length"
    if runs != (bool(calls) and not cut_off):
        yield f"{len(calls)} calls with stop reason {signal.message.stop_reason} lead to {after.state}"
    elif calls and not after.turn_calls:
        yield "the turn counts as one without calls"


def nothing_starts_once_stopping(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """nothing starts after an abort"""
    after = step.snapshot
    if isinstance(signal, AbortRequested) and after.state not in (State.ABORTING, State.ABORTED):
        yield f"an abort led to {after.state}"
    if before.state is State.ABORTING and after.state not in (State.ABORTING, State.ABORTED, State.FAILED):
        yield f"a run that was aborting is {after.state}"
    if after.state is State.ABORTING or after.state.final:
        for effect in step.effects:
            if effect.kind in ("StartCall", "CallModel", "AskHook"):
                yield f"{effect.kind} {effect.id} was ordered"
        for i, (old, new) in enumerate(zip(before.batch.marks, after.batch.marks, strict=False)):
            if new not in (old, "d"):
                yield f"call {i} went from {STATUS[old]} to {STATUS[new]}"


def input_enters_once(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """every queued input enters the history once, at a turn boundary, or is still queued"""
    after = step.snapshot
    said = [m for m in _entered(before, after) if type(m) is UserMessage]
    steering, follow_ups = before.steering, before.follow_ups
    if isinstance(signal, InputQueued):
        if signal.queue == "steering":
            steering = (*steering, signal.message)
        else:
            follow_ups = (*follow_ups, signal.message)
    one, other = _left(said, steering, after.steering), _left(said, follow_ups, after.follow_ups)
    if not ((one and after.follow_ups == follow_ups) or (other and after.steering == steering)):
        yield (
            f"{_texts(steering)} steering and {_texts(follow_ups)} following up became {_texts(said)} in the history, "
            f"{_texts(after.steering)} and {_texts(after.follow_ups)} in the queues"
        )
    if said and not (before.state is State.BETWEEN_TURNS and after.state is State.AWAITING_MODEL):
        yield f"input entered between {before.state} and {after.state}"


def _left(said: list[UserMessage], queue: tuple[UserMessage, ...], left: tuple[UserMessage, ...]) -> bool:
    return (*said, *left) == queue


def _texts(messages: Iterable[UserMessage]) -> list[str]:
    return [message.text for message in messages]


_LIFE: dict[str, tuple[type[Any], ...]] = {
    "sr": (CallStarted,),
    "rr": (CallStarted,),
    "sh": (CallHeld,),
    "hw": (CallDecided,),
    "hs": (CallDecided,),
    "hd": (CallDecided,),
    "rt": (CallReturned,),
    "sd": (CallSettled,),
    "rd": (CallSettled,),
    "td": (CallSettled,),
}
"""The life of a call: which signals take it from one status to another. What does not move needs none."""


def calls_live_in_order(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """a call moves only by its own signals; one that started is settled by its own end alone"""
    after = step.snapshot
    stopping = after.state is State.ABORTING or after.state.final
    own = {getattr(signal, "slot", None), *getattr(signal, "others", ())}
    marks = before.batch.marks
    for i, (old, new) in enumerate(zip(marks, after.batch.marks or "d" * len(marks), strict=False)):
        if new == old and i not in own:
            continue
        if old == "w" and new == "s":
            continue  # its turn has come
        if stopping and new == "d" and old != "r" and i not in own:
            continue  # it had not started, or had its result: the end of the run settles it
        if i not in own:
            yield f"call {i} went from {STATUS[old]} to {STATUS[new]} by {signal.name}, which is not its own"
        elif type(signal) not in _LIFE.get(old + new, ()):
            yield f"{signal.name} took call {i} from {STATUS[old]} to {STATUS[new]}"


def orders_fit(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """what a run now waits for was ordered, once, under its own name"""
    after = step.snapshot
    turn, marks = after.turn, after.batch.marks
    stops = after.state is State.ABORTING and before.state is not State.ABORTING
    expected: set[str] = set()
    for i, (old, new) in enumerate(zip(before.batch.marks or "w" * len(marks), marks, strict=False)):
        if new == "s" and old != "s":
            expected.add(f"StartCall t{turn}.c{i}")
        if new == "r" and stops:
            expected.add(f"CancelCall t{turn}.c{i}")
    if after.state is State.BETWEEN_TURNS and (
        before.state is not State.BETWEEN_TURNS or isinstance(signal, TurnJudged)
    ):
        expected.add(f"AskHook t{turn}.judge")
    if after.state is State.AWAITING_MODEL and (
        before.state is not State.AWAITING_MODEL or isinstance(signal, (ModelReplied, ModelFailed))
    ):
        expected.add(f"CallModel t{turn}.model")
    if before.state is State.AWAITING_MODEL and after.state is State.ABORTING:
        expected.add(f"CancelModel t{turn}.model")
    spoken = isinstance(signal, InputQueued) and before.state is State.ABORTING
    if after.state is State.ABORTING and not (marks or spoken or before.state is State.AWAITING_MODEL):
        yield "the run is aborting, and nothing is under way"
    ordered = [_order(effect) for effect in step.effects]
    if len(ordered) != len(expected) or set(ordered) != expected:
        due = ", ".join(sorted(expected)) or "nothing"
        yield f"ordered {', '.join(ordered) or 'nothing'}, where {due} is to be done"


def _order(effect: Effect) -> str:
    return f"{effect.kind} {effect.id}"


def verdicts_are_heeded(before: Snapshot, signal: Signal, step: Step) -> Iterator[str]:
    """the hook's verdict decides, and a limit stays one"""
    after = step.snapshot
    if isinstance(signal, TurnJudged):
        verdict = signal.verdict
        may: tuple[State, ...] = (State.DONE, State.AWAITING_MODEL)
        if isinstance(verdict, Finish):
            may = (State.DONE,)
        elif isinstance(verdict, Limit):
            may = (State.AWAITING_MODEL if verdict.wrap_up else State.LIMIT_EXCEEDED,)
            if after.closing != verdict.wrap_up:
                yield f"{verdict} was given, and the closing word is {'' if after.closing else 'not '}under way"
        if after.state not in may:
            yield f"{verdict} led to {after.state}"
    elif before.closing and before.state is State.AWAITING_MODEL and isinstance(signal, (ModelReplied, ModelFailed)):
        tried_again = after.state is State.AWAITING_MODEL and after.closing
        if after.state is not State.LIMIT_EXCEEDED and not tried_again:
            yield f"the closing word led to {after.state}"


RULES: tuple[Rule, ...] = (
    it_goes_where_its_row_leads,
    history_only_grows,
    replies_are_kept,
    new_messages_are_paired,
    results_are_those_given,
    content_decides,
    nothing_starts_once_stopping,
    input_enters_once,
    calls_live_in_order,
    verdicts_are_heeded,
    orders_fit,
)


def check_step(before: Snapshot, signal: Signal, step: Step, rules: Iterable[Rule] = RULES) -> list[str]:
    """What is wrong with a step that ``signal`` led to; each fault begins with the rule that it breaks."""
    return [
        f"{(rule.__doc__ or rule.__name__).strip()}: {fault}" for rule in rules for fault in rule(before, signal, step)
    ]
