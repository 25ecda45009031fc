"""What a run tells its subscribers while it goes on, and the channel that tells it.

Events come in order, and none is ever waited for: they go into the subscriber's buffer. When a slow subscriber's
buffer is full, events are left out and an EventsDropped with their number stands in their place; the run goes on.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
import trio

from edgewise.statemachine.drafts import DeltaKind
from edgewise.statemachine.messages import AssistantMessage, ToolCall, ToolResult, Usage
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.snapshot import State

BUFFER = 10_000


@attrs.frozen
class Edge:
    """A row was taken. ``guard`` is its words, empty when it has none; ``seconds`` the time spent in ``source``."""

    run_id: str
    seq: int
    turn: int
    source: State
    signal: str
    guard: str
    target: State
    slots: tuple[int, ...]
    """The calls that the signal is about, by their position in their message."""
    effects: tuple[str, ...]
    seconds: float


@attrs.frozen
class MessageStarted:
    """A request goes to the model."""

    turn: int
    attempt: int


@attrs.frozen
class MessageDelta:
    """A piece of the reply: of its text, its thinking or a call's arguments, in the block numbered ``block``."""

    turn: int
    kind: DeltaKind
    text: str
    block: int


@attrs.frozen
class MessageEnded:
    """The reply is in the history, whole, or broken off as its stop reason says."""

    turn: int
    message: AssistantMessage


@attrs.frozen
class MessageFailed:
    """The reply was unusable; what was shown of it is void when ``retried``."""

    turn: int
    reason: str
    retried: bool
    delay: float = 0.0


@attrs.frozen
class CallBegan:
    """A tool runs."""

    turn: int
    slot: int
    call: ToolCall


@attrs.frozen
class CallAwaitsApproval:
    """A call is held until ``run.approve(slot)`` or ``run.refuse(slot, why)``."""

    turn: int
    slot: int
    call: ToolCall
    reason: str


@attrs.frozen
class CallUpdated:
    """A running tool reports progress."""

    turn: int
    slot: int
    call: ToolCall
    progress: Any


@attrs.frozen
class CallEnded:
    """A call has its result. Calls end in any order; their results enter the history in declaration order."""

    turn: int
    slot: int
    call: ToolCall
    result: ToolResult


@attrs.frozen
class TurnEnded:
    """A turn is over: its reply and all its results are in the history."""

    turn: int
    usage: Usage


@attrs.frozen
class RunFinished:
    """The run is over; nothing comes after this."""

    outcome: Outcome


@attrs.frozen
class EventsDropped:
    """This subscriber was too slow: ``count`` events were left out here."""

    count: int


Event: TypeAlias = (
    Edge
    | MessageStarted
    | MessageDelta
    | MessageEnded
    | MessageFailed
    | CallBegan
    | CallAwaitsApproval
    | CallUpdated
    | CallEnded
    | TurnEnded
    | RunFinished
    | EventsDropped
)


class Subscription:
    """The sending side of one subscriber's channel. Room is kept for its end, however full it is."""

    __slots__ = ("_buffer", "_dropped", "_send", "receive")

    def __init__(self, buffer: int = BUFFER) -> None:
        self._send: trio.MemorySendChannel[Event]
        self.receive: trio.MemoryReceiveChannel[Event]
        self._send, self.receive = trio.open_memory_channel[Event](buffer + 2)
        self._buffer = buffer
        self._dropped = 0

    def put(self, event: Event, *, last: bool = False) -> bool:
        """Hand ``event`` over without waiting; the ``last`` one always fits. False when nobody listens any more."""
        now = self._send.statistics()
        if not now.open_receive_channels:
            return False
        if not last and now.current_buffer_used + bool(self._dropped) >= self._buffer:
            self._dropped += 1
            return True
        if self._dropped:
            self._send.send_nowait(EventsDropped(self._dropped))
            self._dropped = 0
        self._send.send_nowait(event)
        return True

    def close(self) -> None:
        self._send.close()
