"""``start`` and ``step``: the machine as two pure functions, with ``transitions`` as the interpreter of the table.

>>> from edgewise.statemachine.messages import AssistantMessage, Text, user_message
>>> from edgewise.statemachine.signals import ModelReplied, TurnJudged
>>> from edgewise.statemachine.verdicts import Continue
>>> snapshot, effects = start(inputs=[user_message("hi")])
>>> snapshot.state, effects
(<State.AWAITING_MODEL: 'awaiting_model'>, (CallModel(id='t1.model', attempt=1, delay=0.0, compact=False, tools=True),))
>>> snapshot, effects = step(snapshot, ModelReplied(AssistantMessage((Text("hello"),))))
>>> snapshot, effects = step(snapshot, TurnJudged(Continue()))
>>> snapshot.state
<State.DONE: 'done'>

Nothing here waits, logs, reads a clock or draws a random number, so the same signals always give the same run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import transitions

from edgewise.statemachine.errors import IllegalSignal, MisuseError, TableError
from edgewise.statemachine.guards import Guard
from edgewise.statemachine.history import History
from edgewise.statemachine.messages import AssistantMessage, Message, ToolResult, UserMessage, error_result
from edgewise.statemachine.moves import Effects, launch
from edgewise.statemachine.signals import AskHook, CallModel, Signal, StartCall
from edgewise.statemachine.snapshot import DEFAULT_POLICY, Batch, Policy, Slot, Snapshot, State, moved
from edgewise.statemachine.table import INITIAL, ROWS, Row

INTERRUPTED = (
    "Interrupted: the process ended while this call was running, so whether it took effect is unknown. "
    "Check before you repeat it."
)


class Step(NamedTuple):
    """What a signal led to: the next snapshot, the effects to carry out, and the row that fired."""

    snapshot: Snapshot
    effects: Effects
    row: Row


_new_step: Any = tuple.__new__  # what Step(...) comes to, without a call in Python


class _Scratch:
    """The model that ``transitions`` moves; it lives for one step. An identity object: equal ones would get lost."""

    __slots__ = ("effects", "row", "signal", "snapshot", "state")

    def __init__(self, snapshot: Snapshot, signal: Signal) -> None:
        self.state: str = snapshot.state._value_  # .value is a property written in Python
        self.snapshot = snapshot
        self.signal = signal
        self.effects: Effects = ()
        self.row: Row | None = None


class _Edge(transitions.Transition):
    """A row as the library's edge. The table has no callbacks but guard and move, so the path between them is short."""

    row: Row
    guard: Guard | None

    def execute(self, event_data: Any) -> bool:
        row = self.row
        event_data.snapshot, event_data.effects = row.move(event_data.snapshot, event_data.signal, row.to)
        event_data.row = row
        event_data.state = self.dest
        return True


class _Event(transitions.Event):
    """The library's event without its queue, its hooks and its event data, of which the table uses none."""

    def trigger(self, model: Any, *args: Any, **kwargs: Any) -> bool:
        edges: Any = self.transitions.get(model.state)  # of the class above, which the library's types can't know
        if edges is None:
            raise transitions.MachineError(f"no row takes {self.name} in {model.state}")
        snapshot, signal = model.snapshot, model.signal
        for edge in edges:
            guard = edge.guard
            holds = guard is None or guard(snapshot, signal)
            if holds is True:
                return bool(edge.execute(model))
            if holds is not False:
                raise TableError(f"{edge.row}: its guard gave {holds!r}, which is no bool")
        return False


class _Machine(transitions.Machine):
    event_cls = _Event
    transition_cls = _Edge


def build(rows: Sequence[Row]) -> transitions.Machine:
    """Make the interpreter of ``rows``."""
    machine = _Machine(
        model=None,
        states=[state.value for state in State],
        initial=INITIAL.value,
        auto_transitions=False,
        send_event=True,
        queued=False,
    )
    for row in rows:
        name, source = row.signal.__name__, row.source.value
        machine.add_transition(name, source, row.to.value)
        edge: Any = machine.events[name].transitions[source][-1]
        edge.row, edge.guard = row, row.guard
    return machine


_EVENTS = build(ROWS).events
_LEGAL: dict[State, tuple[str, ...]] = {
    state: tuple(dict.fromkeys(row.signal.__name__ for row in ROWS if row.source is state)) for state in State
}


def legal(snapshot: Snapshot) -> tuple[str, ...]:
    """The names of the signals that some row takes in this state."""
    return _LEGAL[snapshot.state]


def advance(snapshot: Snapshot, signal: Signal) -> Step:
    """Take one signal, and say which row took it.

    Raises IllegalSignal, naming the state, the signal and what is legal, when no row does; nothing has changed then.
    """
    scratch = _Scratch(snapshot, signal)
    name = signal.name
    try:
        fired = _EVENTS[name].trigger(scratch)
    except transitions.MachineError:
        raise IllegalSignal(snapshot.state, name, legal(snapshot)) from None
    if not fired or scratch.row is None:
        raise IllegalSignal(snapshot.state, name, legal(snapshot), _why_refused(snapshot, signal))
    step: Step = _new_step(Step, (scratch.snapshot, scratch.effects, scratch.row))
    return step


def _why_refused(snapshot: Snapshot, signal: Signal) -> str:
    guards = [row.label for row in ROWS if row.source is snapshot.state and row.signal is type(signal)]
    slot = getattr(signal, "slot", None)
    where = ""
    if slot is not None:
        batch = snapshot.batch
        where = f"; call {slot} is " + (batch.slot(slot).status if 0 <= slot < len(batch.calls) else "not in this turn")
    return f"none of its guards holds: {', '.join(guards)}{where}"


def step(snapshot: Snapshot, signal: Signal) -> tuple[Snapshot, Effects]:
    """Take one signal: what the run is afterwards, and what must now be done.

    Raises IllegalSignal when no row takes the signal; nothing has changed then.
    """
    taken = advance(snapshot, signal)
    return taken.snapshot, taken.effects


def fold(snapshot: Snapshot, signals: Iterable[Signal]) -> Snapshot:
    """Take ``signals`` one after the other."""
    for signal in signals:
        snapshot = advance(snapshot, signal).snapshot
    return snapshot


def start(
    history: Iterable[Message] = (),
    inputs: Sequence[UserMessage] = (),
    policy: Policy = DEFAULT_POLICY,
    started: Collection[int] = (),
) -> tuple[Snapshot, Effects]:
    """Begin a run that continues ``history`` with ``inputs``.

    When calls of the last message have no result yet, the run begins with them: those in slots ``started`` are settled
    as interrupted, the others run; ``inputs`` then wait for the turn boundary. Otherwise it begins with the model.

    Raises MisuseError when there is nothing to say to the model.
    """
    past = history if isinstance(history, History) else History(history)
    slots, results = _last_calls(past)
    if slots and [slot.result for slot in slots] != past[len(past) - results :]:
        past = past.without_last(results)
        slots = [_known(slot, i in started) for i, slot in enumerate(slots)]
        if any(slot.result is None for slot in slots):
            waiting = Snapshot(
                State.EXECUTING_TOOLS, past, turn_calls=len(slots), steering=tuple(inputs), policy=policy
            )
            batch, effects = launch(waiting, Batch.of(tuple(slots)), policy)
            return moved(waiting, batch=batch), effects
        past = past.extended([slot.result for slot in slots if slot.result is not None])
    if inputs:
        past = past.extended(inputs)
    if not past:
        raise MisuseError("a run needs something to say: give it an input, or a history that is not empty")
    return Snapshot(INITIAL, past, policy=policy), (CallModel("t1.model"),)


def _last_calls(history: History) -> tuple[list[Slot], int]:
    """The calls of the last assistant message with the results that they have, and how many results follow it."""
    results: list[ToolResult] = []
    for i in range(len(history) - 1, -1, -1):
        message = history[i]
        if type(message) is ToolResult:
            results.insert(0, message)
            continue
        if type(message) is not AssistantMessage:
            break
        slots = [Slot(call) for call in message.tool_calls]
        # Each result to the call whose id it bears, in order; those with foreign ids to the calls that are left.
        strangers: list[ToolResult] = []
        for result in results:
            if not _settle_first(slots, result, [slot.call.id == result.call_id for slot in slots]):
                strangers.append(result)
        for result in strangers:
            _settle_first(slots, result, [True] * len(slots))
        return slots, len(results)
    return [], 0


def _settle_first(slots: list[Slot], result: ToolResult, fits: list[bool]) -> bool:
    for n, slot in enumerate(slots):
        if fits[n] and slot.result is None:
            slots[n] = Slot(slot.call, "settled", result=result)
            return True
    return False


def _known(slot: Slot, was_started: bool) -> Slot:
    if slot.result is None and was_started:
        return Slot(slot.call, "settled", attempts=1, result=error_result(slot.call, INTERRUPTED))
    return slot


def outstanding(snapshot: Snapshot) -> Effects:
    """The effects that a run at ``snapshot`` still waits for: what to do again after a crash.

    A call that was running is given as StartCall too; whether it may run again is its tool's affair.
    """
    turn = snapshot.turn
    if snapshot.state is State.AWAITING_MODEL:
        model = CallModel(f"t{turn}.model", snapshot.attempt, compact=snapshot.compacted, tools=not snapshot.closing)
        return (model,)
    if snapshot.state is State.BETWEEN_TURNS:
        return (AskHook(f"t{turn}.judge"),)
    return tuple(
        StartCall(f"t{turn}.c{i}", i, slot.approved)
        for i, slot in enumerate(snapshot.batch.slots)
        if slot.status in ("starting", "running", "returned")
    )
