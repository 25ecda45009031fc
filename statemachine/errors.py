"""Everything that Edgewise raises, and the one typed failure of a model call.

::

    EdgewiseError
    ├── MisuseError                 the API was used wrongly; nothing has changed
    │   ├── IllegalSignal           no row of the table takes this signal in this state
    │   ├── TableError              the table contradicts itself (raised at import)
    │   └── SessionBusy             a second run on a session that has one
    ├── JournalError                what happened could not be written, so the run was stopped
    │   └── JournalCorrupt          a journal cannot be read; says the line and what is wrong with it
    ├── ModelError                  a model call failed; carries a Failure. Adapters raise it, the driver catches it
    ├── InvalidArguments            a call's arguments do not fit its tool. Tools raise it, the driver catches it
    └── RunEnded                    raised by ``outcome.raise_for_state()``; carries the outcome (in outcome.py)
        ├── RunAborted
        ├── LimitExceeded
        └── RunFailed

Misuse raises. What the world does wrong (a provider, a tool, a model) is data: a failure, an error result, a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import attrs

FailureKind: TypeAlias = Literal[
    "aborted",
    "auth",
    "permission",
    "not_found",
    "rate_limited",
    "overloaded",
    "network",
    "timeout",
    "context_overflow",
    "content_filter",
    "invalid_request",
    "protocol",
    "empty_reply",
    "internal",
]


@attrs.frozen
class Failure:
    """Why a model call gave no usable reply. ``retry_after`` is in seconds, as the provider asked."""

    kind: FailureKind
    message: str
    retryable: bool = False
    retry_after: float | None = None
    request_id: str | None = None
    provider: str | None = None

    def __str__(self) -> str:
        whose = f"{self.provider}: " if self.provider else ""
        request = f" (request {self.request_id})" if self.request_id else ""
        return f"{self.kind}: {whose}{self.message}{request}"


class EdgewiseError(Exception):
    """The root of all errors of this library."""


class MisuseError(EdgewiseError):
    """The API was used in a way that it does not allow; nothing has changed."""


class TableError(MisuseError):
    """The table of rows contradicts itself."""


class IllegalSignal(MisuseError):
    """No row takes ``signal`` in ``state``; ``legal`` are the names of the signals that some row takes there."""

    def __init__(self, state: str, signal: str, legal: Sequence[str], why: str = "") -> None:
        self.state, self.signal, self.legal, self.why = state, signal, tuple(legal), why
        reason = f" ({why})" if why else ""
        may = ", ".join(legal) or "nothing, since it is final"
        super().__init__(f"{signal} is not legal in state {state}{reason}; legal there: {may}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.state, self.signal, self.legal, self.why)


class SessionBusy(MisuseError):
    """A session runs one thing at a time."""


class JournalError(EdgewiseError):
    """The journal could not be written; nothing goes on unrecorded, so the run was stopped."""


class JournalCorrupt(JournalError):
    """A journal cannot be read."""


class ModelError(EdgewiseError):
    """A model call failed. Raised by model adapters, which translate their provider's errors into a failure."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure
        super().__init__(str(failure))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failure,)


class InvalidArguments(EdgewiseError):
    """The arguments of a call do not fit its tool; each fault says where, what was given and what was expected."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(self.faults))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.faults,)
