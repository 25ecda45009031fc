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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from edgewise.statemachine.machine import Step
from edgewise.statemachine.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage
from edgewise.statemachine.signals import (
    AbortRequested,
    CallDecided,
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    Effect,
    InputQueued,
    ModelReplied,
    Signal,
)
from edgewise.statemachine.snapshot import CallStatus, Snapshot, State

STATUS: Mapping[str, CallStatus] = {
    "w": "waiting",
    "s": "starting",
    "h": "held",
    "r": "running",
    "t": "returned",
    "d": "settled",
}
"""The letters of ``Batch.marks`` in words."""

Rule: TypeAlias = Callable[[Snapshot, Signal, Step], Iterator[str]]
"""Looks at one step and yields what is wrong with it."""


def check_history(messages: Iterable[Message], *, open_end: bool = False) -> list[str]:
    """What is wrong with ``messages``: calls without their one result, results out of place, anything in between.

    Calls and results are paired by position, since ids may be empty or double. With ``open_end`` the calls of the last
    message need not have results yet.

    >>> call = ToolCall("a", "read_file")
    >>> check_history([AssistantMessage((call,)), ToolResult("a", "read_file", ())])
    []
    >>> check_history([AssistantMessage((call,)), UserMessage(())])
    ['message 1 (user) stands where the result of call 0 (read_file) of message 0 belongs']
    """
    faults: list[str] = []
    calls: tuple[ToolCall, ...] = ()
    given = asked_at = last = 0
    for n, message in enumerate(messages):
        last = n
        if type(message) is ToolResult:
            if given == len(calls):
                why = "every call before it has its result" if calls else "no call stands before it"
                faults.append(f"message {n} is a result of {message.name or '(no name)'} without a call: {why}")
                continue
            call = calls[given]
            if (message.call_id, message.name) != (call.id, call.name):
                faults.append(
                    f"message {n} answers {_call(message.name, message.call_id)} where the result of call {given} of "
                    f"message {asked_at}, {_call(call.name, call.id)}, belongs"
                )
            given += 1
            continue
        if given < len(calls):
            faults.append(
                f"message {n} ({message.role}) stands where the result of call {given} ({calls[given].name}) of "
                f"message {asked_at} belongs"
            )
        calls, given, asked_at = (), 0, n
        if type(message) is AssistantMessage:
            calls = message.tool_calls
    if given < len(calls) and not (open_end and last == asked_at):
        names = ", ".join(f"{i} ({calls[i].name})" for i in range(given, len(calls)))
        faults.append(f"the history ends without the result of call {names} of message {asked_at}")
    return faults


def _call(name: str, id: str) -> str:
    return f"{name or '(no name)'} (id {id!r})"


# ---- a run at rest


def check_snapshot(s: Snapshot) -> list[str]:
    """What is wrong with a run at rest."""
    batch, state = s.batch, s.state
    faults = check_history(s.history, open_end=bool(batch.calls))
    if batch.calls:
        last = s.history[-1] if s.history else None
        if type(last) is not AssistantMessage or last.tool_calls != batch.calls:
            faults.append("the batch is not that of the last message")
        if state is State.BETWEEN_TURNS or state is State.AWAITING_MODEL or state.final:
            faults.append(f"calls are open in state {state}")
    faults += _waits_for_something(s)
    faults += _scheduling(s)
    if s.attempt > s.policy.model_attempts + 1:
        faults.append(f"attempt {s.attempt} at a request that may be sent {s.policy.model_attempts} times")
    if (wrong := _unexplained(s)) is not None:
        faults.append(wrong)
    return faults


def _waits_for_something(s: Snapshot) -> Iterator[str]:
    """What a live state waits for must be under way."""
    batch, state, marks = s.batch, s.state, s.batch.marks
    if state is State.EXECUTING_TOOLS and not batch.active:
        yield f"no call is at work in {state}"
    if state is State.AWAITING_APPROVAL and (batch.active or batch.waiting or not batch.held):
        yield f"{batch.active + batch.waiting} calls are at work and {batch.held} held in {state}"
    if state is State.ABORTING and batch.calls:
        if batch.waiting or batch.held or not batch.active:
            yield "the batch that is being aborted holds calls that nobody works at"
        if "s" in marks or "t" in marks:
            yield "the batch that is being aborted holds calls that need not be waited for"
    for i, (mark, result) in enumerate(zip(marks, batch.results, strict=True)):
        if (result is not None) != (mark in "td"):
            yield f"call {i} is {STATUS[mark]} and has {'a' if result else 'no'} result"


def _scheduling(s: Snapshot) -> Iterator[str]:
    batch, policy = s.batch, s.policy
    if batch.active > policy.max_parallel:
        yield f"{batch.active} calls at once, where {policy.max_parallel} may be"
    if policy.exclusive and batch.active > 1:
        active = [i for i, mark in enumerate(batch.marks) if mark in "srt"]
        alone = [i for i in active if batch.calls[i].name in policy.exclusive]
        if alone:
            yield f"call {alone[0]} ({batch.calls[alone[0]].name}) is to run alone, and {batch.active} are at work"


_ENDINGS: dict[State, tuple[str | None, ...]] = {
    State.DONE: (None, "finish"),
    State.ABORTED: ("abort", "refusal"),
    State.LIMIT_EXCEEDED: ("limit",),
    State.FAILED: ("model", "hook"),
    State.ABORTING: ("abort", "refusal", "hook"),
}


def _unexplained(s: Snapshot) -> str | None:
    kind = s.ending.kind if s.ending is not None else None
    may = _ENDINGS.get(s.state, ("limit",) if s.closing else (None,))
    return None if kind in may else f"the run is {s.state} and says {kind} of why"


# ---- one step


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
    own = {signal.slot, *getattr(signal, "others", ())} if hasattr(signal, "slot") else set()
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
    if after.state is State.BETWEEN_TURNS and before.state is not State.BETWEEN_TURNS:
        expected.add(f"AskHook t{turn}.judge")
    if after.state is State.AWAITING_MODEL and (before.turn, before.attempt) != (turn, after.attempt):
        expected.add(f"CallModel t{turn}.model")
    if before.state is State.AWAITING_MODEL and after.state is State.ABORTING:
        expected.add(f"CancelModel t{turn}.model")
    ordered = [_order(effect) for effect in step.effects]
    if len(ordered) != len(expected) or set(ordered) != expected:
        due = ", ".join(sorted(expected)) or "nothing"
        yield f"ordered {', '.join(ordered) or 'nothing'}, where {due} is to be done"


def _order(effect: Effect) -> str:
    return f"{effect.kind} {effect.id}"


RULES: tuple[Rule, ...] = (
    history_only_grows,
    replies_are_kept,
    new_messages_are_paired,
    results_are_those_given,
    content_decides,
    nothing_starts_once_stopping,
    input_enters_once,
    calls_live_in_order,
    orders_fit,
)


def check_step(before: Snapshot, signal: Signal, step: Step, rules: Iterable[Rule] = RULES) -> list[str]:
    """What is wrong with a step that ``signal`` led to; each fault begins with the rule that it breaks."""
    return [
        f"{(rule.__doc__ or rule.__name__).strip()}: {fault}" for rule in rules for fault in rule(before, signal, step)
    ]
