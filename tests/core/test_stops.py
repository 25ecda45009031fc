"""How runs stop before they are done: aborts, refusals that stop, hooks and models that fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from edgewise import IllegalSignal, Policy, Snapshot, State, Text, ToolCall, ToolResult, fold, start, step
from edgewise.statemachine.errors import Failure
from edgewise.statemachine.invariants import check_history, check_snapshot
from edgewise.statemachine.messages import AssistantMessage, Usage, user_message
from edgewise.statemachine.signals import (
    AbortRequested,
    CallHeld,
    CallModel,
    CallReturned,
    CallSettled,
    CallStarted,
    CancelCall,
    CancelModel,
    HookFailed,
    InputQueued,
    ModelFailed,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.verdicts import Continue

ABORT = AbortRequested("enough")
NO = HookFailed("authorize", "ValueError: no")
AUTH = Failure("auth", "no such key")
FLAKY = Failure("network", "gone", retryable=True)
ANSWER = ModelReplied(AssistantMessage((Text("hello"),)))
NOT_STARTED = "Not executed: the run was aborted before this call started: enough"
GO_ON = TurnJudged(Continue())


def _begun(policy: Policy | None = None) -> Snapshot:
    return start(inputs=[user_message("go")], policy=policy or Policy())[0]


def _asked(count: int = 1) -> ModelReplied:
    return ModelReplied(AssistantMessage((ToolCall("", "tool"),) * count))


def _settled(i: int, text: str = "ok", stop: str | None = None) -> CallSettled:
    return CallSettled(i, ToolResult("", "tool", (Text(text),)), stop)


def _texts(snapshot: Snapshot) -> list[str]:
    return [message.text for message in snapshot.history]


def _ended(snapshot: Snapshot) -> tuple[str, str, str]:
    assert check_snapshot(snapshot) == [] and check_history(snapshot.history) == []
    assert snapshot.ending is not None
    return snapshot.state.value, snapshot.ending.kind, snapshot.ending.reason


# ---- aborts


def test_every_live_state_hears_an_abort_and_every_call_gets_its_result(
    reached: Mapping[State, Sequence[Snapshot]],
) -> None:
    for state in State:
        for snapshot in reached[state]:
            if state.final:
                continue
            after = snapshot
            if state is not State.ABORTING:
                after, effects = step(snapshot, ABORT)
                assert {effect.kind for effect in effects} <= {"CancelCall", "CancelModel"}
            for i, slot in enumerate(after.batch.slots):
                if slot.status == "running":
                    after, effects = step(after, CallSettled(i, ToolResult("", slot.call.name, ())))
                    assert effects == ()
            if not after.state.final:
                after, effects = step(after, ModelFailed(Failure("aborted", "cancelled")))
                assert effects == ()
            assert after.state in (State.ABORTED, State.FAILED)
            assert check_snapshot(after) == []
            assert (after.steering, after.follow_ups) == (snapshot.steering, snapshot.follow_ups)


def test_an_abort_during_a_request_cancels_it_and_is_recorded() -> None:
    snapshot, effects = step(_begun(), ABORT)
    assert snapshot.state is State.ABORTING and effects == (CancelModel("t1.model"),)
    snapshot, effects = step(snapshot, ModelFailed(Failure("aborted", "cancelled")))
    assert _ended(snapshot) == ("aborted", "abort", "enough") and effects == ()
    # Even when nothing had come, the history shows where the run was interrupted.
    assert snapshot.history[-1] == AssistantMessage((), "aborted")


def test_a_partial_reply_is_kept_marked_and_its_calls_are_answered() -> None:
    partial = AssistantMessage((Text("I will"), ToolCall("a", "tool", '{"pa')), "error", Usage(10, 2))
    snapshot = fold(_begun(), [ABORT, ModelFailed(Failure("aborted", "cancelled"), partial)])
    kept, result = snapshot.history[-2:]
    assert isinstance(kept, AssistantMessage) and (kept.stop_reason, kept.content) == ("aborted", partial.content)
    assert result.text == NOT_STARTED
    assert snapshot.usage == Usage(10, 2)
    _ended(snapshot)


def test_a_reply_that_was_faster_than_the_abort_is_kept_and_nothing_of_it_runs() -> None:
    snapshot, _ = step(_begun(), ABORT)
    snapshot, effects = step(snapshot, _asked(2))
    assert effects == () and _texts(snapshot)[-2:] == [NOT_STARTED, NOT_STARTED]
    assert _ended(snapshot) == ("aborted", "abort", "enough")


def test_calls_that_had_not_started_are_settled_at_once() -> None:
    snapshot, effects = step(fold(_begun(), [_asked(2)]), ABORT)
    assert effects == () and _texts(snapshot)[-2:] == [NOT_STARTED, NOT_STARTED]
    assert _ended(snapshot) == ("aborted", "abort", "enough")


def test_running_calls_are_cancelled_and_waited_for() -> None:
    before = fold(_begun(), [_asked(3), CallStarted(0), CallStarted(2)])
    snapshot, effects = step(before, ABORT)
    assert snapshot.state is State.ABORTING
    assert effects == (CancelCall("t1.c0", 0), CancelCall("t1.c2", 2))
    snapshot, effects = step(snapshot, _settled(2, "cleaned up"))
    assert snapshot.state is State.ABORTING and effects == ()
    snapshot, _ = step(snapshot, _settled(0, "done after all"))
    assert _texts(snapshot)[-3:] == ["done after all", NOT_STARTED, "cleaned up"]
    assert _ended(snapshot) == ("aborted", "abort", "enough")


def test_results_that_were_there_before_the_abort_are_kept() -> None:
    signals: list[Signal] = [
        _asked(3),
        _settled(0, "first"),
        CallStarted(1),
        CallReturned(1, ToolResult("", "tool", (Text("on record"),))),
        CallStarted(2),
        ABORT,
        _settled(2, "last"),
    ]
    snapshot = fold(_begun(), signals)
    assert _texts(snapshot)[-3:] == ["first", "on record", "last"]


def test_a_start_that_was_prepared_before_an_abort_is_refused() -> None:
    snapshot = fold(_begun(), [_asked(2), CallStarted(0), ABORT])
    for signal in (CallStarted(1), CallStarted(0), CallHeld(1), CallReturned(0, ToolResult("", "a", ()))):
        with pytest.raises(IllegalSignal):
            step(snapshot, signal)


def test_a_held_call_is_answered_when_the_run_is_aborted() -> None:
    snapshot = fold(_begun(), [_asked(), CallHeld(0)])
    assert snapshot.state is State.AWAITING_APPROVAL
    snapshot, effects = step(snapshot, ABORT)
    assert effects == () and snapshot.history[-1].text == NOT_STARTED
    assert _ended(snapshot) == ("aborted", "abort", "enough")


def test_an_abort_between_turns_ends_the_run() -> None:
    snapshot, effects = step(fold(_begun(), [_asked(), _settled(0)]), ABORT)
    assert effects == () and _ended(snapshot) == ("aborted", "abort", "enough")


def test_an_abort_without_a_reason_says_no_more_than_that() -> None:
    snapshot = fold(_begun(), [_asked(), AbortRequested()])
    assert snapshot.history[-1].text == "Not executed: the run was aborted before this call started"


# ---- a refusal that stops


def test_a_refusal_that_stops_ends_the_run_with_its_reason() -> None:
    snapshot = fold(_begun(), [_asked(2), _settled(0, "Not permitted.", stop="that is forbidden")])
    assert _ended(snapshot) == ("aborted", "refusal", "that is forbidden")
    assert _texts(snapshot)[-2:] == [
        "Not permitted.",
        "Not executed: the run ended before this call started: that is forbidden",
    ]


def test_a_refusal_that_stops_waits_for_what_runs() -> None:
    snapshot = fold(_begun(), [_asked(2), CallStarted(1)])
    snapshot, effects = step(snapshot, _settled(0, "Not permitted.", stop="forbidden"))
    assert snapshot.state is State.ABORTING and effects == (CancelCall("t1.c1", 1),)
    assert _ended(fold(snapshot, [_settled(1)])) == ("aborted", "refusal", "forbidden")


# ---- hooks that fail


@pytest.mark.parametrize("state", [State.AWAITING_MODEL, State.EXECUTING_TOOLS, State.BETWEEN_TURNS])
def test_a_failing_hook_ends_the_run_failed_and_no_message_is_lost(
    state: State, reached: Mapping[State, Sequence[Snapshot]]
) -> None:
    for snapshot in reached[state]:
        before = list(snapshot.history)
        known = {i: slot.result for i, slot in enumerate(snapshot.batch.slots) if slot.result is not None}
        after, effects = step(snapshot, NO)
        running = [i for i, slot in enumerate(snapshot.batch.slots) if slot.status == "running"]
        assert [effect.kind for effect in effects] == ["CancelCall"] * len(running)
        for i in running:
            after, _ = step(after, CallSettled(i, ToolResult("", snapshot.batch.slots[i].call.name, ())))
        assert _ended(after) == ("failed", "hook", "the hook authorize raised ValueError: no")
        assert list(after.history)[: len(before)] == before
        for i, result in known.items():
            assert after.history[len(before) + i] == result


@pytest.mark.parametrize("state", [State.AWAITING_APPROVAL, State.ABORTING, State.DONE])
def test_no_hook_runs_where_nothing_is_under_way(state: State, reached: Mapping[State, Sequence[Snapshot]]) -> None:
    for snapshot in reached[state]:
        with pytest.raises(IllegalSignal):
            step(snapshot, NO)


def test_after_a_fault_the_run_is_failed_not_aborted() -> None:
    snapshot = fold(_begun(), [_asked(2), CallStarted(1), NO])
    assert snapshot.state is State.ABORTING
    assert _ended(fold(snapshot, [_settled(1)])) == ("failed", "hook", "the hook authorize raised ValueError: no")
    assert snapshot.batch.slots[0].result is not None
    assert snapshot.batch.slots[0].result.text.startswith("Not executed: the run ended before this call started: the")


# ---- models that fail


def test_a_failure_that_may_pass_is_tried_again_as_often_as_the_policy_says() -> None:
    snapshot = _begun(Policy(model_attempts=3))
    for attempt in (2, 3):
        snapshot, effects = step(snapshot, ModelFailed(FLAKY, delay=1.5))
        assert effects == (CallModel("t1.model", attempt, 1.5),)
    snapshot, effects = step(snapshot, ModelFailed(FLAKY))
    assert effects == ()
    assert _ended(snapshot) == ("failed", "model", "the model call failed: network: gone (after 3 attempts)")


def test_a_failure_that_cannot_pass_ends_the_run_at_once() -> None:
    snapshot = fold(_begun(), [ModelFailed(AUTH)])
    assert _ended(snapshot) == ("failed", "model", "the model call failed: auth: no such key")
    assert snapshot.ending is not None and snapshot.ending.failure == AUTH


def test_the_attempts_are_counted_anew_in_each_turn() -> None:
    snapshot = fold(_begun(Policy(model_attempts=2)), [ModelFailed(FLAKY), _asked(), _settled(0), GO_ON])
    assert snapshot.attempt == 1
    _, effects = step(snapshot, ModelFailed(FLAKY))
    assert effects == (CallModel("t2.model", 2),)


def test_what_a_failed_reply_held_is_void_when_it_is_tried_again_but_it_cost_what_it_cost() -> None:
    partial = AssistantMessage((Text("half"), ToolCall("a", "tool")), "error", Usage(7, 3))
    snapshot = fold(_begun(), [ModelFailed(FLAKY, partial)])
    assert len(snapshot.history) == 1 and snapshot.usage == Usage(7, 3)
    snapshot = fold(snapshot, [ANSWER])
    assert _texts(snapshot) == ["go", "hello"]


def test_a_final_failure_keeps_the_partial_reply_and_answers_its_calls() -> None:
    partial = AssistantMessage((Text("half"), ToolCall("a", "tool")), "stop", Usage(7, 3))
    snapshot = fold(_begun(), [ModelFailed(AUTH, partial)])
    assert isinstance(snapshot.history[1], AssistantMessage) and snapshot.history[1].stop_reason == "error"
    assert snapshot.history[2].text == (
        "Not executed: the run ended before this call started: the model call failed: auth: no such key"
    )
    _ended(snapshot)


TOO_LONG = ModelFailed(Failure("context_overflow", "too long"), can_compact=True)


def test_an_overflowing_request_is_shortened_once_for_each_input() -> None:
    snapshot, effects = step(_begun(), TOO_LONG)
    assert effects == (CallModel("t1.model", 2, compact=True),)
    assert _ended(fold(snapshot, [TOO_LONG]))[:2] == ("failed", "model")
    # The next turn of the same input gets no second chance ...
    later = fold(snapshot, [_asked(), _settled(0), GO_ON])
    assert fold(later, [TOO_LONG]).state is State.FAILED
    # ... and a new input does.
    more = InputQueued(user_message("and"))
    spoken = fold(snapshot, [_asked(), _settled(0), more, GO_ON])
    assert fold(spoken, [TOO_LONG]).state is State.AWAITING_MODEL


def test_an_overflow_that_nobody_can_shorten_ends_the_run() -> None:
    assert fold(_begun(), [ModelFailed(Failure("context_overflow", "too long"))]).state is State.FAILED
