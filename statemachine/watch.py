"""One watch for all runs of a trio loop: it cancels calls at their time limit and abandons those that ignore it.

A timer for each call would cost each call a task. Instead one system task sleeps until the earliest time that any run
has named, looks at the calls of the runs that it knows, and goes when none of them has a time limit left.
"""

from __future__ import annotations

import math
from typing import Protocol

import trio

_RUNNING: trio.lowlevel.RunVar[Watch | None] = trio.lowlevel.RunVar("edgewise_watch", None)


class Watched(Protocol):
    def overdue(self, now: float) -> float:
        """Act on what is overdue at ``now``; give the next time that matters, or infinity."""
        ...


class Watch:
    """The watch of one trio loop."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._scope = trio.CancelScope()
        self._due = math.inf
        self._up = False

    def note(self, watched: Watched, due: float) -> None:
        """Look at ``watched`` when the clock shows ``due`` (trio time), or a little before."""
        self._watched.add(watched)
        if due < self._due:
            self._due = due
            self._scope.deadline = due
        if not self._up:
            self._up = True
            trio.lowlevel.spawn_system_task(self._sleep, name="edgewise watch")

    def forget(self, watched: Watched) -> None:
        """``watched`` has ended. With the last one the watch goes too."""
        self._watched.discard(watched)
        if self._up and not self._watched:
            self._scope.cancel()

    async def _sleep(self) -> None:
        try:
            while self._due < math.inf:
                with self._scope:
                    await trio.sleep_forever()
                now = trio.current_time()
                dues = [(watched.overdue(now), watched) for watched in tuple(self._watched)]
                self._watched = {watched for due, watched in dues if due < math.inf}
                self._due = min((due for due, _ in dues), default=math.inf)
                self._scope = trio.CancelScope(deadline=self._due)
        finally:
            self._up = False


def current_watch() -> Watch:
    """The watch of the running trio loop."""
    watch = _RUNNING.get()
    if watch is None:
        watch = Watch()
        _RUNNING.set(watch)
    return watch
