"""What a row does when it fires: pure functions from snapshot, signal and target to the next snapshot and effects.

A move never chooses where to go (the row does) and never acts (the driver does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from edgewise.statemachine.history import History
from edgewise.statemachine.messages import AssistantMessage, Message, ToolCall, ToolResult, UserMessage, error_result
from edgewise.statemachine.signals import (
    AbortRequested,
    AskHook,
    CallDecided,
    CallHeld,
    CallModel,
    CallReturned,
    CallSettled,
    CallStarted,
    CancelCall,
    CancelModel,
    Effect,
    HookFailed,
    InputQueued,
    ModelFailed,
    ModelReplied,
    StartCall,
    TurnJudged,
)
from edgewise.statemachine.snapshot import (
    NO_BATCH,
    Batch,
    Ending,
    Particulars,
    Policy,
    QueueMode,
    Snapshot,
    State,
    moved,
)
from edgewise.statemachine.verdicts import Finish, Limit

Effects: TypeAlias = tuple[Effect, ...]
Move: TypeAlias = Callable[[Snapshot, Any, State], tuple[Snapshot, Effects]]

CUT_OFF = (
    "Not executed: the reply that holds this call was cut off by the output limit, so its arguments may be incomplete. "
    "Issue the call again, in smaller pieces if it is large."
)
LIMIT_REACHED = "Not executed: the limit of this run is reached and no more tools may be called."


def not_executed(ending: Ending) -> str:
    """The answer to a call that never started, because the run is ending."""
    why = f": {ending.reason}" if ending.reason else ""
    if ending.kind == "abort":
        return f"Not executed: the run was aborted before this call started{why}"
    return f"Not executed: the run ended before this call started{why}"


# ---- small parts


def _calls(message: AssistantMessage) -> list[ToolCall]:
    return [block for block in message.content if type(block) is ToolCall]


def _answered(message: AssistantMessage, why: str) -> list[Message]:
    """The message and one result for each of its calls: none of them runs."""
    return [message, *[error_result(call, why) for call in _calls(message)]]


def _unfinished(
    s: Snapshot, partial: AssistantMessage | None, stop_reason: str, *, always: bool
) -> AssistantMessage | None:
    """What is kept of a reply that broke off: marked; an abort is recorded even when nothing had come."""
    if partial is None:
        return AssistantMessage((), stop_reason) if always else None
    if not partial.content and not always:
        return None
    return AssistantMessage(partial.content, stop_reason, partial.usage, partial.model)


def _close(history: History, batch: Batch) -> History:
    """All results enter the history at once, in the order in which their calls were declared."""
    return history.extended([result for result in batch.results if result is not None])


def launch(s: Snapshot, batch: Batch, policy: Policy) -> tuple[Batch, Effects]:
    """Start what may start now: in declaration order, under the cap, exclusive calls alone.

    A held call stands aside: those after it need not wait for a person.
    """
    marks = batch.marks
    waiting = marks.count("w")
    if not waiting:
        return batch, ()
    active = batch.active
    exclusive = policy.exclusive
    # An approved call may stand before an exclusive one that runs by now.
    if active and exclusive and any(m in "srt" and batch.calls[i].name in exclusive for i, m in enumerate(marks)):
        return batch, ()
    effects: list[Effect] = []
    letters = list(marks)
    for i, mark in enumerate(letters):
        if mark == "w":
            alone = batch.calls[i].name in exclusive
            if active >= policy.max_parallel or (alone and active):
                break
            letters[i] = "s"
            effects.append(StartCall(f"t{s.turn}.c{i}", i, batch.special(i).approved))
            active += 1
            waiting -= 1
            if alone or not waiting:
                break
    return Batch(batch.calls, "".join(letters), batch.results, batch.particulars), tuple(effects)


def _ask_hook(s: Snapshot) -> Effects:
    return (AskHook(f"t{s.turn}.judge"),)


def _take(queue: tuple[UserMessage, ...], mode: QueueMode) -> tuple[tuple[UserMessage, ...], tuple[UserMessage, ...]]:
    return (queue, ()) if mode == "all" else (queue[:1], queue[1:])


# ---- awaiting_model


def run_calls(s: Snapshot, signal: ModelReplied, to: State) -> tuple[Snapshot, Effects]:
    message = signal.message
    calls = _calls(message)
    count = len(calls)
    policy = s.policy
    if count <= policy.max_parallel and not policy.exclusive:
        # All may start at once: what launch() comes to, without a look at what has to wait.
        turn = s.turn
        batch = Batch(tuple(calls), "s" * count, (None,) * count)
        effects: Effects = tuple([StartCall(f"t{turn}.c{i}", i) for i in range(count)])
    else:
        batch, effects = launch(s, Batch.waiting_for(calls), policy)
    return moved(
        s,
        state=to,
        history=s.history.extended([message]),
        batch=batch,
        turn_calls=count,
        calls=s.calls + count,
        usage=s.usage + message.usage,
    ), effects


def answer_cut_off_calls(s: Snapshot, signal: ModelReplied, to: State) -> tuple[Snapshot, Effects]:
    answered = _answered(signal.message, CUT_OFF)
    return moved(
        s,
        state=to,
        history=s.history.extended(answered),
        turn_calls=len(answered) - 1,
        calls=s.calls + len(answered) - 1,
        usage=s.usage + signal.message.usage,
    ), _ask_hook(s)


def take_answer(s: Snapshot, signal: ModelReplied, to: State) -> tuple[Snapshot, Effects]:
    return moved(
        s,
        state=to,
        history=s.history.extended([signal.message]),
        turn_calls=0,
        usage=s.usage + signal.message.usage,
    ), _ask_hook(s)


def take_closing_word(s: Snapshot, signal: ModelReplied | ModelFailed, to: State) -> tuple[Snapshot, Effects]:
    message = signal.message if isinstance(signal, ModelReplied) else signal.partial
    if isinstance(signal, ModelFailed):
        message = _unfinished(s, message, "error", always=False)
    if message is None:
        return moved(s, state=to, closing=False), ()
    return moved(
        s,
        state=to,
        closing=False,
        history=s.history.extended(_answered(message, LIMIT_REACHED)),
        usage=s.usage + message.usage,
    ), ()


def compact_and_retry(s: Snapshot, signal: ModelFailed, to: State) -> tuple[Snapshot, Effects]:
    attempt = s.attempt + 1
    effect = CallModel(f"t{s.turn}.model", attempt, compact=True, tools=not s.closing)
    return moved(s, state=to, compacted=True, attempt=attempt, usage=_with_partial(s, signal)), (effect,)


def retry(s: Snapshot, signal: ModelFailed, to: State) -> tuple[Snapshot, Effects]:
    attempt = s.attempt + 1
    effect = CallModel(f"t{s.turn}.model", attempt, signal.delay, tools=not s.closing)
    return moved(s, state=to, attempt=attempt, usage=_with_partial(s, signal)), (effect,)


def _with_partial(s: Snapshot, signal: ModelFailed) -> Any:
    return s.usage + signal.partial.usage if signal.partial is not None else s.usage


def give_up(s: Snapshot, signal: ModelFailed, to: State) -> tuple[Snapshot, Effects]:
    message = _unfinished(s, signal.partial, "error", always=False)
    tries = f" (after {s.attempt} attempts)" if s.attempt > 1 else ""
    ending = Ending("model", f"the model call failed: {signal.failure}{tries}", signal.failure)
    history = s.history
    if message is not None:
        history = history.extended(_answered(message, not_executed(ending)))
    return moved(s, state=to, history=history, ending=ending, usage=_with_partial(s, signal)), ()


def cancel_request(s: Snapshot, signal: AbortRequested, to: State) -> tuple[Snapshot, Effects]:
    return moved(s, state=to, ending=Ending("abort", signal.reason)), (CancelModel(f"t{s.turn}.model"),)


def keep_what_came(s: Snapshot, signal: ModelReplied | ModelFailed, to: State) -> tuple[Snapshot, Effects]:
    ending = s.ending or Ending("abort", "")
    message: AssistantMessage | None
    if isinstance(signal, ModelReplied):
        message = signal.message
    else:
        message = _unfinished(s, signal.partial, "aborted", always=True)
    assert message is not None
    return moved(
        s,
        state=to,
        closing=False,
        history=s.history.extended(_answered(message, not_executed(ending))),
        usage=s.usage + message.usage,
    ), ()


# ---- executing_tools and awaiting_approval


def mark_running(s: Snapshot, signal: CallStarted, to: State) -> tuple[Snapshot, Effects]:
    batch = s.batch.marked(signal.slot, "r")
    if signal.others:
        letters = list(batch.marks)
        for i in signal.others:
            letters[i] = "r"
        batch = Batch(batch.calls, "".join(letters), batch.results, batch.particulars)
    if signal.attempt > 1 or signal.arguments is not None:
        special = batch.special(signal.slot)
        arguments = signal.arguments if signal.arguments is not None else special.arguments
        batch = batch.with_special(signal.slot, Particulars(special.approved, signal.attempt, arguments))
    return moved(s, batch=batch), ()


def hold(s: Snapshot, signal: CallHeld, to: State) -> tuple[Snapshot, Effects]:
    batch = s.batch.marked(signal.slot, "h")
    if signal.arguments is not None:
        batch = batch.with_special(signal.slot, Particulars(arguments=signal.arguments))
    batch, effects = launch(s, batch, s.policy)
    return moved(s, state=to, batch=batch), effects


def admit(s: Snapshot, signal: CallDecided, to: State) -> tuple[Snapshot, Effects]:
    arguments = signal.arguments if signal.arguments is not None else s.batch.special(signal.slot).arguments
    special = Particulars(True, arguments=arguments)
    batch = s.batch.marked(signal.slot, "w").with_special(signal.slot, special)
    batch, effects = launch(s, batch, s.policy)
    return moved(s, state=to, batch=batch), effects


def note_return(s: Snapshot, signal: CallReturned, to: State) -> tuple[Snapshot, Effects]:
    return moved(s, batch=s.batch.with_result(signal.slot, "t", signal.result)), ()


def _result_of(s: Snapshot, signal: CallSettled | CallDecided) -> ToolResult:
    if isinstance(signal, CallSettled):
        return signal.result
    reason = signal.reason or "no reason given"
    return error_result(s.batch.calls[signal.slot], f"Refused by the user: {reason}. The call was not executed.")


def _settled(s: Snapshot, signal: CallSettled | CallDecided) -> Batch:
    return s.batch.with_result(signal.slot, "d", _result_of(s, signal))


def settle(s: Snapshot, signal: CallSettled | CallDecided, to: State) -> tuple[Snapshot, Effects]:
    """A call has its result; others go on, or only held ones are left."""
    batch = _settled(s, signal)
    if "w" not in batch.marks:
        return moved(s, state=to, batch=batch), ()
    batch, effects = launch(s, batch, s.policy)
    return moved(s, state=to, batch=batch), effects


def settle_last(s: Snapshot, signal: CallSettled | CallDecided, to: State) -> tuple[Snapshot, Effects]:
    results = list(s.batch.results)
    results[signal.slot] = _result_of(s, signal)
    entering = [result for result in results if result is not None]
    return moved(s, state=to, history=s.history.extended(entering), batch=NO_BATCH), _ask_hook(s)


# ---- stopping


def _stop(s: Snapshot, ending: Ending, to: State, batch: Batch) -> tuple[Snapshot, Effects]:
    """Cancel what runs; settle what had not started, and what had returned with its own result."""
    why = not_executed(ending)
    effects: list[Effect] = []
    for i, mark in enumerate(batch.marks):
        if mark == "r":
            effects.append(CancelCall(f"t{s.turn}.c{i}", i))
        elif mark != "d":
            batch = batch.with_result(i, "d", batch.results[i] or error_result(batch.calls[i], why))
    if effects:
        return moved(s, state=to, batch=batch, ending=ending), tuple(effects)
    return moved(s, state=to, batch=NO_BATCH, history=_close(s.history, batch), ending=ending), ()


def abort(s: Snapshot, signal: AbortRequested, to: State) -> tuple[Snapshot, Effects]:
    return _stop(s, Ending("abort", signal.reason), to, s.batch)


def hook_failed(s: Snapshot, signal: HookFailed, to: State) -> tuple[Snapshot, Effects]:
    return _stop(s, Ending("hook", f"the hook {signal.hook} raised {signal.error}"), to, s.batch)


def settle_and_stop(s: Snapshot, signal: CallSettled, to: State) -> tuple[Snapshot, Effects]:
    return _stop(s, Ending("refusal", signal.stop or ""), to, _settled(s, signal))


def settle_stopping(s: Snapshot, signal: CallSettled, to: State) -> tuple[Snapshot, Effects]:
    batch = _settled(s, signal)
    if batch.open:
        return moved(s, state=to, batch=batch), ()
    return moved(s, state=to, history=_close(s.history, batch), batch=NO_BATCH), ()


# ---- between_turns, and any time


def next_turn(s: Snapshot, signal: TurnJudged, to: State) -> tuple[Snapshot, Effects]:
    """Queued input enters here, at the boundary: steering first; follow-ups only when the run would end."""
    steering, follow_ups = s.steering, s.follow_ups
    entering: Sequence[UserMessage] = ()
    if steering:
        entering, steering = _take(steering, s.policy.steering)
    elif follow_ups and not s.turn_calls:
        entering, follow_ups = _take(follow_ups, s.policy.follow_ups)
    turn = s.turn + 1
    changes: dict[str, Any] = {"state": to, "turn": turn, "attempt": 1, "turn_calls": 0}
    if entering:
        changes.update(history=s.history.extended(entering), steering=steering, follow_ups=follow_ups, compacted=False)
    return moved(s, **changes), (CallModel(f"t{turn}.model"),)


def end(s: Snapshot, signal: TurnJudged, to: State) -> tuple[Snapshot, Effects]:
    verdict = signal.verdict
    ending = s.ending
    if isinstance(verdict, Finish):
        ending = Ending("finish", verdict.reason)
    elif isinstance(verdict, Limit):
        ending = Ending("limit", verdict.reason)
    return moved(s, state=to, ending=ending), ()


def grant_word(s: Snapshot, signal: TurnJudged, to: State) -> tuple[Snapshot, Effects]:
    turn = s.turn + 1
    assert isinstance(signal.verdict, Limit)
    ending = Ending("limit", signal.verdict.reason)
    return moved(s, state=to, turn=turn, attempt=1, turn_calls=0, closing=True, ending=ending), (
        CallModel(f"t{turn}.model", tools=False),
    )


def queue_input(s: Snapshot, signal: InputQueued, to: State) -> tuple[Snapshot, Effects]:
    if signal.queue == "steering":
        return moved(s, steering=(*s.steering, signal.message)), ()
    return moved(s, follow_ups=(*s.follow_ups, signal.message)), ()
