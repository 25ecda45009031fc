"""The seams: what the engine asks of a model, of a tool and of a journal, and nothing more.

A model adapter, a tool or a store is any object of this shape; none needs to inherit from anything here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import attrs

from edgewise.statemachine.messages import AssistantMessage, Message, ToolCall

if TYPE_CHECKING:
    from edgewise.statemachine.drafts import Draft
    from edgewise.statemachine.records import Record

Replay: TypeAlias = Literal["safe", "never"]


class ToolSpec(Protocol):
    """What a model is told of a tool. ``parameters`` is a JSON Schema for an object."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def parameters(self) -> Mapping[str, Any]: ...


class Tool(ToolSpec, Protocol):
    """Something that an agent can do."""

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take; None for the agent's default."""
        ...

    @property
    def exclusive(self) -> bool:
        """A barrier: the call runs alone, after those declared before it and before those declared after it."""
        ...

    @property
    def replay(self) -> Replay:
        """Whether a call that was interrupted by a crash may be run again (``safe``) or not (``never``)."""
        ...

    @property
    def blocking(self) -> bool:
        """Whether ``run`` is a plain function, to be run in a worker thread; else it gives an awaitable."""
        ...

    def check(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Give the arguments, coerced where that is sensible, or raise InvalidArguments with every fault."""
        ...

    def run(self, arguments: dict[str, Any], context: CallContext) -> Any:
        """Do the work. Any value may come back, and any exception: the engine makes a tool result of it."""
        ...


class CallContext:
    """What a running tool knows of its call. All of it may be used from a worker thread."""

    __slots__ = ("_cancelled", "_update", "attempt", "call", "effect_id", "run_id")

    def __init__(
        self,
        call: ToolCall,
        run_id: str = "",
        effect_id: str = "",
        attempt: int = 1,
        update: Callable[[Any], None] | None = None,
    ) -> None:
        self.call = call
        self.run_id = run_id
        self.effect_id = effect_id
        self.attempt = attempt
        self._update = update
        self._cancelled = False

    @property
    def key(self) -> str:
        """The idempotency key: the same for every attempt at this call, different for every other call."""
        return f"{self.run_id}.{self.effect_id}"

    def update(self, progress: Any) -> None:
        """Report progress; subscribers see it as a CallUpdated event. Dropped once the call has settled."""
        if self._update is not None:
            self._update(progress)

    @property
    def cancelled(self) -> bool:
        """True once the call was cancelled. Blocking tools look at it to stop early; async ones are stopped."""
        return self._cancelled

    def cancel(self) -> None:
        """Set :attr:`cancelled`."""
        self._cancelled = True


@attrs.frozen(eq=False)
class ModelRequest:
    """One request to a model. ``messages`` is shared with the run: read it, don't keep or change it.

    ``id`` is stable over retries; ``attempt`` counts them from 1. ``options`` are the adapter's own. ``compact`` says
    that the last attempt was too long for the model, which a ``prepare_request`` hook can mend. ``model`` and
    ``tools`` are what this turn uses; the hook may put others in their place.
    """

    messages: Sequence[Message]
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    options: Mapping[str, Any] = attrs.field(factory=dict)
    id: str = ""
    attempt: int = 1
    compact: bool = False
    model: Model | None = None


class Model(Protocol):
    """Anything that answers a request with an assistant message."""

    @property
    def name(self) -> str:
        """What to call it in logs and messages, as in ``openai:gpt-5-mini``."""
        ...

    async def reply(self, request: ModelRequest, draft: Draft) -> AssistantMessage:
        """Answer ``request``, filling ``draft`` as the reply streams in, if it streams.

        Raises ModelError for what the provider does wrong. Cancellation must be let through at once; what the draft
        holds by then is kept as a partial reply. Nothing may be retried here: retries are edges of the machine.
        """
        ...


class Journal(Protocol):
    """Where records of what happened go, in order, before anything is done about them.

    ``append`` either writes at once and returns None, or returns an awaitable. When it returns (or the awaitable ends)
    the record is as durable as this journal makes it. Raises JournalError when it can't be written.
    """

    def append(self, record: Record) -> Awaitable[None] | None: ...

    def records(self) -> Sequence[Record]:
        """All that was written, in order."""
        ...

    def close(self) -> None: ...
