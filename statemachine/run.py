"""A run in a user's hands: watch it, steer it, stop it, step it, and learn how it ended."""

from __future__ import annotations

import contextvars
from types import TracebackType
from typing import Any, Protocol

import attrs
import trio

from edgewise.statemachine.driver import Driver
from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.events import Edge, Event
from edgewise.statemachine.messages import Input, ToolCall, UserMessage, user_message
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.signals import AbortRequested, CallDecided, InputQueued, QueueName
from edgewise.statemachine.snapshot import Snapshot, State


@attrs.frozen
class HeldCall:
    """A call that waits for a person."""

    slot: int
    call: ToolCall
    arguments: str
    """What it would run with: JSON text."""


class Opener(Protocol):
    """Where a run comes from, and whom it tells when it is over: its session."""

    async def open_run(self, inputs: tuple[UserMessage, ...] | None, alone: bool) -> Driver:
        """Begin a run on ``inputs``, or take up the interrupted one (None); ``alone`` when nobody can be asked."""
        ...

    def run_ended(self, driver: Driver) -> None: ...


class Run:
    """One run of an agent. Use it as an async context manager; leaving the block early aborts the run.

    All methods are for the trio thread that the run belongs to; from another thread go through ``trio.from_thread``.
    """

    __slots__ = ("_alone", "_driver", "_first_events", "_inputs", "_opener")

    def __init__(self, opener: Opener, inputs: tuple[UserMessage, ...] | None, *, alone: bool = False) -> None:
        self._opener = opener
        self._inputs = inputs
        self._alone = alone
        self._driver: Driver | None = None
        self._first_events: trio.MemoryReceiveChannel[Event] | None = None

    # ---- beginning and end

    async def to_end(self) -> Outcome:
        """Start the run and wait for its end."""
        await self.begin(watched=False)
        return await self.outcome()

    async def begin(self, *, watched: bool) -> None:
        """Start the run. With ``watched``, events are kept from the first on, for :meth:`events`."""
        if self._driver is not None:
            raise MisuseError("this run was started already; make another one")
        driver = self._driver = await self._opener.open_run(self._inputs, self._alone)
        if watched:
            self._first_events = driver.audience.subscribe().receive
        context = contextvars.copy_context()
        trio.lowlevel.spawn_system_task(driver.drive, name=f"edgewise run {driver.run_id}", context=context)

    async def __aenter__(self) -> Run:
        await self.begin(watched=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver = self._live
        if not driver.done.is_set():
            self._abort_now("its block was left before it had ended")
            with trio.CancelScope(shield=True):
                await driver.done.wait()
        self._opener.run_ended(driver)
        if self._first_events is not None:
            self._first_events.close()
        if driver.error is not None and error is None:
            raise driver.error

    async def outcome(self) -> Outcome:
        """Wait until the run has ended and say how. Raises JournalError when it could not be recorded.

        Cancelling the surrounding scope is an abort: it is carried out, then Cancelled goes on.
        """
        driver = self._live
        try:
            if not driver.done.is_set():
                await driver.done.wait()
        except BaseException as error:
            cancelled = isinstance(error, trio.Cancelled)
            self._abort_now("the surrounding scope was cancelled" if cancelled else type(error).__name__)
            with trio.CancelScope(shield=True):
                await driver.done.wait()
            raise
        finally:
            if driver.done.is_set():
                self._opener.run_ended(driver)
        if driver.error is not None:
            raise driver.error
        return driver.outcome()

    # ---- looking

    @property
    def _live(self) -> Driver:
        if self._driver is None:
            raise MisuseError("this run has not started; use `async with agent.start(...) as run`")
        return self._driver

    @property
    def id(self) -> str:
        return self._live.run_id

    @property
    def snapshot(self) -> Snapshot:
        """The run as it is now."""
        return self._live.snapshot

    @property
    def state(self) -> State:
        return self._live.snapshot.state

    @property
    def finished(self) -> bool:
        return self._live.done.is_set()

    def events(self) -> trio.MemoryReceiveChannel[Event]:
        """A channel of events: the first one asked for has them from the beginning, others from now on.

        It ends when the run does. A reader that is slow, raises or goes away does not disturb the run.
        """
        if self._first_events is not None:
            events, self._first_events = self._first_events, None
            return events
        driver = self._live
        subscription = driver.audience.subscribe()
        if driver.done.is_set():
            subscription.close()
        return subscription.receive

    @property
    def held(self) -> tuple[HeldCall, ...]:
        """The calls that wait for approval."""
        return tuple(
            HeldCall(i, slot.call, slot.arguments if slot.arguments is not None else slot.call.arguments)
            for i, slot in enumerate(self.snapshot.batch.slots)
            if slot.status == "held"
        )

    # ---- steering

    def steer(self, said: Input) -> None:
        """Say something that goes in at the next turn boundary, after the calls that were already made."""
        self._queue(said, "steering")

    def follow_up(self, said: Input) -> None:
        """Say something that goes in when the run would otherwise end."""
        self._queue(said, "follow_up")

    def _queue(self, said: Input, queue: QueueName) -> None:
        driver = self._live
        if driver.done.is_set():
            raise MisuseError(f"the run has ended ({driver.snapshot.state}); say it to the session in a new run")
        driver.tell(InputQueued(user_message(said), queue))

    def abort(self, reason: str = "") -> None:
        """Stop: started tools clean up, every call gets its result, nothing new starts. Harmless when it has ended."""
        self._abort_now(reason)

    def _abort_now(self, reason: str) -> None:
        driver = self._live
        if not driver.done.is_set():
            driver.tell(AbortRequested(reason))

    def approve(self, call: int | str | ToolCall | HeldCall, arguments: str | None = None) -> None:
        """Let a held call run, perhaps with other ``arguments`` (JSON text). ``call``: its slot, its id or the call.

        Raises MisuseError when no such call is held.
        """
        self._live.tell(CallDecided(self._held_slot(call), True, arguments=arguments))

    def refuse(self, call: int | str | ToolCall | HeldCall, why: str = "") -> None:
        """Refuse a held call; the model reads ``why``. Raises MisuseError when no such call is held."""
        self._live.tell(CallDecided(self._held_slot(call), False, why))

    def _held_slot(self, call: Any) -> int:
        held = self.held
        if isinstance(call, HeldCall):
            call = call.slot
        if isinstance(call, int):
            found = [h.slot for h in held if h.slot == call]
        elif isinstance(call, str):
            found = [h.slot for h in held if h.call.id == call]
        else:
            found = [h.slot for h in held if h.call is call]
        if len(found) == 1:
            return found[0]
        waiting = ", ".join(f"{h.slot} ({h.call.name})" for h in held) or "none"
        what = "several held calls have this id" if found else "no such call is held"
        raise MisuseError(f"{call!r}: {what}; the slots of held calls are: {waiting}")

    # ---- going by hand

    def pause(self) -> None:
        """Stop at the next edge. Work under way goes on; what it brings waits. An abort is still heard."""
        self._live.paused = True

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        driver = self._live
        driver.paused = False
        driver.kick()

    async def step(self) -> Edge | None:
        """While paused: let the run take one more edge, and give it; None when the run has ended.

        Raises MisuseError when the run is not paused.
        """
        driver = self._live
        if driver.done.is_set():
            return None
        if not driver.paused:
            raise MisuseError("step() goes on by hand from pause(); this run is not paused")
        return await driver.next_edge()
