"""What can happen to a run (signals) and what must then be done (effects).

Signals are facts from outside, in the past tense; ``step`` is the only thing that takes them. Effects are orders to the
driver; each that does work has an id that is stable over retries and resumption (``t3.model``, ``t3.c0``), so that
durable engines and tools can use it as an idempotency key.
"""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import attrs

from edgewise.statemachine.errors import Failure
from edgewise.statemachine.messages import AssistantMessage, ToolResult, UserMessage
from edgewise.statemachine.verdicts import Verdict

QueueName: TypeAlias = Literal["steering", "follow_up"]


@attrs.frozen
class ModelReplied:
    """The model gave a whole reply."""

    name: ClassVar[str] = "ModelReplied"
    message: AssistantMessage


@attrs.frozen
class ModelFailed:
    """A model call ended without a usable reply; ``partial`` is what had come until then.

    ``delay`` is how many seconds to wait if the call is made again; the driver draws it, since the core does not draw
    random numbers. ``can_compact`` says that somebody is there to shorten a request that was too long.
    """

    name: ClassVar[str] = "ModelFailed"
    failure: Failure
    partial: AssistantMessage | None = None
    delay: float = 0.0
    can_compact: bool = False


@attrs.frozen
class CallStarted:
    """The tool of the call in ``slot`` is about to run: the record of intent, and the last look at abort.

    ``arguments`` is set when a hook put others in place of the model's. ``others`` are more calls that start at the
    same moment, as those of a parallel batch do: one edge and one record for all of them.
    """

    name: ClassVar[str] = "CallStarted"
    slot: int
    attempt: int = 1
    arguments: str | None = None
    others: tuple[int, ...] = ()


@attrs.frozen
class CallHeld:
    """The authorize hook wants a person to decide on the call, perhaps with ``arguments`` other than the model's."""

    name: ClassVar[str] = "CallHeld"
    slot: int
    reason: str = ""
    arguments: str | None = None


@attrs.frozen
class CallDecided:
    """A person approved or refused a held call, perhaps with other arguments (JSON text)."""

    name: ClassVar[str] = "CallDecided"
    slot: int
    approved: bool
    reason: str = ""
    arguments: str | None = None


@attrs.frozen
class CallReturned:
    """The tool's own work is over and its result on record; the after_call hook has yet to see it."""

    name: ClassVar[str] = "CallReturned"
    slot: int
    result: ToolResult


@attrs.frozen
class CallSettled:
    """The call has its one result. With ``stop``, a refusal that more reasoning cannot fix: the run ends, saying so."""

    name: ClassVar[str] = "CallSettled"
    slot: int
    result: ToolResult
    stop: str | None = None


@attrs.frozen
class TurnJudged:
    """The should-continue hook has looked at the turn that just ended."""

    name: ClassVar[str] = "TurnJudged"
    verdict: Verdict


@attrs.frozen
class AbortRequested:
    """Somebody wants the run to stop."""

    name: ClassVar[str] = "AbortRequested"
    reason: str = ""


@attrs.frozen
class HookFailed:
    """A hook raised; ``hook`` is its role, as in ``authorize``."""

    name: ClassVar[str] = "HookFailed"
    hook: str
    error: str


@attrs.frozen
class InputQueued:
    """A person said something while the run was at work."""

    name: ClassVar[str] = "InputQueued"
    message: UserMessage
    queue: QueueName = "steering"


Signal: TypeAlias = (
    ModelReplied
    | ModelFailed
    | CallStarted
    | CallHeld
    | CallDecided
    | CallReturned
    | CallSettled
    | TurnJudged
    | AbortRequested
    | HookFailed
    | InputQueued
)

SIGNALS: tuple[type[Signal], ...] = (
    ModelReplied,
    ModelFailed,
    CallStarted,
    CallHeld,
    CallDecided,
    CallReturned,
    CallSettled,
    TurnJudged,
    AbortRequested,
    HookFailed,
    InputQueued,
)


@attrs.frozen
class CallModel:
    """Send the history to the model and report ModelReplied or ModelFailed.

    ``delay``: seconds to wait first. ``compact``: the last request was too long; shorten it or fail.
    ``tools``: whether tools are offered; the closing word has none.
    """

    kind: ClassVar[str] = "CallModel"
    id: str
    attempt: int = 1
    delay: float = 0.0
    compact: bool = False
    tools: bool = True


@attrs.frozen
class CancelModel:
    """Cancel the model call and report ModelFailed (or ModelReplied, when it was faster)."""

    kind: ClassVar[str] = "CancelModel"
    id: str


@attrs.frozen
class StartCall:
    """Validate and authorize the call in ``slot``, propose CallStarted, run it, report CallSettled.

    ``approved``: a person has already said yes, so nobody is asked again.
    """

    kind: ClassVar[str] = "StartCall"
    id: str
    slot: int
    approved: bool = False


@attrs.frozen
class CancelCall:
    """Cancel the running call in ``slot``, give it its grace period, report CallSettled."""

    kind: ClassVar[str] = "CancelCall"
    id: str
    slot: int


@attrs.frozen
class AskHook:
    """Ask the should-continue hook about the turn that just ended and report TurnJudged."""

    kind: ClassVar[str] = "AskHook"
    id: str


Effect: TypeAlias = CallModel | CancelModel | StartCall | CancelCall | AskHook

EFFECTS: tuple[type[Effect], ...] = (CallModel, CancelModel, StartCall, CancelCall, AskHook)
