"""What may happen to a run: every signal that the world can send it next, within a declared scope.

The world is honest. It answers what was ordered, in each way that the driver may answer; a call is held, started,
returned and settled in the order of its life; only aborts and people's words come unasked. Its calls have no ids, since
a machine that needs those is wrong.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import attrs

from edgewise.statemachine.errors import Failure
from edgewise.statemachine.machine import start
from edgewise.statemachine.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, user_message
from edgewise.statemachine.moves import Effects
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
from edgewise.statemachine.snapshot import Policy, Snapshot, State
from edgewise.statemachine.verdicts import Continue, Finish, Limit

PLAIN, ALONE = "tool", "alone"
"""The two tools of this world; calls of the second run alone."""


@attrs.frozen
class Scope:
    """What may happen, and how much of it."""

    calls: int = 2
    """How many calls a reply may hold."""
    turns: int = 2
    """How many turns a run may have; a closing word comes on top."""
    inputs: int = 1
    """How often somebody may say something while the run is at work."""
    exclusive: bool = True
    """Calls may be to a tool that runs alone."""
    held: bool = True
    """Calls may be held for a person, who approves or refuses."""
    stops: bool = True
    """A refusal may end the run."""
    returned: bool = True
    """An after_call hook may look at results."""
    aborts: bool = True
    model_failures: bool = True
    hook_failures: bool = True
    limits: bool = True
    restarts: bool = True
    """The process may die while a call runs, and the call start once more."""
    interrupted: bool = True
    """A run may begin with the unanswered calls of its history."""
    policy: Policy = Policy(max_parallel=2, exclusive=frozenset({ALONE}), model_attempts=2)


def beginnings(scope: Scope) -> Iterator[tuple[Snapshot, Effects]]:
    """Every way in which a run may begin."""
    said = user_message("go")
    yield start(inputs=[said], policy=scope.policy)
    if scope.interrupted:
        for calls in _calls(scope):
            history: list[Message] = [said, AssistantMessage(calls, "tool_use")]
            for started in ((), (0,), range(len(calls))):
                yield start(history, [user_message("go on")], scope.policy, started)


def possible(s: Snapshot, scope: Scope, told: int) -> Iterator[Signal]:
    """Every signal that may come next; ``told`` is how often somebody has spoken since the run began."""
    state = s.state
    if state.final:
        return
    if state is State.AWAITING_MODEL:
        yield from _replies(scope)
    elif state is State.BETWEEN_TURNS:
        yield from _verdicts(scope)
    elif state is State.ABORTING and not s.batch.calls:
        yield from _CUT_SHORT
    else:
        marks = s.batch.marks
        for i, mark in enumerate(marks):
            yield from _call(s, i, mark, scope)
        starting = [i for i, mark in enumerate(marks) if mark == "s"]
        if len(starting) > 1:
            yield CallStarted(starting[0], others=tuple(starting[1:]))
    if scope.aborts and state is not State.ABORTING:
        yield _ABORT
    if told < scope.inputs:
        said = user_message(f"input {told + 1}")
        yield InputQueued(said, "steering")
        yield InputQueued(said, "follow_up")


def misplaced(s: Snapshot) -> Iterator[Signal]:
    """Signals that come too late, or twice: a start after an abort, a second decision. None of them may be taken."""
    if s.state.final:
        yield from _AFTER_THE_END
    elif s.state is State.ABORTING and s.batch.calls:
        yield from _CUT_SHORT
    for i, mark in enumerate(s.batch.marks):
        name = s.batch.calls[i].name
        if mark not in "sr" or s.state is State.ABORTING:
            yield CallStarted(i)
        if mark == "s":
            yield CallStarted(i, others=(i,))
            for j, other in enumerate(s.batch.marks):
                if other != "s":
                    yield CallStarted(i, others=(j,))
        else:
            yield CallHeld(i)
        if mark != "h":
            yield CallDecided(i, True)
            yield CallDecided(i, False)
        if mark != "r":
            yield CallReturned(i, _settled(i, name, "once more").result)
        if mark not in "srt":
            yield _settled(i, name, "once more")


def _call(s: Snapshot, i: int, mark: str, scope: Scope) -> Iterator[Signal]:
    """What may become of a call, by its mark in the batch."""
    name = s.batch.calls[i].name
    if mark == "s":
        slot = s.batch.slot(i)
        yield CallStarted(i, slot.attempts + 1)
        yield _settled(i, name, "not valid")  # an unknown tool, bad arguments, a denial
        if not slot.approved:
            if scope.held:
                yield CallHeld(i)
            if scope.stops:
                yield attrs.evolve(_settled(i, name, "not permitted"), stop="that is forbidden")
            if scope.hook_failures:
                yield _AUTHORIZE_FAILED
    elif mark == "r":
        yield _settled(i, name, "ok")
        yield _settled(i, name, "failed")
        if s.state is not State.ABORTING:
            if scope.returned:
                yield CallReturned(i, _settled(i, name, "ok").result)
            if scope.restarts:
                yield CallStarted(i, s.batch.slot(i).attempts + 1)
    elif mark == "t":
        yield _settled(i, name, "seen by a hook")
        if scope.hook_failures:
            yield _AFTER_CALL_FAILED
    elif mark == "h":
        yield CallDecided(i, True)
        yield CallDecided(i, False, "no")


@functools.cache
def _settled(i: int, name: str, how: str) -> CallSettled:
    return CallSettled(i, ToolResult("", name, (Text(f"{how} {i}"),), how != "ok"))


def _calls(scope: Scope) -> Iterator[tuple[ToolCall, ...]]:
    tools = (PLAIN, ALONE) if scope.exclusive else (PLAIN,)
    for count in range(1, scope.calls + 1):
        for names in itertools.product(tools, repeat=count):
            yield tuple([ToolCall("", name) for name in names])


@functools.cache
def _replies(scope: Scope) -> tuple[Signal, ...]:
    replies: list[Signal] = [
        ModelReplied(AssistantMessage((Text("answer"),))),
        ModelReplied(AssistantMessage((Text("half an ans"),), "length")),
        *(ModelReplied(AssistantMessage(calls, "stop" if len(calls) % 2 else "tool_use")) for calls in _calls(scope)),
        ModelReplied(AssistantMessage((ToolCall("", PLAIN),) * scope.calls, "length")),
    ]
    if scope.model_failures:
        replies += [
            ModelFailed(Failure("auth", "no such key")),
            ModelFailed(Failure("network", "it broke off", retryable=True), _PARTIAL, delay=1.0),
            ModelFailed(Failure("context_overflow", "too long"), can_compact=True),
        ]
    if scope.hook_failures:
        replies.append(HookFailed("prepare_request", "ValueError: no"))
    return tuple(replies)


@functools.cache
def _verdicts(scope: Scope) -> tuple[Signal, ...]:
    verdicts: list[Signal] = [TurnJudged(Continue()), TurnJudged(Finish("good enough"))]
    if scope.limits:
        verdicts += [TurnJudged(Limit("enough")), TurnJudged(Limit("enough", wrap_up=True))]
    if scope.hook_failures:
        verdicts.append(HookFailed("should_continue", "ValueError: no"))
    return tuple(verdicts)


_PARTIAL = AssistantMessage((Text("half an ans"), ToolCall("", PLAIN, '{"pa')), "error")
_ABORT = AbortRequested("enough")
_CUT_SHORT: tuple[Signal, ...] = (
    ModelFailed(Failure("aborted", "it was cancelled")),
    ModelFailed(Failure("aborted", "it was cancelled"), attrs.evolve(_PARTIAL, stop_reason="aborted")),
    ModelReplied(AssistantMessage((Text("answer"),))),
    ModelReplied(AssistantMessage((ToolCall("", PLAIN), ToolCall("", ALONE)), "tool_use")),
)
_AUTHORIZE_FAILED = HookFailed("authorize", "ValueError: no")
_AFTER_CALL_FAILED = HookFailed("after_call", "ValueError: no")
_AFTER_THE_END: tuple[Signal, ...] = (
    ModelReplied(AssistantMessage((Text("answer"),))),
    CallStarted(0),
    CallDecided(0, True),
    _settled(0, PLAIN, "ok"),
    TurnJudged(Continue()),
    InputQueued(user_message("too late")),
)
