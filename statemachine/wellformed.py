"""What must hold of a history, and of a run at rest between two signals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from edgewise.statemachine.messages import AssistantMessage, Message, ToolCall, ToolResult
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


def check_history(messages: Iterable[Message], *, open_end: bool = False) -> list[str]:
    """What is wrong with ``messages``: calls without their one result, results out of place, anything in between.

    Calls and results are paired by position, since ids may be empty or double. With ``open_end`` the calls of the last
    message need not have results yet.

    >>> call = ToolCall("a", "read_file")
    >>> check_history([AssistantMessage((call,)), ToolResult("a", "read_file", ())])
    []
    >>> check_history([AssistantMessage((call,)), AssistantMessage(())])
    ['message 1 (assistant) stands where the result of call 0 (read_file) of message 0 belongs']
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
