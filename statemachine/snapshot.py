"""A run at rest between two signals: everything that the machine knows, as one frozen value."""

from __future__ import annotations

from collections.abc import Sequence
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

    final: bool
    """Whether a run that is in this state has ended."""


FINAL = frozenset({State.DONE, State.ABORTED, State.LIMIT_EXCEEDED, State.FAILED})

for _state in State:
    _state.final = _state in FINAL  # looked up here once, since hashing a member is a call in Python

CallStatus: TypeAlias = Literal["waiting", "starting", "held", "running", "returned", "settled"]
"""The life of a call: *waiting* for its place, *starting* (validated and authorized), perhaps *held* for a person,
*running*, perhaps *returned* (its result is on record, a hook has yet to see it), *settled* with its one result."""

ACTIVE: frozenset[CallStatus] = frozenset({"starting", "running", "returned"})

_MARKS: dict[CallStatus, str] = {
    "waiting": "w",
    "starting": "s",
    "held": "h",
    "running": "r",
    "returned": "t",
    "settled": "d",
}
_STATUS: dict[str, CallStatus] = {mark: status for status, mark in _MARKS.items()}


@attrs.frozen
class Slot:
    """A tool call by its position in its message, and how far it has come."""

    call: ToolCall
    status: CallStatus = "waiting"
    result: ToolResult | None = None
    approved: bool = False
    """Whether a person allowed it."""
    attempts: int = 0
    """How often it was started."""
    arguments: str | None = None
    """JSON text that a person or a hook put in place of the model's."""


@attrs.frozen
class Particulars:
    """What is special about a call; few have any."""

    approved: bool = False
    attempts: int = 0
    """More than one when a crash interrupted it; zero says nothing."""
    arguments: str | None = None


@attrs.frozen(weakref_slot=False)
class Batch:
    """The calls of one turn, in columns: to take one of a hundred calls a step further copies a hundred letters.

    ``marks`` has a letter for each call: w (waiting), s (starting), h (held), r (running), t (returned), d (settled).
    :attr:`slots` shows the same row by row.
    """

    calls: tuple[ToolCall, ...] = ()
    marks: str = ""
    results: tuple[ToolResult | None, ...] = ()
    particulars: tuple[tuple[int, Particulars], ...] = ()

    @classmethod
    def of(cls, slots: Sequence[Slot]) -> Batch:
        particulars = [(i, Particulars(s.approved, s.attempts, s.arguments)) for i, s in enumerate(slots)]
        return cls(
            tuple([slot.call for slot in slots]),
            "".join([_MARKS[slot.status] for slot in slots]),
            tuple([slot.result for slot in slots]),
            tuple([(i, special) for i, special in particulars if special != _NOTHING_SPECIAL]),
        )

    @classmethod
    def waiting_for(cls, calls: Sequence[ToolCall]) -> Batch:
        """A batch of which nothing has begun."""
        return cls(tuple(calls), "w" * len(calls), (None,) * len(calls))

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The calls row by row."""
        return tuple([self.slot(i) for i in range(len(self.calls))])

    def slot(self, index: int) -> Slot:
        """One call and how far it has come."""
        mark = self.marks[index]
        special = self.special(index) if self.particulars else _NOTHING_SPECIAL
        attempts = special.attempts or (1 if mark in "rt" else 0)
        return Slot(
            self.calls[index], _STATUS[mark], self.results[index], special.approved, attempts, special.arguments
        )

    def special(self, index: int) -> Particulars:
        for i, special in self.particulars:
            if i == index:
                return special
        return _NOTHING_SPECIAL

    @property
    def waiting(self) -> int:
        """How many calls wait for their place."""
        return self.marks.count("w")

    @property
    def active(self) -> int:
        """How many calls are starting, running or returned."""
        marks = self.marks
        return len(marks) - marks.count("w") - marks.count("h") - marks.count("d")

    @property
    def held(self) -> int:
        """How many calls wait for a person."""
        return self.marks.count("h")

    @property
    def open(self) -> int:
        """How many calls have no result yet."""
        return len(self.marks) - self.marks.count("d")

    def marked(self, index: int, mark: str) -> Batch:
        """The batch with the call at ``index`` in another state."""
        marks = self.marks
        return Batch(self.calls, marks[:index] + mark + marks[index + 1 :], self.results, self.particulars)

    def with_result(self, index: int, mark: str, result: ToolResult) -> Batch:
        """The batch with the call at ``index`` in another state, and its result."""
        marks, results = self.marks, list(self.results)
        results[index] = result
        return Batch(self.calls, marks[:index] + mark + marks[index + 1 :], tuple(results), self.particulars)

    def with_special(self, index: int, special: Particulars) -> Batch:
        """The batch with something special about the call at ``index``."""
        others = [(i, other) for i, other in self.particulars if i != index]
        return Batch(self.calls, self.marks, self.results, tuple(sorted([*others, (index, special)], key=_index)))


def _index(entry: tuple[int, Particulars]) -> int:
    return entry[0]


_NOTHING_SPECIAL = Particulars()
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
