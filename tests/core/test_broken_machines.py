"""Broken machines are caught, each by the rule that it breaks, with the shortest way there.

Each of them is the table with another part in some rows: a guard, a move, a target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from edgewise import IllegalSignal, Snapshot, State
from edgewise.statemachine import guards as g
from edgewise.statemachine import moves as m
from edgewise.statemachine.checking import CounterExample, Scope, explore
from edgewise.statemachine.history import History
from edgewise.statemachine.machine import Step
from edgewise.statemachine.moves import Effects
from edgewise.statemachine.signals import (
    AbortRequested,
    CallModel,
    CallSettled,
    CallStarted,
    HookFailed,
    InputQueued,
    ModelFailed,
    ModelReplied,
    Signal,
    StartCall,
)
from edgewise.statemachine.snapshot import Batch, Slot, moved
from edgewise.statemachine.table import ROWS, Row


def _reading(rows: Sequence[Row]) -> Callable[[Snapshot, Signal], Step]:
    def advance(s: Snapshot, signal: Signal) -> Step:
        for row in rows:
            here = row.source is s.state and row.signal is type(signal)
            if here and (row.guard is None or row.guard(s, signal)):
                return Step(*row.move(s, signal, row.to), row)
        raise IllegalSignal(s.state, signal.name, ())

    return advance


def _changed(where: Callable[[Row], bool], **changes: Any) -> list[Row]:
    """The table with other parts in some rows."""
    kept = ("source", "signal", "guard", "target", "move")
    rows = [
        Row(**{name: changes.get(name, getattr(row, name)) for name in kept}) if where(row) else row for row in ROWS
    ]
    assert [row for row in ROWS if where(row)], "no row was changed"
    return rows


def _by_move(*moves: object) -> Callable[[Row], bool]:
    return lambda row: row.move in moves


def _dropped(where: Callable[[Row], bool]) -> list[Row]:
    rows = [row for row in ROWS if not where(row)]
    assert len(rows) < len(ROWS)
    return rows


def _caught(rows: Iterable[Row]) -> str:
    with pytest.raises(CounterExample) as caught:
        explore(advance=_reading(list(rows)))
    return str(caught.value)


def _results_turned_round(s: Snapshot, signal: CallSettled, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.settle_last(s, signal, to)
    before, new = after.history[: len(s.history)], after.history[len(s.history) :]
    return moved(after, history=History([*before, *reversed(new)])), effects


def _in_order_of_completion(s: Snapshot, signal: CallSettled, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.settle(s, signal, to)
    return moved(after, history=s.history.extended([signal.result])), effects


def _calls_left_unanswered(s: Snapshot, signal: ModelReplied, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.take_answer(s, signal, to)
    return moved(after, turn_calls=1), effects


def _message_dropped(s: Snapshot, signal: ModelReplied, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.take_answer(s, signal, to)
    return moved(after, history=s.history), effects


def _by_stop_reason(s: Snapshot, signal: ModelReplied) -> bool:
    """the stop reason says tool use"""
    return signal.message.stop_reason == "tool_use"


def _word_after_abort(s: Snapshot, signal: AbortRequested, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.abort(s, signal, to)
    return after, (*effects, CallModel(f"t{s.turn}.model"))


def _starts_while_stopping(s: Snapshot, signal: AbortRequested, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.abort(s, signal, to)
    late = [StartCall(f"t{s.turn}.c{i}", i) for i, slot in enumerate(s.batch.slots) if slot.status == "starting"]
    return after, (*effects, *late)


def _queue_forgotten(s: Snapshot, signal: Signal, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.next_turn(s, signal, to)  # type: ignore[arg-type]
    return moved(after, steering=(), follow_ups=()), effects


def _said_twice(s: Snapshot, signal: Signal, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.next_turn(s, signal, to)  # type: ignore[arg-type]
    return moved(after, steering=s.steering), effects


def _input_dropped(s: Snapshot, signal: InputQueued, to: State) -> tuple[Snapshot, Effects]:
    return s, ()


def _cut_in(s: Snapshot, signal: InputQueued, to: State) -> tuple[Snapshot, Effects]:
    return moved(s, history=s.history.extended([signal.message])), ()


def _uncounted_retry(s: Snapshot, signal: Signal, to: State) -> tuple[Snapshot, Effects]:
    return s, (CallModel(f"t{s.turn}.model", s.attempt),)


def _endless_retry(s: Snapshot, signal: Any) -> bool:
    """retryable"""
    return signal.failure.retryable


def _any_call(s: Snapshot, signal: Any) -> bool:
    """any call"""
    return signal.slot < len(s.batch.slots) and not getattr(signal, "others", ())


def _settled_too(s: Snapshot, signal: CallStarted) -> bool:
    """about to run, or settled"""
    return g.about_to_run(s, signal) or (not signal.others and s.batch.marks[signal.slot] == "d")


def _first_can_start(s: Snapshot, signal: Any) -> bool:
    """the first of them is about to run"""
    return g.about_to_run(s, CallStarted(signal.slot))


def _open_call(s: Snapshot, signal: Any) -> bool:
    """an open call, others are at work"""
    return s.batch.slots[signal.slot].status in ("starting", "running") and s.batch.active + s.batch.waiting > 1


def _hook_result_lost(s: Snapshot, signal: Any, to: State) -> tuple[Snapshot, Effects]:
    slots = tuple([x if x.status != "returned" else _reset(x) for x in s.batch.slots])
    return m.hook_failed(moved(s, batch=Batch.of(slots)), signal, to)


def _all_at_once(s: Snapshot, signal: Any, to: State) -> tuple[Snapshot, Effects]:
    results = [slot.result or signal.result for slot in s.batch.slots]
    return moved(s, state=to, history=s.history.extended(results), batch=Batch()), ()


def _reset(slot: Slot) -> Slot:
    return Slot(slot.call, "starting", slot.approved, slot.attempts, slot.arguments)


def _nothing_ordered(s: Snapshot, signal: Any, to: State) -> tuple[Snapshot, Effects]:
    return m.run_calls(s, signal, to)[0], ()


def _silent(s: Snapshot, signal: Any, to: State) -> tuple[Snapshot, Effects]:
    after, effects = m.abort(s, signal, to)
    return moved(after, ending=None), effects


MUTANTS: dict[str, tuple[list[Row], str]] = {
    # 1, 2: paired and ordered
    "a cut-off call without a result": (
        _changed(_by_move(m.answer_cut_off_calls), move=_calls_left_unanswered),
        "each call has its one result, in order: the history ends without the result of call 0 (tool)",
    ),
    "results turned round": (
        _changed(_by_move(m.settle_last), move=_results_turned_round),
        "a call keeps the result that it was given, and it enters in the place of the call: call 0 was given",
    ),
    "results in the order of completion": (
        _changed(lambda row: row.move is m.settle and row.signal is CallSettled, move=_in_order_of_completion),
        "each call has its one result, in order",
    ),
    "a reply that is not kept": (
        _changed(_by_move(m.take_answer), move=_message_dropped),
        "a whole reply enters the history as it came: the reply is missing",
    ),
    # 3: content decides
    "the stop reason decides": (
        _changed(lambda row: row.guard is g.calls_made, guard=_by_stop_reason),
        "it may well happen, and is refused: ModelReplied",
    ),
    "a turn of cut-off calls ends the run": (
        _changed(_by_move(m.answer_cut_off_calls), target=State.EXECUTING_TOOLS),
        "whether a reply holds calls decides, not its stop reason: 2 calls with stop reason length lead to",
    ),
    # 4: nothing starts after abort
    "the model is called once more after an abort": (
        _changed(lambda row: row.move is m.abort and row.source is State.EXECUTING_TOOLS, move=_word_after_abort),
        "nothing starts after an abort: CallModel t1.model was ordered",
    ),
    "a call that was prepared starts after the abort": (
        _changed(lambda row: row.move is m.abort, move=_starts_while_stopping),
        "nothing starts after an abort: StartCall t1.c0 was ordered",
    ),
    "a late start is taken": (
        [*ROWS, Row(State.ABORTING, CallStarted, _any_call, None, m.mark_running)],
        "it comes too late or twice, and is taken: CallStarted (call 0) in aborting",
    ),
    "an abort is not heard between turns": (
        _dropped(lambda row: row.source is State.BETWEEN_TURNS and row.signal is AbortRequested),
        "it may well happen, and is refused: AbortRequested is not legal in state between_turns",
    ),
    # 5: stated once
    "the queue is lost at the boundary": (
        _changed(_by_move(m.next_turn), move=_queue_forgotten),
        "every queued input enters the history once, at a turn boundary, or is still queued",
    ),
    "input is said twice": (
        _changed(_by_move(m.next_turn), move=_said_twice),
        "every queued input enters the history once, at a turn boundary, or is still queued",
    ),
    "input is dropped": (
        _changed(_by_move(m.queue_input), move=_input_dropped),
        "every queued input enters the history once",
    ),
    "input cuts in": (
        _changed(lambda row: row.move is m.queue_input, move=_cut_in),
        "every queued input enters the history once",
    ),
    # 6: it ends
    "the last call cannot settle": (
        _dropped(lambda row: row.source is State.ABORTING and row.guard is g.last),
        "it may well happen, and is refused: CallSettled is not legal in state aborting",
    ),
    "a retry that nobody counts": (
        _changed(_by_move(m.retry), move=_uncounted_retry),
        "it ends: from here a run can go round for ever, and no hook is asked",
    ),
    "retries without a bound": (
        _changed(lambda row: row.guard is g.may_retry, guard=_endless_retry),
        "attempt 4 at a request that may be sent 2 times",
    ),
    "calls that nobody starts": (
        _changed(_by_move(m.run_calls), move=_nothing_ordered),
        "what a run now waits for was ordered, once, under its own name: ordered nothing, where StartCall t1.c0",
    ),
    # 8: started means settled or unknown
    "a failing hook drops the calls that run": (
        _dropped(lambda row: row.signal is HookFailed and row.guard is g.calls_running),
        "what a run now waits for was ordered, once, under its own name: ordered CancelCall t1.c0, where nothing",
    ),
    "a running call is settled by somebody else's end": (
        _changed(lambda row: row.guard is g.others_run, target=State.ABORTED, move=_all_at_once),
        "a call moves only by its own signals; one that started is settled by its own end alone: call 1 went from "
        "running to settled by CallSettled, which is not its own",
    ),
    "a settled call runs again": (
        _changed(lambda row: row.guard is g.about_to_run, guard=_settled_too),
        "it comes too late or twice, and is taken: CallStarted (call 0) in executing_tools",
    ),
    "a call starts twice at once": (
        _changed(lambda row: row.guard is g.about_to_run, guard=_first_can_start),
        "it comes too late or twice, and is taken: CallStarted (calls 0, 0) in executing_tools",
    ),
    "a running call is held": (
        _changed(lambda row: row.guard is g.held_others_open, guard=_open_call),
        "it comes too late or twice, and is taken: CallHeld (call 0) in executing_tools",
    ),
    "a result on record is lost when a hook fails": (
        _changed(_by_move(m.hook_failed), move=_hook_result_lost),
        "a call keeps the result that it was given",
    ),
    "the first call that ends ends the run": (
        _dropped(lambda row: row.guard is g.others_run),
        "calls are open in state aborted",
    ),
    "an abort waits for nobody": (
        _changed(lambda row: row.move is m.abort and row.target is State.ABORTED, target=State.ABORTING),
        "the run is aborting, and nothing is under way",
    ),
    "the hook is not asked again": (
        _changed(lambda row: row.guard is g.nothing_left, target=State.BETWEEN_TURNS),
        "ordered nothing, where AskHook t1.judge is to be done",
    ),
    # and what people see
    "a limit that looks like a crash": (
        _dropped(lambda row: row.signal is ModelFailed and row.guard is g.closing_word),
        "the hook's verdict decides, and a limit stays one: the closing word led to failed",
    ),
    "a limit that nobody heeds": (
        _changed(lambda row: row.guard is g.limit, target=State.DONE),
        "the hook's verdict decides, and a limit stays one: Limit(reason='enough', wrap_up=False) led to done",
    ),
    "an abort without a reason": (
        _changed(_by_move(m.abort), move=_silent),
        "the run is aborted and says None of why",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_machine_is_caught_by_the_rule_that_it_breaks(name: str) -> None:
    rows, fault = MUTANTS[name]
    assert fault in _caught(rows)


def test_a_counterexample_is_a_history_that_reads_signal_by_signal() -> None:
    rows, _ = MUTANTS["a late start is taken"]
    assert (
        _caught(rows)
        == """\
it comes too late or twice, and is taken: CallStarted (call 0) in aborting
the shortest way there:
   start: executing_tools; StartCall t1.c0
 1. CallStarted (call 0): executing_tools
 2. AbortRequested: aborting; CancelCall t1.c0
 3. CallStarted (call 0): aborting
the history then:
 0. user 'go'
 1. assistant calls tool"""
    )


def test_a_counterexample_names_every_rule_that_the_step_breaks() -> None:
    rows, _ = MUTANTS["the model is called once more after an abort"]
    with pytest.raises(CounterExample) as caught:
        explore(advance=_reading(rows))
    assert caught.value.faults == (
        "nothing starts after an abort: CallModel t1.model was ordered",
        "what a run now waits for was ordered, once, under its own name: ordered CallModel t1.model, where nothing is "
        "to be done",
    )
    assert caught.value.story[:2] == (
        "   start: executing_tools; StartCall t1.c0",
        " 1. AbortRequested: aborted; CallModel t1.model",
    )


def test_the_table_read_by_hand_is_no_broken_machine() -> None:
    scope = Scope(turns=1)
    by_hand, found = explore(scope, _reading(ROWS)), explore(scope)
    assert (by_hand.states, by_hand.edges, by_hand.taken) == (found.states, found.edges, found.taken)
