"""The conversation so far, shared between snapshots and never copied.

Histories that grow out of one another look at one append-only list, each at the first ``len(history)`` messages of
it. Extending the newest costs an append; extending an older one (a fork) copies its messages once, since somebody else
already continued the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import overload

from edgewise.statemachine.messages import Message


class _Log(list[Message]):
    """A list that is itself and nothing else, so that it can key a weak dictionary."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__


class History(Sequence[Message]):
    """An immutable sequence of messages.

    >>> from edgewise.statemachine.messages import user_message
    >>> one = History([user_message("a")])
    >>> two = one.extended([user_message("b")])
    >>> len(one), len(two), two[-1].text
    (1, 2, 'b')
    """

    __slots__ = ("_length", "_shared")

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._shared = _Log(messages)
        self._length = len(self._shared)

    def extended(self, messages: Sequence[Message]) -> History:
        """This history with ``messages`` after it."""
        shared = self._shared
        if len(shared) != self._length or not shared:  # the empty one is shared by all that begin
            shared = _Log(islice(shared, self._length))
        new = History.__new__(History)
        new._shared = shared
        shared.extend(messages)
        new._length = len(shared)
        return new

    def without_last(self, count: int) -> History:
        """This history less its last ``count`` messages; shares what is left."""
        new = History.__new__(History)
        new._shared = self._shared
        new._length = max(0, self._length - count)
        return new

    @property
    def lineage(self) -> object:
        """One object for all histories that share their messages: a weak key for what was computed from a prefix."""
        return self._shared

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return [self._shared[i] for i in range(start, stop, step)]
        length = self._length
        if index < 0:
            index += length
        if not 0 <= index < length:
            raise IndexError(f"message {index} of a history of {length}")
        return self._shared[index]

    def __iter__(self) -> Iterator[Message]:
        return islice(self._shared, self._length)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return self._length == other._length and (
            self._shared is other._shared or all(a == b for a, b in zip(self, other, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"History({list(self)!r})"


NO_HISTORY = History()
