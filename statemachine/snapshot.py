"""A run at rest between two signals: everything that the machine knows, as one frozen value."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

import attrs

from edgewise.statemachine.errors import Failure
from edgewise.statemachine.history import History
from edgewise.statemachine.messages import NO_USAGE, ToolCall, ToolResult, Usage, UserMessage


class State(StrEnum):
    """What a run is waiting for."""

    AWAITING_MODEL = "awaiting_model"
    EXECUTING_TOOLS = "executing_tools"
    AWAITING_APPROVAL = "awaiting_approval"
    BETWEEN_TURNS = "between_turns"
    ABORTING = "aborting"
    DONE = "done"
    ABORTED = "aborted"
    LIMIT_EXCEEDED = "limit_exceeded"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether a run that is in this state has ended."""
        return self in FINAL


FINAL = frozenset({State.DONE, State.ABORTED, State.LIMIT_EXCEEDED, State.FAILED})

CallStatus: TypeAlias = Literal["waiting", "starting", "held", "running", "returned", "settled"]
"""The life of a call: *waiting* for its place, *starting* (validated and authorized), perhaps *held* for a person,
*running*, perhaps *returned* (its result is on record, a hook has yet to see it), *settled* with its one result."""

ACTIVE: frozenset[CallStatus] = frozenset({"starting", "running", "returned"})


@attrs.frozen(weakref_slot=False)
class Slot:
    """A tool call by its position in its message, and how far it has come."""

    call: ToolCall
    status: CallStatus = "waiting"
    approved: bool = False
    attempts: int = 0
    arguments: str | None = None
    """JSON text that a person or a hook put in place of the model's."""
    result: ToolResult | None = None


@attrs.frozen(weakref_slot=False)
class Batch:
    """The calls of one turn. The counts save a walk over the slots at each signal."""

    slots: tuple[Slot, ...] = ()
    waiting: int = 0
    active: int = 0
    held: int = 0

    @classmethod
    def of(cls, slots: tuple[Slot, ...]) -> Batch:
        statuses = [slot.status for slot in slots]
        return cls(
            slots,
            statuses.count("waiting"),
            sum(status in ACTIVE for status in statuses),
            statuses.count("held"),
        )

    @property
    def open(self) -> int:
        """How many calls have no result yet."""
        return self.waiting + self.active + self.held

    def with_slot(self, index: int, slot: Slot) -> Batch:
        slots = list(self.slots)
        old, new = slots[index].status, slot.status
        slots[index] = slot
        waiting, active, held = self.waiting, self.active, self.held
        if old != new:
            waiting += (new == "waiting") - (old == "waiting")
            active += (new in ACTIVE) - (old in ACTIVE)
            held += (new == "held") - (old == "held")
        return Batch(tuple(slots), waiting, active, held)


NO_BATCH = Batch()

QueueMode: TypeAlias = Literal["one", "all"]


@attrs.frozen
class Policy:
    """What the machine itself heeds; all else is the driver's."""

    max_parallel: int = attrs.field(default=16, validator=attrs.validators.ge(1))
    """How many calls of a turn may run at once."""
    exclusive: frozenset[str] = frozenset()
    """The names of tools whose calls run alone."""
    model_attempts: int = attrs.field(default=3, validator=attrs.validators.ge(1))
    """How often one request may be sent, retryable failures provided."""
    steering: QueueMode = "one"
    """How many messages of the steering queue go in at a turn boundary."""
    follow_ups: QueueMode = "one"
    """How many follow-ups go in when the run would end."""


DEFAULT_POLICY = Policy()

EndingKind: TypeAlias = Literal["finish", "limit", "abort", "refusal", "model", "hook"]


@attrs.frozen
class Ending:
    """Why a run ends, or is about to: a hook said finish or limit, somebody aborted, a refusal said stop, the model
    failed, a hook raised."""

    kind: EndingKind
    reason: str
    failure: Failure | None = None

    @property
    def is_fault(self) -> bool:
        return self.kind in ("model", "hook")


@attrs.frozen(slots=False)
class Snapshot:
    """The state of a run and all that goes with it."""

    # Not slotted, for the sake of moved(): there is one live snapshot a run, and several new ones a turn.

    state: State
    history: History
    turn: int = 1
    """The number of the turn that is being made, from 1."""
    attempt: int = 1
    """Which attempt at this turn's model call is being made, from 1."""
    batch: Batch = NO_BATCH
    turn_calls: int = 0
    """How many calls the turn that just ended had."""
    closing: bool = False
    """Whether the model call under way is the closing word that a limit granted."""
    compacted: bool = False
    """Whether the request was already shortened since the last input."""
    steering: tuple[UserMessage, ...] = ()
    follow_ups: tuple[UserMessage, ...] = ()
    usage: Usage = NO_USAGE
    """What the run has used so far."""
    calls: int = 0
    """How many calls the run has made so far."""
    ending: Ending | None = None
    policy: Policy = DEFAULT_POLICY


_new = object.__new__
_set = object.__setattr__


def moved(snapshot: Snapshot, **changes: object) -> Snapshot:
    """``attrs.evolve`` for snapshots, several times a turn, at a tenth of its price."""
    new = _new(Snapshot)
    _set(new, "__dict__", {**snapshot.__dict__, **changes})
    return new
