"""The checker: what it finds wrong with histories; the machine keeps every rule, and broken machines are caught."""

from __future__ import annotations

from typing import Any

import pytest

from edgewise import Message, Policy, Snapshot, State, Text, ToolCall, ToolResult, start
from edgewise.statemachine.checking import (
    Exploration,
    Scope,
    check_history,
    check_snapshot,
    explore,
)
from edgewise.statemachine.history import History
from edgewise.statemachine.machine import advance
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.signals import (
    CallStarted,
    ModelReplied,
)
from edgewise.statemachine.snapshot import Batch, moved

A, B = ToolCall("a", "read"), ToolCall("b", "write")
ASKED = AssistantMessage((Text("look:"), A, B))


def _result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, call.name, (Text("ok"),))


# ---- histories


@pytest.mark.parametrize(
    "history",
    [
        [],
        [user_message("hi"), AssistantMessage((Text("hello"),))],
        [ASKED, _result(A), _result(B)],
        [ASKED, _result(A), _result(B), ASKED, _result(A), _result(B), user_message("and")],
        [AssistantMessage((ToolCall("", "x"), ToolCall("", "x"))), ToolResult("", "x", ()), ToolResult("", "x", ())],
        [user_message("a"), user_message("b"), AssistantMessage(())],
    ],
    ids=["empty", "words", "one batch", "two batches", "ids empty and double", "no calls"],
)
def test_a_valid_history_has_no_fault(history: list[Message]) -> None:
    assert check_history(history) == []
    assert check_history(iter(history)) == []


@pytest.mark.parametrize(
    ("history", "faults"),
    [
        ([ASKED], ["the history ends without the result of call 0 (read), 1 (write) of message 0"]),
        ([ASKED, _result(A)], ["the history ends without the result of call 1 (write) of message 0"]),
        (
            [ASKED, _result(B), _result(A)],
            [
                "message 1 answers write (id 'b') where the result of call 0 of message 0, read (id 'a'), belongs",
                "message 2 answers read (id 'a') where the result of call 1 of message 0, write (id 'b'), belongs",
            ],
        ),
        (
            [ASKED, _result(A), user_message("wait"), _result(B)],
            [
                "message 2 (user) stands where the result of call 1 (write) of message 0 belongs",
                "message 3 is a result of write without a call: no call stands before it",
            ],
        ),
        (
            [ASKED, _result(A), _result(B), _result(B)],
            ["message 3 is a result of write without a call: every call before it has its result"],
        ),
        ([_result(A)], ["message 0 is a result of read without a call: no call stands before it"]),
        (
            [ASKED, ASKED, _result(A), _result(B)],
            ["message 1 (assistant) stands where the result of call 0 (read) of message 0 belongs"],
        ),
    ],
    ids=["none", "one", "swapped", "something between", "one too many", "orphan", "the model spoke first"],
)
def test_what_is_wrong_with_a_history_is_said(history: list[Message], faults: list[str]) -> None:
    assert check_history(history) == faults


def test_the_last_calls_may_be_open_and_nothing_else() -> None:
    assert check_history([user_message("go"), ASKED], open_end=True) == []
    assert check_history([ASKED, _result(A)], open_end=True) != []
    assert check_history([ASKED, user_message("x")], open_end=True) != []


# ---- snapshots


def _running() -> Snapshot:
    snapshot, _ = start(inputs=[user_message("go")])
    for signal in (ModelReplied(ASKED), CallStarted(0), CallStarted(1)):
        snapshot = advance(snapshot, signal).snapshot
    return snapshot


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"batch": Batch()}, "no call is at work in executing_tools"),
        ({"state": State.BETWEEN_TURNS}, "calls are open in state between_turns"),
        ({"state": State.AWAITING_APPROVAL}, "2 calls are at work and 0 held in awaiting_approval"),
        ({"policy": Policy(max_parallel=1)}, "2 calls at once, where 1 may be"),
        ({"policy": Policy(exclusive=frozenset({"write"}))}, "call 1 (write) is to run alone, and 2 are at work"),
        ({"history": History([user_message("go")])}, "the batch is not that of the last message"),
        ({"history": History([ASKED, ASKED])}, "message 1 (assistant) stands where"),
        ({"attempt": 5}, "attempt 5 at a request that may be sent 3 times"),
        ({"state": State.ABORTING}, "the run is aborting and says None of why"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_said(changes: dict[str, Any], fault: str) -> None:
    assert check_snapshot(_running()) == []
    assert fault in "\n".join(check_snapshot(moved(_running(), **changes)))


# ---- the machine keeps the rules


def _show(found: Exploration) -> None:
    """The figures, for `pytest -rP`."""
    print(found)  # noqa: T201


def test_two_calls_in_two_turns_keep_every_rule_and_take_every_row() -> None:
    found = explore()
    _show(found)
    assert found.untaken == ()
    assert set(found.finals) == {state for state in State if state.final}
    assert found.states > 4_000 and found.edges > 5 * found.states


@pytest.mark.parametrize(
    "policy",
    [
        Policy(1, frozenset(), 1, "all", "all"),
        Policy(3, frozenset({"alone"}), 3, "one", "all"),
    ],
    ids=["one at a time", "many at a time"],
)
def test_the_rules_hold_under_other_policies_and_with_more_input(policy: Policy) -> None:
    _show(explore(Scope(inputs=2, policy=policy, exclusive=bool(policy.exclusive), restarts=False, returned=False)))


@pytest.mark.slow
def test_three_calls_in_two_turns_keep_every_rule() -> None:
    found = explore(Scope(calls=3))
    _show(found)
    assert found.untaken == ()


def test_a_scope_without_trouble_never_takes_the_rows_of_trouble() -> None:
    calm = Scope(
        aborts=False, model_failures=False, hook_failures=False, stops=False, held=False, restarts=False, limits=False
    )
    found = explore(calm)
    assert set(found.finals) == {State.DONE}
    assert not any(row.to in (State.ABORTING, State.ABORTED, State.FAILED) for row in found.taken)
    assert found.untaken
