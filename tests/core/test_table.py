"""The table: what validate refuses, and that what is no row is refused by every snapshot that a run reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from edgewise import IllegalSignal, Snapshot, State, TableError, Text, ToolCall, ToolResult, UserMessage, start
from edgewise.statemachine import guards, moves
from edgewise.statemachine import machine as interpreter
from edgewise.statemachine.codec import to_json
from edgewise.statemachine.errors import Failure
from edgewise.statemachine.guards import no_calls
from edgewise.statemachine.machine import advance, build, legal
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.moves import take_answer
from edgewise.statemachine.signals import (
    SIGNALS,
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
from edgewise.statemachine.table import INITIAL, ROWS, Row, validate
from edgewise.statemachine.verdicts import Continue, Finish, Limit

RESULT = ToolResult("a", "tool", (Text("ok"),))
EXAMPLES: dict[type[Signal], tuple[Signal, ...]] = {
    ModelReplied: (
        ModelReplied(AssistantMessage((Text("hello"),))),
        ModelReplied(AssistantMessage((ToolCall("a", "tool"),))),
        ModelReplied(AssistantMessage((ToolCall("a", "tool"),), "length")),
    ),
    ModelFailed: (
        ModelFailed(Failure("auth", "no key")),
        ModelFailed(Failure("network", "gone", retryable=True)),
        ModelFailed(Failure("context_overflow", "too long"), can_compact=True),
    ),
    CallStarted: tuple(CallStarted(i) for i in range(3)),
    CallHeld: tuple(CallHeld(i) for i in range(3)),
    CallDecided: tuple(CallDecided(i, yes) for i in range(3) for yes in (True, False)),
    CallReturned: tuple(CallReturned(i, RESULT) for i in range(3)),
    CallSettled: tuple(CallSettled(i, RESULT, stop) for i in range(3) for stop in (None, "no")),
    TurnJudged: tuple(
        TurnJudged(verdict) for verdict in (Continue(), Finish("good"), Limit("enough"), Limit("enough", True))
    ),
    AbortRequested: (AbortRequested("enough"),),
    HookFailed: (HookFailed("authorize", "ValueError: no"),),
    InputQueued: (InputQueued(UserMessage((Text("and"),))), InputQueued(UserMessage((Text("and"),)), "follow_up")),
}
CELLS = {(row.source, row.signal) for row in ROWS}
PAIRS = [(state, signal) for state in State for signal in SIGNALS]


# ---- the table as it is


def test_there_are_nine_states_four_of_them_final_and_eleven_signals() -> None:
    assert len(State) == 9
    assert {state for state in State if state.final} == {"done", "aborted", "limit_exceeded", "failed"}
    assert len(SIGNALS) == len(set(SIGNALS)) == 11
    assert set(EXAMPLES) == set(SIGNALS)


def test_no_row_stands_twice() -> None:
    places = [(row.source, row.signal, row.guard) for row in ROWS]
    assert len(places) == len(set(places))
    words = [str(row) for row in ROWS]
    assert len(words) == len(set(words))


def test_every_guard_says_what_it_asks_and_none_is_left_over() -> None:
    used = {row.guard for row in ROWS if row.guard is not None}
    declared = {
        value
        for name, value in vars(guards).items()
        if callable(value)
        and getattr(value, "__annotations__", {}).get("return") == "bool"
        and "signal" in value.__annotations__
        and not name.startswith("_")
    }
    assert used == declared
    assert all(guard.__doc__ and guards.guard_label(guard) == guard.__doc__.strip() for guard in used)


def test_every_move_is_used() -> None:
    declared = {
        value
        for value in vars(moves).values()
        if getattr(value, "__annotations__", {}).get("to") == "State" and not value.__name__.startswith("_")
    }
    assert {row.move for row in ROWS} == declared


@pytest.mark.parametrize("state", [state for state in State if not state.final])
def test_people_are_heard_in_every_live_state(state: State) -> None:
    assert (state, InputQueued) in CELLS
    assert (state, AbortRequested) in CELLS or state is State.ABORTING


# ---- what validate refuses


def _row(**other: Any) -> Row:
    parts = {
        "source": State.AWAITING_MODEL,
        "signal": ModelReplied,
        "guard": no_calls,
        "target": State.DONE,
        "move": take_answer,
    }
    return Row(**{**parts, **other})


def _undeclared(s: Snapshot, signal: Signal):  # type: ignore[no-untyped-def]
    """maybe"""


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (_row(source="awaiting_model"), r"from 'awaiting_model' to .*no such state"),
        (_row(target="done"), r"to 'done': no such state"),
        (_row(signal=RuntimeError), r"RuntimeError.*no such signal"),
        (_row(move="take_answer"), r"its move cannot be called"),
        (_row(source=State.DONE, target=State.FAILED), r"done \+ ModelReplied.*leads out of a final state"),
        (_row(source=State.FAILED, target=None), r"leads out of a final state"),
        (_row(guard=_undeclared), r"its guard is not declared to give a bool"),
        (_row(guard=lambda s, signal: True), r"its guard is not declared to give a bool"),
    ],
)
def test_a_broken_row_is_refused(row: Row, wrong: str) -> None:
    with pytest.raises(TableError, match=wrong):
        validate([*ROWS, row])


def test_a_row_behind_one_without_a_guard_is_refused() -> None:
    with pytest.raises(TableError, match=r"awaiting_model \+ AbortRequested.*never fires"):
        validate([*ROWS, _row(signal=AbortRequested, guard=guards.calls_running, target=State.ABORTED)])


def test_a_state_that_no_way_leads_to_is_refused() -> None:
    rows = [row for row in ROWS if row.target is not State.AWAITING_APPROVAL]
    with pytest.raises(TableError, match="no way leads from awaiting_model to awaiting_approval"):
        validate(rows)


def test_a_live_state_without_a_way_out_is_refused() -> None:
    rows = [row for row in ROWS if row.source is not State.ABORTING]
    with pytest.raises(TableError, match="no way leads from aborting to a final state"):
        validate(rows)


def test_a_signal_that_no_row_takes_is_refused() -> None:
    rows = [row for row in ROWS if row.signal is not InputQueued]
    with pytest.raises(TableError, match="no row takes InputQueued"):
        validate(rows)


def test_the_table_itself_is_accepted_and_only_from_its_initial_state() -> None:
    validate(ROWS)
    assert INITIAL is State.AWAITING_MODEL
    with pytest.raises(TableError, match="no way leads from aborting to"):
        validate(ROWS, State.ABORTING)


# ---- every state with every signal


def _refused(snapshot: Snapshot, signal: Signal) -> IllegalSignal | None:
    try:
        advance(snapshot, signal)
    except IllegalSignal as error:
        return error
    return None


@pytest.mark.parametrize(("state", "signal"), PAIRS, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_signal_is_taken_where_the_table_has_a_row_and_refused_elsewhere(
    state: State, signal: type[Signal], reached: Mapping[State, Sequence[Snapshot]]
) -> None:
    assert reached[state], "no example"
    taken = 0
    for snapshot in reached[state]:
        before = to_json(snapshot)
        for example in EXAMPLES[signal]:
            if (error := _refused(snapshot, example)) is None:
                taken += 1
                continue
            assert (error.state, error.signal) == (state, signal.__name__)
            assert error.legal == legal(snapshot)
            assert f"{signal.__name__} is not legal in state {state.value}" in str(error)
            assert ", ".join(error.legal) in str(error)
            assert bool(error.why) == ((state, signal) in CELLS)  # a cell whose guards all fail says which
        assert to_json(snapshot) == before
    assert bool(taken) == ((state, signal) in CELLS)


def test_legal_names_the_signals_of_a_state_in_the_order_of_the_table(
    reached: Mapping[State, Sequence[Snapshot]],
) -> None:
    assert legal(reached[State.AWAITING_MODEL][0]) == (
        "ModelReplied",
        "ModelFailed",
        "AbortRequested",
        "HookFailed",
        "InputQueued",
    )
    assert legal(reached[State.DONE][0]) == ()


def test_what_a_final_state_refuses_is_told_plainly(reached: Mapping[State, Sequence[Snapshot]]) -> None:
    with pytest.raises(IllegalSignal, match="legal there: nothing, since it is final"):
        advance(reached[State.LIMIT_EXCEEDED][0], AbortRequested())


def _executing(*names: str) -> Snapshot:
    message = AssistantMessage(tuple(ToolCall("", name) for name in names))
    snapshot, _ = start(inputs=[user_message("go")])
    return advance(snapshot, ModelReplied(message)).snapshot


def test_a_refusal_by_guards_says_which_and_how_the_call_stands() -> None:
    snapshot = advance(_executing("a", "b"), CallStarted(1)).snapshot
    with pytest.raises(IllegalSignal) as caught:
        advance(snapshot, CallHeld(1))
    assert str(caught.value) == (
        "CallHeld is not legal in state executing_tools (none of its guards holds: others are at work, only held calls "
        "are left; call 1 is running); legal there: CallStarted, CallReturned, CallHeld, CallDecided, CallSettled, "
        "AbortRequested, HookFailed, InputQueued"
    )
    with pytest.raises(IllegalSignal, match="call 7 is not in this turn"):
        advance(snapshot, CallStarted(7))
    with pytest.raises(IllegalSignal, match="call -1 is not in this turn"):
        advance(snapshot, CallSettled(-1, RESULT))


# ---- the interpreter


def _plain_reading(rows: Sequence[Row], snapshot: Snapshot, signal: Signal) -> Any:
    """The table read by hand: the first row of the cell whose guard holds."""
    for row in rows:
        here = row.source is snapshot.state and row.signal is type(signal)
        if here and (row.guard is None or row.guard(snapshot, signal)):
            return (*row.move(snapshot, signal, row.to), row)
    return None


def test_the_interpreter_reads_the_table_as_one_does_by_hand(reached: Mapping[State, Sequence[Snapshot]]) -> None:
    fired = set()
    for snapshots in reached.values():
        for snapshot in snapshots:
            for examples in EXAMPLES.values():
                for signal in examples:
                    expected = _plain_reading(ROWS, snapshot, signal)
                    if expected is None:
                        with pytest.raises(IllegalSignal):
                            advance(snapshot, signal)
                    else:
                        assert tuple(advance(snapshot, signal)) == expected
                        fired.add(expected[2])
    assert fired == set(ROWS)


def test_every_step_ends_in_the_state_of_its_row(reached: Mapping[State, Sequence[Snapshot]]) -> None:
    for snapshot in (s for some in reached.values() for s in some):
        for signal in (signal for examples in EXAMPLES.values() for signal in examples):
            try:
                step = advance(snapshot, signal)
            except IllegalSignal:
                continue
            assert step.snapshot.state is step.row.to


@pytest.mark.parametrize("answer", [1, "yes", None, [0]])
def test_a_guard_that_gives_no_bool_is_an_error(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def vague(s: Snapshot, signal: Signal) -> bool:
        """vague"""
        return answer  # type: ignore[return-value]

    rows = [_row(guard=vague), *ROWS]
    monkeypatch.setattr(interpreter, "_EVENTS", build(rows).events)
    snapshot, _ = start(inputs=[user_message("go")])
    with pytest.raises(TableError, match=r"\[vague\] -> done: its guard gave .*, which is no bool"):
        advance(snapshot, ModelReplied(AssistantMessage((Text("hello"),))))
    assert snapshot.state is State.AWAITING_MODEL


def test_a_move_that_raises_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(s: Snapshot, signal: Signal, to: State) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(interpreter, "_EVENTS", build([_row(move=fail), *ROWS]).events)
    snapshot, _ = start(inputs=[user_message("go")])
    before = to_json(snapshot)
    with pytest.raises(ZeroDivisionError):
        advance(snapshot, ModelReplied(AssistantMessage((Text("hello"),))))
    assert to_json(snapshot) == before
