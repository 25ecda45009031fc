"""What a piece of work under way sees of the driver that does it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Protocol

import trio

from edgewise.statemachine.config import Config
from edgewise.statemachine.events import Event
from edgewise.statemachine.ports import Tool
from edgewise.statemachine.signals import Signal
from edgewise.statemachine.snapshot import Snapshot


class Host(Protocol):
    """A run's driver, as its work knows it."""

    config: Config
    run_id: str
    snapshot: Snapshot
    tools: Mapping[str, Tool]
    """What the calls of this turn may use."""
    random: Random
    token: trio.lowlevel.TrioToken
    turns_away: bool
    """Nobody is there to approve a held call, so it is refused."""

    @property
    def heard(self) -> bool:
        """Whether anybody listens to events; asked before one is made."""
        ...

    def emit(self, event: Event) -> None:
        """Tell the subscribers."""
        ...

    async def propose(self, signal: Signal) -> bool:
        """Hand a signal to the machine and wait until it was taken and written (True) or refused (False)."""
        ...

    def look_at(self, due: float) -> None:
        """Have the watch look at this run's calls when the clock shows ``due`` (trio time)."""
        ...

    def now(self) -> float:
        """The time on trio's clock."""
        ...

    def run_call(self, call: Any) -> None:
        """The start of ``call`` is on record: have it run."""
        ...
