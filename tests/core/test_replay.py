"""Replay: the machine is pure, so the same signals give the same run, whenever and by whomever they are told."""

from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import Policy, Record, Snapshot, State, fold, outstanding, recover, start
from edgewise.statemachine.codec import from_json, to_json
from edgewise.statemachine.invariants import check_history, check_snapshot, check_step
from edgewise.statemachine.machine import advance
from edgewise.statemachine.messages import user_message
from edgewise.statemachine.moves import Effects
from edgewise.statemachine.records import RunStarted, SessionOpened
from edgewise.statemachine.signals import InputQueued, Signal
from edgewise.statemachine.worlds import ALONE, Scope, possible

POLICIES = [
    Policy(max_parallel=2, exclusive=frozenset({ALONE}), model_attempts=2),
    Policy(max_parallel=1, steering="all", follow_ups="all"),
    Policy(),
]
SAID = user_message("go")


def _ends(snapshot: Snapshot) -> bool:
    return snapshot.state.final or snapshot.state is State.ABORTING


@st.composite
def walks(draw: st.DrawFn) -> tuple[Policy, list[Signal]]:
    """A run by chance: what the world may send it, one signal after the other."""
    policy = draw(st.sampled_from(POLICIES))
    scope = Scope(calls=3, inputs=3, policy=policy)
    snapshot, _ = start(inputs=[SAID], policy=policy)
    signals: list[Signal] = []
    told = 0
    length = draw(st.integers(0, 30))
    while len(signals) < length + 5:
        ways = list(possible(snapshot, scope, told))
        if len(signals) < length:  # most signals end a run early; these are for later
            ways = [way for way in ways if not _ends(advance(snapshot, way).snapshot)] or ways
        if not ways:
            break
        signal = draw(st.sampled_from(ways))
        told += isinstance(signal, InputQueued)
        signals.append(signal)
        snapshot, _, _ = advance(snapshot, signal)
    return policy, signals


def _run(policy: Policy, signals: list[Signal]) -> list[tuple[Snapshot, Effects]]:
    snapshot, effects = start(inputs=[SAID], policy=policy)
    states = [(snapshot, effects)]
    for signal in signals:
        snapshot, effects, _ = advance(snapshot, signal)
        states.append((snapshot, effects))
    return states


@given(walks())
def test_the_same_signals_give_the_same_snapshots_and_effects(walk: tuple[Policy, list[Signal]]) -> None:
    policy, signals = walk
    once, again = _run(policy, signals), _run(policy, signals)
    assert once == again
    assert fold(start(inputs=[SAID], policy=policy)[0], signals) == once[-1][0]


@given(walks())
def test_signals_that_went_through_json_give_the_same_run(walk: tuple[Policy, list[Signal]]) -> None:
    policy, signals = walk
    told = [from_json(to_json(signal)) for signal in signals]
    assert told == signals
    assert _run(policy, told) == _run(policy, signals)


@given(walks(), st.data())
def test_a_snapshot_that_went_through_json_goes_on_as_if_nothing_had_been(
    walk: tuple[Policy, list[Signal]], data: st.DataObject
) -> None:
    policy, signals = walk
    states = _run(policy, signals)
    at = data.draw(st.integers(0, len(signals)))
    snapshot = from_json(to_json(states[at][0]))
    assert snapshot == states[at][0]
    assert outstanding(snapshot) == outstanding(states[at][0])
    for signal, (expected, orders) in zip(signals[at:], states[at + 1 :], strict=True):
        snapshot, effects, _ = advance(snapshot, signal)
        assert (snapshot, effects) == (expected, orders)


@given(walks(), st.data())
def test_a_journal_tells_the_run_at_whatever_record_it_breaks_off(
    walk: tuple[Policy, list[Signal]], data: st.DataObject
) -> None:
    policy, signals = walk
    states = _run(policy, signals)
    told = [SessionOpened("s"), RunStarted((SAID,), policy=policy), *signals]
    records = [Record(n, "r", float(n), what) for n, what in enumerate(told, 1)]
    at = data.draw(st.integers(0, len(signals)))
    lines = [to_json(record) for record in records[: at + 2]]
    assert recover(map(from_json, lines)).snapshot == states[at][0]


@given(walks())
@settings(max_examples=200)
def test_every_step_of_a_run_by_chance_keeps_the_rules(walk: tuple[Policy, list[Signal]]) -> None:
    policy, signals = walk
    snapshot, effects = start(inputs=[SAID], policy=policy)
    assert effects == outstanding(snapshot)
    for signal in signals:
        step = advance(snapshot, signal)
        assert check_step(snapshot, signal, step) == []
        assert check_snapshot(step.snapshot) == []
        snapshot = step.snapshot
    if snapshot.state.final:
        assert check_history(snapshot.history) == []
        assert outstanding(snapshot) == ()


@given(walks())
def test_a_step_changes_none_of_what_it_was_given(walk: tuple[Policy, list[Signal]]) -> None:
    policy, signals = walk
    for snapshot, _ in _run(policy, signals):
        before = to_json(snapshot)
        for signal in possible(snapshot, Scope(policy=policy), 0):
            advance(snapshot, signal)
        assert to_json(snapshot) == before


def test_snapshots_can_be_pickled_and_are_equal_afterwards() -> None:
    snapshot, _ = start(inputs=[SAID])
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
