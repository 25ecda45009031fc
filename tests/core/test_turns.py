"""What comes after a turn: the next one, the end, a limit and its closing word, and what people said meanwhile."""

from __future__ import annotations

import pytest

from edgewise import Policy, Snapshot, State, Text, ToolCall, ToolResult, fold, start, step
from edgewise.statemachine.errors import Failure
from edgewise.statemachine.invariants import check_history, check_snapshot
from edgewise.statemachine.messages import AssistantMessage, Usage, user_message
from edgewise.statemachine.moves import LIMIT_REACHED
from edgewise.statemachine.signals import (
    AbortRequested,
    AskHook,
    CallModel,
    CallSettled,
    HookFailed,
    InputQueued,
    ModelFailed,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.verdicts import Continue, Finish, Limit

ABORT = AbortRequested("enough")
AUTH = Failure("auth", "no such key")
FLAKY = Failure("network", "gone", retryable=True)
ANSWER = ModelReplied(AssistantMessage((Text("hello"),)))
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


# ---- verdicts, limits and the closing word


def test_a_run_is_done_when_no_call_and_no_input_is_left() -> None:
    snapshot, effects = step(fold(_begun(), [ANSWER]), GO_ON)
    assert (snapshot.state, snapshot.ending, effects) == (State.DONE, None, ())


def test_a_turn_with_calls_is_followed_by_another() -> None:
    snapshot, effects = step(fold(_begun(), [_asked(), _settled(0)]), GO_ON)
    assert snapshot.turn == 2 and effects == (CallModel("t2.model"),)


def test_finish_ends_the_run_done_whatever_is_left() -> None:
    snapshot = fold(_begun(), [_asked(), _settled(0), TurnJudged(Finish("good enough"))])
    assert _ended(snapshot) == ("done", "finish", "good enough")


def test_a_limit_ends_the_run_in_a_state_of_its_own() -> None:
    snapshot = fold(_begun(), [_asked(), _settled(0), TurnJudged(Limit("3 turns"))])
    assert _ended(snapshot) == ("limit_exceeded", "limit", "3 turns")


def _closing() -> Snapshot:
    snapshot, effects = step(fold(_begun(), [_asked(), _settled(0)]), TurnJudged(Limit("3 turns", wrap_up=True)))
    assert snapshot.closing and effects == (CallModel("t2.model", tools=False),)
    return snapshot


def test_a_closing_word_is_the_last() -> None:
    snapshot, effects = step(_closing(), ANSWER)
    assert effects == () and not snapshot.closing
    assert _ended(snapshot) == ("limit_exceeded", "limit", "3 turns")
    assert snapshot.history[-1].text == "hello"


def test_a_closing_word_that_calls_tools_nevertheless_gets_them_refused() -> None:
    snapshot, effects = step(_closing(), _asked(2))
    assert effects == () and _texts(snapshot)[-2:] == [LIMIT_REACHED, LIMIT_REACHED]
    assert _ended(snapshot) == ("limit_exceeded", "limit", "3 turns")


def test_a_closing_word_that_fails_leaves_the_limit_as_it_is() -> None:
    snapshot, effects = step(_closing(), ModelFailed(FLAKY))
    assert effects == (CallModel("t2.model", 2, tools=False),)
    for failure, partial in ((AUTH, None), (AUTH, AssistantMessage((Text("we di"),)))):
        after = fold(snapshot, [ModelFailed(failure, partial)])
        assert _ended(after) == ("limit_exceeded", "limit", "3 turns")
        assert (after.history[-1].text == "we di") == (partial is not None)


def test_an_abort_overtakes_the_closing_word() -> None:
    snapshot = fold(_closing(), [ABORT, ModelFailed(Failure("aborted", "cancelled"))])
    assert _ended(snapshot) == ("aborted", "abort", "enough")


# ---- what people say meanwhile


def _said(text: str, queue: str = "steering") -> InputQueued:
    return InputQueued(user_message(text), queue)  # type: ignore[arg-type]


def test_steering_enters_at_the_next_boundary_after_the_results() -> None:
    signals: list[Signal] = [_asked(2), _said("wait"), _settled(1, "B"), _settled(0, "A"), GO_ON]
    assert _texts(fold(_begun(), signals)) == ["go", "", "A", "B", "wait"]


def test_follow_ups_wait_until_the_run_would_end() -> None:
    snapshot = fold(_begun(), [_said("later", "follow_up"), _asked(), _settled(0, "A"), GO_ON])
    assert _texts(snapshot) == ["go", "", "A"] and len(snapshot.follow_ups) == 1
    snapshot = fold(snapshot, [ANSWER, GO_ON])
    assert _texts(snapshot) == ["go", "", "A", "hello", "later"] and snapshot.state is State.AWAITING_MODEL


def test_steering_goes_before_follow_ups() -> None:
    snapshot = fold(_begun(), [_said("later", "follow_up"), _said("now"), ANSWER, GO_ON])
    assert _texts(snapshot)[-1] == "now" and [m.text for m in snapshot.follow_ups] == ["later"]


@pytest.mark.parametrize("queue", ["steering", "follow_up"])
@pytest.mark.parametrize(("mode", "entered"), [("one", ["1"]), ("all", ["1", "2", "3"])])
def test_a_queue_is_taken_one_at_a_time_or_all_at_once(queue: str, mode: str, entered: list[str]) -> None:
    policy = Policy(**{"steering" if queue == "steering" else "follow_ups": mode})  # type: ignore[arg-type]
    said = [_said(text, queue) for text in "123"]
    snapshot = fold(_begun(policy), [*said, ANSWER, GO_ON])
    assert _texts(snapshot)[2:] == entered
    left = (*snapshot.steering, *snapshot.follow_ups)
    assert [m.text for m in left] == ["1", "2", "3"][len(entered) :]


def test_what_was_not_said_in_time_is_still_queued_at_the_end() -> None:
    said = [_said("a"), _said("b", "follow_up")]
    ends: list[list[Signal]] = [
        [ABORT, ModelFailed(Failure("aborted", "cancelled"))],
        [ModelFailed(AUTH)],
        [ANSWER, TurnJudged(Limit("enough"))],
        [ANSWER, TurnJudged(Finish())],
        [ANSWER, HookFailed("should_continue", "ValueError: no")],
    ]
    for end in ends:
        snapshot = fold(_begun(), [*said, *end])
        assert snapshot.state.final
        assert [m.text for m in (*snapshot.steering, *snapshot.follow_ups)] == ["a", "b"]


def test_the_hook_is_asked_after_each_turn_once() -> None:
    snapshot, effects = step(_begun(), ANSWER)
    assert effects == (AskHook("t1.judge"),)
    snapshot, effects = step(snapshot, _said("more"))
    assert effects == ()
    snapshot, effects = step(fold(snapshot, [GO_ON]), ANSWER)
    assert effects == (AskHook("t2.judge"),)


def test_usage_and_calls_add_up_over_the_run() -> None:
    asked = ModelReplied(AssistantMessage((ToolCall("", "a"),), usage=Usage(10, 1, 2, 3, 0.5)))
    snapshot = fold(_begun(), [asked, _settled(0), GO_ON, asked, _settled(0)])
    assert snapshot.usage == Usage(20, 2, 4, 6, 1.0)
    assert (snapshot.calls, snapshot.usage.total_tokens) == (2, 22)
