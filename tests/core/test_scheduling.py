"""The life of a batch: which calls start when, and the order in which their results enter the history."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise import IllegalSignal, Policy, Snapshot, State, Text, ToolCall, ToolResult, start, step
from edgewise.statemachine.invariants import check_history, check_snapshot, check_step
from edgewise.statemachine.machine import advance
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.moves import CUT_OFF, Effects
from edgewise.statemachine.signals import (
    AskHook,
    CallDecided,
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    ModelReplied,
    Signal,
    StartCall,
)
from edgewise.statemachine.snapshot import ACTIVE, DEFAULT_POLICY


def _batch(*names: str, policy: Policy = DEFAULT_POLICY, stop_reason: str = "tool_use") -> tuple[Snapshot, Effects]:
    snapshot, _ = start(inputs=[user_message("go")], policy=policy)
    # One id for all of them, and that is empty: slots count, not ids.
    message = AssistantMessage(tuple(ToolCall("", name) for name in names), stop_reason)
    return step(snapshot, ModelReplied(message))


def _settled(i: int, name: str = "tool", stop: str | None = None) -> CallSettled:
    return CallSettled(i, ToolResult("", name, (Text(f"result {i}"),)), stop)


def _starts(effects: Effects) -> list[int]:
    return [effect.slot for effect in effects if isinstance(effect, StartCall)]


# ---- the order of results


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_results_enter_in_declaration_order_whatever_the_order_of_completion(order: tuple[int, ...]) -> None:
    snapshot, _ = _batch("tool", "tool", "tool", "tool")
    for n, slot in enumerate(order):
        snapshot, effects = step(snapshot, _settled(slot))
        assert effects == ((AskHook("t1.judge"),) if n == 3 else ())
        if n < 3:
            assert len(snapshot.history) == 2  # none enters before all are there
    assert [message.text for message in snapshot.history[2:]] == [f"result {i}" for i in range(4)]
    assert snapshot.state is State.BETWEEN_TURNS
    assert check_history(snapshot.history) == []


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_refused_returned_and_failed_calls_keep_their_places_too(order: tuple[int, ...]) -> None:
    snapshot, _ = _batch("a", "b", "c")
    for signal in (CallHeld(0, "money"), CallStarted(1), CallStarted(2), CallReturned(2, _settled(2, "c").result)):
        snapshot, _ = step(snapshot, signal)
    ends: list[Signal] = [CallDecided(0, False, "too dear"), _settled(1, "b"), _settled(2, "c")]
    for n in order:
        snapshot, _ = step(snapshot, ends[n])
    texts = [message.text for message in snapshot.history[2:]]
    assert texts == [
        "Refused by the user: too dear. The call was not executed.",
        "result 1",
        "result 2",
    ]
    assert [message.name for message in snapshot.history[2:]] == ["a", "b", "c"]  # type: ignore[union-attr]


def test_a_hook_may_put_another_result_in_place_of_the_one_on_record() -> None:
    snapshot, _ = _batch("a")
    snapshot, _ = step(snapshot, CallStarted(0))
    snapshot, _ = step(snapshot, CallReturned(0, ToolResult("", "a", (Text("raw"),))))
    snapshot, _ = step(snapshot, CallSettled(0, ToolResult("", "a", (Text("polished"),))))
    assert snapshot.history[-1].text == "polished"


def test_many_calls_may_start_at_one_edge() -> None:
    snapshot, _ = _batch("a", "b", "c", "d")
    snapshot, _ = step(snapshot, CallStarted(0, others=(2, 3)))
    assert [slot.status for slot in snapshot.batch.slots] == ["running", "starting", "running", "running"]
    assert [slot.attempts for slot in snapshot.batch.slots] == [1, 0, 1, 1]
    assert check_snapshot(snapshot) == []


@pytest.mark.parametrize("others", [(0,), (1, 1), (3,), (2,), (9,), (-1,)], ids=str)
def test_a_call_cannot_start_twice_at_one_edge_nor_with_one_that_may_not_start(others: tuple[int, ...]) -> None:
    snapshot, _ = _batch("a", "b", "c", "d", policy=Policy(max_parallel=3))
    snapshot, _ = step(snapshot, CallStarted(2))
    with pytest.raises(IllegalSignal):
        step(snapshot, CallStarted(0, others=others))


# ---- what starts when


def test_calls_start_in_declaration_order_under_the_cap() -> None:
    snapshot, effects = _batch(*["tool"] * 5, policy=Policy(max_parallel=2))
    assert _starts(effects) == [0, 1]
    for settle, then in ((1, [2]), (0, [3]), (3, [4]), (4, []), (2, [])):
        snapshot, effects = step(snapshot, _settled(settle))
        assert _starts(effects) == then
    assert snapshot.state is State.BETWEEN_TURNS


def test_an_exclusive_call_is_a_barrier() -> None:
    snapshot, effects = _batch("a", "b", "alone", "c", "d", policy=Policy(exclusive=frozenset({"alone"})))
    assert _starts(effects) == [0, 1]
    snapshot, effects = step(snapshot, _settled(0))
    assert _starts(effects) == []
    snapshot, effects = step(snapshot, _settled(1))
    assert _starts(effects) == [2]
    snapshot, effects = step(snapshot, _settled(2))
    assert _starts(effects) == [3, 4]


def test_exclusive_calls_run_one_after_the_other() -> None:
    snapshot, effects = _batch("alone", "alone", policy=Policy(exclusive=frozenset({"alone"})))
    assert _starts(effects) == [0]
    _, effects = step(snapshot, _settled(0))
    assert _starts(effects) == [1]


def test_an_approved_call_does_not_start_beside_an_exclusive_one() -> None:
    snapshot, _ = _batch("pay", "alone", policy=Policy(exclusive=frozenset({"alone"})))
    snapshot, effects = step(snapshot, CallHeld(0))
    assert _starts(effects) == [1]  # a held call stands aside
    snapshot, effects = step(snapshot, CallDecided(0, True))
    assert _starts(effects) == []
    snapshot, effects = step(snapshot, _settled(1))
    assert effects == (StartCall("t1.c0", 0, approved=True),)


def test_a_held_call_frees_its_place_under_the_cap() -> None:
    snapshot, effects = _batch("a", "b", policy=Policy(max_parallel=1))
    assert _starts(effects) == [0]
    snapshot, effects = step(snapshot, CallHeld(0))
    assert _starts(effects) == [1]
    snapshot, effects = step(snapshot, CallDecided(0, True))
    assert _starts(effects) == [] and snapshot.batch.slots[0].status == "waiting"
    snapshot, effects = step(snapshot, _settled(1))
    assert _starts(effects) == [0]


def test_when_only_held_calls_are_left_the_run_waits_for_a_person() -> None:
    snapshot, _ = _batch("a", "b")
    snapshot, _ = step(snapshot, CallHeld(0))
    assert snapshot.state is State.EXECUTING_TOOLS
    snapshot, _ = step(snapshot, _settled(1))
    assert snapshot.state is State.AWAITING_APPROVAL
    snapshot, effects = step(snapshot, CallDecided(0, True, arguments='{"amount": 1}'))
    assert snapshot.state is State.EXECUTING_TOOLS and _starts(effects) == [0]
    assert snapshot.batch.slots[0].arguments == '{"amount": 1}'


@pytest.mark.parametrize(
    ("held", "decided", "runs_with"), [(None, None, None), ("A", None, "A"), (None, "B", "B"), ("A", "B", "B")]
)
def test_an_approved_call_runs_with_the_arguments_that_were_said_last(
    held: str | None, decided: str | None, runs_with: str | None
) -> None:
    snapshot, _ = _batch("pay", "b")
    snapshot, _ = step(snapshot, CallHeld(0, "money", held))
    assert snapshot.batch.slots[0].arguments == held  # what a person is asked about
    snapshot, _ = step(snapshot, CallDecided(0, True, arguments=decided))
    assert snapshot.batch.slots[0].arguments == runs_with
    snapshot, _ = step(snapshot, CallStarted(0))
    assert snapshot.batch.slots[0].arguments == runs_with
    snapshot, _ = step(snapshot, CallStarted(0, 2, arguments="C"))  # after a crash, by a hook
    slot = snapshot.batch.slots[0]
    assert (slot.arguments, slot.attempts, slot.approved) == ("C", 2, True)


def test_each_held_call_is_decided_by_itself() -> None:
    snapshot, _ = _batch("a", "b")
    for signal in (CallHeld(0), CallHeld(1)):
        snapshot, _ = step(snapshot, signal)
    snapshot, effects = step(snapshot, CallDecided(1, False, "no"))
    assert snapshot.state is State.AWAITING_APPROVAL and effects == ()
    with pytest.raises(IllegalSignal, match="call 1 is settled"):
        step(snapshot, CallDecided(1, True))
    snapshot, effects = step(snapshot, CallDecided(0, True))
    assert _starts(effects) == [0]
    snapshot, _ = step(snapshot, _settled(0, "a"))
    assert [message.text for message in snapshot.history[2:]] == [
        "result 0",
        "Refused by the user: no. The call was not executed.",
    ]


def test_a_refusal_of_the_last_call_ends_the_turn() -> None:
    snapshot, _ = _batch("a")
    snapshot, _ = step(snapshot, CallHeld(0))
    snapshot, effects = step(snapshot, CallDecided(0, False))
    assert snapshot.state is State.BETWEEN_TURNS and effects == (AskHook("t1.judge"),)
    assert snapshot.history[-1].text == "Refused by the user: no reason given. The call was not executed."


@given(
    names=st.lists(st.sampled_from(["plain", "alone"]), min_size=1, max_size=8),
    cap=st.integers(1, 4),
    data=st.data(),
)
def test_no_call_runs_beside_an_exclusive_one_nor_over_the_cap_and_all_start(
    names: list[str], cap: int, data: st.DataObject
) -> None:
    policy = Policy(max_parallel=cap, exclusive=frozenset({"alone"}))
    snapshot, effects = _batch(*names, policy=policy)
    started: list[int] = []
    while snapshot.state is State.EXECUTING_TOOLS or snapshot.state is State.AWAITING_APPROVAL:
        started += _starts(effects)
        active = [i for i, slot in enumerate(snapshot.batch.slots) if slot.status in ACTIVE]
        assert len(active) <= cap
        assert len(active) <= 1 or all(names[i] == "plain" for i in active)
        signal = data.draw(st.sampled_from(_next(snapshot)))
        before, taken = snapshot, advance(snapshot, signal)
        assert check_step(before, signal, taken) == []
        snapshot, effects, _ = taken
    assert set(started) == set(range(len(names)))
    assert [message.text for message in snapshot.history[2:]] == [f"result {i}" for i in range(len(names))]


def _next(snapshot: Snapshot) -> list[Signal]:
    """What may happen to the calls; each is held at most once, and then approved."""
    signals: list[Signal] = []
    for i, slot in enumerate(snapshot.batch.slots):
        if slot.status == "starting":
            signals += [CallStarted(i), *([] if slot.approved else [CallHeld(i)])]
        elif slot.status == "running":
            signals.append(_settled(i, slot.call.name))
        elif slot.status == "held":
            signals.append(CallDecided(i, True))
    return signals


@given(names=st.lists(st.sampled_from(["plain", "alone"]), min_size=1, max_size=8), cap=st.integers(1, 4))
def test_without_held_calls_the_order_of_starts_is_that_of_declaration(names: list[str], cap: int) -> None:
    snapshot, effects = _batch(*names, policy=Policy(max_parallel=cap, exclusive=frozenset({"alone"})))
    started = _starts(effects)
    settled = 0
    while snapshot.state is State.EXECUTING_TOOLS:
        snapshot, effects = step(snapshot, _settled(started[settled], names[started[settled]]))
        settled += 1
        started += _starts(effects)
    assert started == list(range(len(names)))


# ---- content decides; a cut-off reply


@pytest.mark.parametrize("stop_reason", ["stop", "end_turn", "tool_use", "content_filter", "", "???"])
def test_calls_run_whatever_the_stop_reason_says(stop_reason: str) -> None:
    snapshot, effects = _batch("tool", stop_reason=stop_reason)
    assert snapshot.state is State.EXECUTING_TOOLS
    assert _starts(effects) == [0]


def test_words_end_the_turn_although_the_stop_reason_speaks_of_tools() -> None:
    snapshot, _ = start(inputs=[user_message("go")])
    snapshot, effects = step(snapshot, ModelReplied(AssistantMessage((Text("done"),), "tool_use")))
    assert snapshot.state is State.BETWEEN_TURNS and effects == (AskHook("t1.judge"),)


def test_no_call_of_a_cut_off_reply_runs_and_the_model_is_told_why() -> None:
    snapshot, effects = _batch("a", "b", stop_reason="length")
    assert snapshot.state is State.BETWEEN_TURNS
    assert effects == (AskHook("t1.judge"),)
    assert [message.text for message in snapshot.history[2:]] == [CUT_OFF, CUT_OFF]
    assert all(message.is_error for message in snapshot.history[2:])  # type: ignore[union-attr]
    assert (snapshot.turn_calls, snapshot.calls) == (2, 2)  # it is a turn with calls: the run goes on
    assert check_history(snapshot.history) == []
    assert "cut off by the output limit" in CUT_OFF and "Issue the call again" in CUT_OFF
