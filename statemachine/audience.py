"""Who watches a run: the edge log and the subscribers. Each step is shown to them, and none of them can disturb it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from edgewise.statemachine.edgelog import EdgeLog
from edgewise.statemachine.events import (
    CallAwaitsApproval,
    CallEnded,
    Edge,
    Event,
    MessageEnded,
    MessageFailed,
    RunFinished,
    Subscription,
    TurnEnded,
)
from edgewise.statemachine.machine import Step
from edgewise.statemachine.messages import AssistantMessage, ToolCall, ToolResult
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.signals import (
    CallDecided,
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    ModelFailed,
    Signal,
)
from edgewise.statemachine.snapshot import Snapshot, State


class Audience:
    """A run's edge log and its subscribers."""

    __slots__ = ("_log", "_run_id", "_subscriptions", "attentive", "listens")

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._log = EdgeLog(run_id)
        self._subscriptions: tuple[Subscription, ...] = ()
        self.attentive = self._log.enabled
        """Whether anybody looks; asked before anything is made for them to see."""
        self.listens = False
        """Whether anybody but the log looks."""

    def subscribe(self) -> Subscription:
        subscription = Subscription()
        self._be_heard_by((*self._subscriptions, subscription))
        return subscription

    def _be_heard_by(self, subscriptions: tuple[Subscription, ...]) -> None:
        self._subscriptions = subscriptions
        self.listens = bool(subscriptions)
        self.attentive = self.listens or self._log.enabled

    def emit(self, event: Event) -> None:
        """Tell the subscribers; those that have gone are forgotten."""
        if gone := [s for s in self._subscriptions if not s.put(event)]:
            self._be_heard_by(tuple([s for s in self._subscriptions if s not in gone]))

    def close(self, outcome: Outcome | None) -> None:
        """The run is over, with ``outcome`` or without one: say so, and that nothing more comes."""
        for subscription in self._subscriptions:
            if outcome is not None:
                subscription.put(RunFinished(outcome), last=True)
            subscription.close()
        self._be_heard_by(())

    async def serve(self, on_event: Callable[[Event], object], subscription: Subscription) -> None:
        """Call ``on_event`` with all that ``subscription`` brings. It may be slow or raise: that is its own affair."""
        async for event in subscription.receive:
            try:
                told = on_event(event)
                if isinstance(told, Awaitable):
                    await told
            except Exception as error:
                self._log.warn("subscriber failed", error=f"{type(error).__name__}: {error}")
                subscription.receive.close()
                return

    def show(self, seq: int, signal: Signal, before: Snapshot, step: Step, seconds: float) -> Edge:
        """Show a step that was taken and written; ``seconds`` is how long the run was in the state that it left."""
        after = step.snapshot
        edge = Edge(
            self._run_id,
            seq,
            before.turn,
            before.state,
            signal.name,
            step.row.label,
            after.state,
            _slots_of(signal),
            tuple([f"{effect.kind} {effect.id}" for effect in step.effects]),
            seconds,
        )
        if self._log.enabled:
            self._log.edge(edge, after.usage)
        if self._subscriptions:
            self.emit(edge)
            for event in _content(signal, before, after):
                self.emit(event)
        return edge


def _slots_of(signal: Signal) -> tuple[int, ...]:
    if isinstance(signal, CallStarted):
        return (signal.slot, *signal.others)
    return (signal.slot,) if isinstance(signal, CallHeld | CallDecided | CallReturned | CallSettled) else ()


def _content(signal: Signal, before: Snapshot, after: Snapshot) -> Iterator[Event]:
    """What a step brought to the conversation."""
    turn = before.turn
    if isinstance(signal, ModelFailed):
        retried = after.state is State.AWAITING_MODEL
        yield MessageFailed(turn, str(signal.failure), retried, signal.delay if retried else 0.0)
    elif isinstance(signal, CallHeld):
        yield CallAwaitsApproval(turn, signal.slot, before.batch.calls[signal.slot], signal.reason)
    entered = after.history[len(before.history) :]
    for message in entered:
        if isinstance(message, AssistantMessage):
            yield MessageEnded(turn, message)
    results = [message for message in entered if isinstance(message, ToolResult)]
    for slot, call, result in _newly_settled(before, after, results):
        yield CallEnded(turn, slot, call, result)
    if before.state is not State.BETWEEN_TURNS and after.state is State.BETWEEN_TURNS:
        yield TurnEnded(turn, after.usage)


def _newly_settled(
    before: Snapshot, after: Snapshot, entered: list[ToolResult]
) -> Iterator[tuple[int, ToolCall, ToolResult]]:
    """The calls that this step gave their result, whether it came from outside or from the machine."""
    old, new = before.batch, after.batch
    if new.calls:
        for slot, (call, result) in enumerate(zip(new.calls, new.results, strict=True)):
            if new.marks[slot] == "d" and old.marks[slot : slot + 1] != "d" and result is not None:
                yield slot, call, result
    elif old.calls:  # the batch was closed: its results are what entered the history
        for slot, (call, result) in enumerate(zip(old.calls, entered, strict=True)):
            if old.marks[slot] != "d":
                yield slot, call, result
    elif entered:  # none of the message's calls ran
        message = next(m for m in after.history[len(before.history) :] if isinstance(m, AssistantMessage))
        for slot, (call, result) in enumerate(zip(message.tool_calls, entered, strict=True)):
            yield slot, call, result
