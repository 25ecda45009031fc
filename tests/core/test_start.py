"""Where a run begins: on nothing, on an answered history, on calls that still want their results."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise import (
    Message,
    MisuseError,
    Policy,
    Snapshot,
    State,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
    fold,
    legal,
    outstanding,
    start,
    step,
)
from edgewise.statemachine.errors import Failure
from edgewise.statemachine.history import History
from edgewise.statemachine.invariants import check_history, check_snapshot
from edgewise.statemachine.machine import INTERRUPTED
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.signals import (
    AbortRequested,
    AskHook,
    CallDecided,
    CallHeld,
    CallModel,
    CallReturned,
    CallSettled,
    CallStarted,
    ModelFailed,
    ModelReplied,
    Signal,
    StartCall,
    TurnJudged,
)
from edgewise.statemachine.verdicts import Continue

HI, MORE = user_message("hi"), user_message("and more")
ANSWER = AssistantMessage((Text("hello"),))


def _calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple(ToolCall(id, f"tool_{n}") for n, id in enumerate(ids)))


def _result(id: str, text: str, n: int = 0) -> ToolResult:
    return ToolResult(id, f"tool_{n}", (Text(text),))


def _texts(history: Any) -> list[str]:
    return [message.text for message in history]


# ---- a history that is answered


def test_a_run_begins_with_its_input_and_a_model_call() -> None:
    snapshot, effects = start(inputs=[HI])
    assert (snapshot.state, list(snapshot.history)) == (State.AWAITING_MODEL, [HI])
    assert effects == (CallModel("t1.model"),)


def test_a_run_continues_an_answered_history() -> None:
    snapshot, effects = start([HI, ANSWER], [MORE])
    assert list(snapshot.history) == [HI, ANSWER, MORE]
    assert (snapshot.turn, snapshot.calls, effects) == (1, 0, (CallModel("t1.model"),))


def test_a_run_needs_no_input_when_its_history_has_one() -> None:
    history: list[Message] = [HI, _calls("a"), _result("a", "done")]
    snapshot, effects = start(history)
    assert list(snapshot.history) == history
    assert effects == (CallModel("t1.model"),)


def test_a_run_with_nothing_to_say_is_refused() -> None:
    with pytest.raises(MisuseError, match="needs something to say: give it an input, or a history that is not empty"):
        start()


def test_a_history_is_shared_with_the_run_that_continues_it() -> None:
    past = History([HI, ANSWER])
    snapshot, _ = start(past)
    assert snapshot.history is past


def test_the_policy_rides_along() -> None:
    policy = Policy(max_parallel=2)
    assert start(inputs=[HI], policy=policy)[0].policy is policy


# ---- a history that ends in unanswered calls


def test_unanswered_calls_run_before_the_model_is_asked() -> None:
    snapshot, effects = start([HI, _calls("a", "b")])
    assert snapshot.state is State.EXECUTING_TOOLS
    assert effects == (StartCall("t1.c0", 0), StartCall("t1.c1", 1))
    assert check_snapshot(snapshot) == []


def test_input_waits_until_unanswered_calls_have_their_results() -> None:
    snapshot, _ = start([HI, _calls("a")], [MORE])
    assert snapshot.steering == (MORE,)
    snapshot, _ = step(snapshot, CallSettled(0, _result("a", "done")))
    snapshot, effects = step(snapshot, TurnJudged(Continue()))
    assert _texts(snapshot.history) == ["hi", "", "done", "and more"]
    assert effects == (CallModel("t2.model"),)


def test_only_the_calls_without_a_result_run() -> None:
    snapshot, effects = start([HI, _calls("a", "b", "c"), _result("b", "B", 1)])
    assert effects == (StartCall("t1.c0", 0), StartCall("t1.c2", 2))
    for slot, text in ((2, "C"), (0, "A")):
        snapshot, _ = step(snapshot, CallSettled(slot, _result("abc"[slot], text, slot)))
    assert _texts(snapshot.history) == ["hi", "", "A", "B", "C"]
    assert check_history(snapshot.history) == []


def test_results_that_stand_out_of_order_are_put_in_order() -> None:
    history = [HI, _calls("a", "b", "c"), _result("c", "C", 2), _result("a", "A", 0)]
    snapshot, effects = start(history)
    assert effects == (StartCall("t1.c1", 1),)
    snapshot, _ = step(snapshot, CallSettled(1, _result("b", "B", 1)))
    assert _texts(snapshot.history) == ["hi", "", "A", "B", "C"]


def test_results_without_ids_belong_to_the_calls_in_order() -> None:
    snapshot, effects = start([HI, _calls("", "", ""), _result("", "A", 0)])
    assert effects == (StartCall("t1.c1", 1), StartCall("t1.c2", 2))
    assert snapshot.batch.slots[0].result == _result("", "A", 0)


def test_a_result_with_the_right_id_is_not_displaced_by_one_with_a_foreign_id() -> None:
    history = [HI, _calls("a", "b", "c"), _result("foreign", "B", 1), _result("a", "A", 0)]
    snapshot, effects = start(history)
    assert effects == (StartCall("t1.c2", 2),)
    assert [slot.result.text for slot in snapshot.batch.slots if slot.result] == ["A", "B"]


def test_a_call_that_was_started_is_not_run_again() -> None:
    snapshot, effects = start([HI, _calls("a", "b")], started=[0])
    assert effects == (StartCall("t1.c1", 1),)
    result = snapshot.batch.slots[0].result
    assert result is not None and result.is_error and result.text == INTERRUPTED
    assert "whether it took effect is unknown" in INTERRUPTED


def test_when_every_call_was_started_the_model_is_told_and_asked() -> None:
    snapshot, effects = start([HI, _calls("a", "b"), _result("b", "B", 1)], [MORE], started=[0, 1])
    assert _texts(snapshot.history) == ["hi", "", INTERRUPTED, "B", "and more"]
    assert effects == (CallModel("t1.model"),)
    assert check_history(snapshot.history) == []


def test_unanswered_calls_heed_the_policy() -> None:
    _, effects = start([_calls("a", "b", "c")], policy=Policy(max_parallel=2))
    assert effects == (StartCall("t1.c0", 0), StartCall("t1.c1", 1))


@given(
    results=st.permutations(range(4)).flatmap(lambda order: st.integers(0, 4).map(lambda n: order[:n])),
    started=st.sets(st.integers(0, 3)),
)
def test_whatever_a_history_lacks_is_made_good_in_order(results: list[int], started: set[int]) -> None:
    asked = _calls("a", "b", "c", "d")
    history = [HI, asked, *(_result("abcd"[n], f"old {n}", n) for n in results)]
    snapshot, effects = start(history, [MORE], started=started)
    to_run = [effect.slot for effect in effects if isinstance(effect, StartCall)]
    assert to_run == [n for n in range(4) if n not in results and n not in started]
    for n in to_run:
        snapshot, _ = step(snapshot, CallSettled(n, _result("abcd"[n], f"new {n}", n)))
    assert check_history(snapshot.history) == []
    expected = [f"old {n}" if n in results else f"new {n}" if n in to_run else INTERRUPTED for n in range(4)]
    assert _texts(snapshot.history)[2:6] == expected


# ---- legal, fold, outstanding


def test_legal_follows_the_state() -> None:
    snapshot, _ = start(inputs=[HI])
    assert "ModelReplied" in legal(snapshot) and "TurnJudged" not in legal(snapshot)
    snapshot, _ = step(snapshot, ModelReplied(ANSWER))
    assert legal(snapshot) == ("TurnJudged", "AbortRequested", "HookFailed", "InputQueued")


def test_fold_is_step_after_step() -> None:
    snapshot, _ = start(inputs=[HI])
    signals: list[Signal] = [ModelReplied(_calls("a")), CallStarted(0), CallSettled(0, _result("a", "A"))]
    by_hand = snapshot
    for signal in signals:
        by_hand, _ = step(by_hand, signal)
    assert fold(snapshot, signals) == by_hand
    assert fold(snapshot, []) is snapshot


FLAKY = ModelFailed(Failure("network", "gone", retryable=True), delay=2.0)
WAYS: list[tuple[str, list[Signal], tuple[Any, ...]]] = [
    ("the model", [], (CallModel("t1.model"),)),
    ("a retry, without its delay", [FLAKY], (CallModel("t1.model", 2),)),
    ("starting calls", [ModelReplied(_calls("a", "b"))], (StartCall("t1.c0", 0), StartCall("t1.c1", 1))),
    ("running calls", [ModelReplied(_calls("a")), CallStarted(0)], (StartCall("t1.c0", 0),)),
    (
        "calls whose hook has yet to look",
        [ModelReplied(_calls("a")), CallStarted(0), CallReturned(0, _result("a", "A"))],
        (StartCall("t1.c0", 0),),
    ),
    ("nothing, when a person must decide", [ModelReplied(_calls("a")), CallHeld(0)], ()),
    (
        "approved calls",
        [ModelReplied(_calls("a")), CallHeld(0), CallDecided(0, True)],
        (StartCall("t1.c0", 0, approved=True),),
    ),
    (
        "what is not settled",
        [ModelReplied(_calls("a", "b")), CallSettled(0, _result("a", "A"))],
        (StartCall("t1.c1", 1),),
    ),
    ("the hook", [ModelReplied(ANSWER)], (AskHook("t1.judge"),)),
    ("calls to be cancelled", [ModelReplied(_calls("a")), CallStarted(0), AbortRequested()], (StartCall("t1.c0", 0),)),
    ("nothing, at the end", [ModelReplied(ANSWER), TurnJudged(Continue())], ()),
]


@pytest.mark.parametrize(("signals", "effects"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])
def test_outstanding_is_what_a_run_at_rest_waits_for(signals: list[Signal], effects: tuple[Any, ...]) -> None:
    snapshot, _ = start(inputs=[HI])
    assert outstanding(fold(snapshot, signals)) == effects


def test_effects_keep_their_ids_over_retries_and_resumption() -> None:
    snapshot, _ = start(inputs=[HI])
    ids = []
    for signal in (FLAKY, FLAKY):
        snapshot, effects = step(snapshot, signal)
        ids += [effect.id for effect in effects] + [effect.id for effect in outstanding(snapshot)]
    assert set(ids) == {"t1.model"}
    snapshot = fold(snapshot, [ModelReplied(_calls("a")), CallStarted(0)])
    assert [effect.id for effect in outstanding(snapshot)] == ["t1.c0"]
    again = fold(snapshot, [CallStarted(0, 2)])
    assert [effect.id for effect in outstanding(again)] == ["t1.c0"]
    assert again.batch.slots[0].attempts == 2


def test_a_run_starts_from_user_messages_alone() -> None:
    snapshot, _ = start([UserMessage((Text("a"),)), UserMessage((Text("b"),))])
    assert isinstance(snapshot, Snapshot) and len(snapshot.history) == 2
