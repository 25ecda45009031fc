"""A conversation over many runs, on one journal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from edgewise.statemachine.config import Config
from edgewise.statemachine.driver import Driver
from edgewise.statemachine.errors import Failure, MisuseError, SessionBusy
from edgewise.statemachine.history import NO_HISTORY, History
from edgewise.statemachine.machine import INTERRUPTED, advance, outstanding, start
from edgewise.statemachine.messages import AssistantMessage, Input, Message, UserMessage, error_result, user_message
from edgewise.statemachine.moves import Effects
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.ports import Journal
from edgewise.statemachine.records import MemoryJournal, RunResumed, RunStarted, SessionOpened, recover
from edgewise.statemachine.run import Run
from edgewise.statemachine.signals import AbortRequested, CallSettled, InputQueued, ModelFailed, QueueName, Signal
from edgewise.statemachine.snapshot import Snapshot, State

CONTINUE = "Continue where you left off."


class Session:
    """Keeps history, queue and journal between runs. One thing runs at a time; a second run is refused.

    A journal that holds records is taken up: the conversation goes on where it ended. When its last run was interrupted
    (its process died), :meth:`resume` goes on with it; any other new run first closes what was open.
    """

    __slots__ = (
        "_config",
        "_driver",
        "_imported",
        "_journal",
        "_opening",
        "_run",
        "_runs",
        "_seq",
        "_snapshot",
        "_waiting",
        "id",
    )

    def __init__(self, config: Config, journal: Journal | None = None, history: Iterable[Message] = ()) -> None:
        self._config = config
        self._journal: Journal = MemoryJournal() if journal is None else journal
        self._imported = history if isinstance(history, History) else History(history) if history else NO_HISTORY
        self._snapshot: Snapshot | None = None
        self._seq = self._runs = 0
        self._run = ""
        self._driver: Driver | None = None
        self._opening = False
        self._waiting: tuple[UserMessage, ...] = ()
        self.id = ""
        if journal is not None and journal.records():
            found = recover(journal.records())
            self.id, self._run, self._snapshot = found.session, found.run, found.snapshot
            self._seq, self._runs = found.seq, found.runs
            if self._snapshot is not None and self._snapshot.state.final:
                self._keep(self._snapshot)
            if self._imported:
                raise MisuseError("this journal already holds a conversation; a history can't be put in front of it")
        self.id = self.id or os.urandom(8).hex()

    # ---- looking

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation so far."""
        if self._driver is not None:
            return self._driver.snapshot.history
        return self._imported if self._snapshot is None else self._snapshot.history

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def busy(self) -> bool:
        """Whether a run is under way."""
        return self._opening or (self._driver is not None and not self._driver.done.is_set())

    @property
    def interrupted(self) -> bool:
        """Whether the journal's last run never reached a final state, because its process died."""
        return not self.busy and self._snapshot is not None and not self._snapshot.state.final

    @property
    def last_outcome(self) -> Outcome | None:
        """How the last run ended; None before the first one, and while one is under way or interrupted."""
        if self.busy or self._snapshot is None or not self._snapshot.state.final:
            return None
        return Outcome(self._run, self._snapshot)

    @property
    def queued(self) -> Sequence[UserMessage]:
        """Input that no run has taken in yet; it goes in front of the next prompt."""
        return self._waiting

    # ---- running

    async def run(self, said: Input) -> Outcome:
        """Say something and run to the end. Nobody can be asked, so calls that need approval are refused."""
        return await Run(self, (user_message(said),), alone=True).to_end()

    def start(self, said: Input) -> Run:
        """Say something and control the run: ``async with session.start("...") as run``."""
        return Run(self, (user_message(said),))

    async def continue_(self, said: Input | None = None) -> Outcome:
        """Go on from the same history, after a limit, an abort or a failure, with a new allowance."""
        return await Run(self, self._inputs_to_continue(said), alone=True).to_end()

    def start_continue(self, said: Input | None = None) -> Run:
        """:meth:`continue_` as a run that can be controlled."""
        return Run(self, self._inputs_to_continue(said))

    def resume(self) -> Run:
        """Take up the interrupted run: what was recorded is not done again, what was under way is closed or replayed.

        Raises MisuseError when no run was interrupted.
        """
        if not self.interrupted:
            raise MisuseError("no run of this session was interrupted; use run() or continue_()")
        return Run(self, None)

    def steer(self, said: Input) -> None:
        """Say something at the next turn boundary of the run under way, or in front of the next prompt."""
        self._queue(said, "steering")

    def follow_up(self, said: Input) -> None:
        """Say something when the run under way would end, or in front of the next prompt."""
        self._queue(said, "follow_up")

    def _queue(self, said: Input, queue: QueueName) -> None:
        message = user_message(said)
        if self._driver is not None and not self._driver.done.is_set():
            self._driver.tell(InputQueued(message, queue))
        else:
            self._waiting = (*self._waiting, message)

    def _inputs_to_continue(self, said: Input | None) -> tuple[UserMessage, ...]:
        if said is not None:
            return (user_message(said),)
        if not self.messages:
            raise MisuseError("there is nothing to continue: this session has no messages yet")
        last = self.messages[-1]
        # Models answer what was said to them; when the last word was their own, they need another.
        spoken = isinstance(last, AssistantMessage) and not last.tool_calls
        return (user_message(CONTINUE),) if spoken and not self._waiting else ()

    # ---- opening and closing runs

    def _claim(self) -> None:
        if self.busy:
            raise SessionBusy(
                f"session {self.id} has a run under way; wait for it, steer it or abort it before you start another"
            )
        self._opening = True

    async def open_run(self, inputs: tuple[UserMessage, ...] | None, alone: bool) -> Driver:
        """Begin a run on ``inputs``, or take up the interrupted one (None). For :class:`Run`."""
        self._claim()
        try:
            if inputs is None:
                self._driver = await self._reopen(alone)
            else:
                self._driver = await self._open(inputs, alone)
            return self._driver
        finally:
            self._opening = False

    async def _open(self, inputs: tuple[UserMessage, ...], alone: bool) -> Driver:
        await self._close_interrupted()
        past = self._imported if self._snapshot is None else self._snapshot.history
        inputs = (*self._waiting, *inputs)
        snapshot, effects = start(past, inputs, self._config.policy)
        self._runs += 1
        self._run = f"{self.id}-{self._runs}"
        driver = self._drive(snapshot, effects, alone)
        if not self._seq:
            await self._write(driver, SessionOpened(self.id))
        imported = tuple(self._imported) if self._snapshot is None else ()
        await self._write(driver, RunStarted(inputs, imported, self._config.policy))
        self._waiting = ()
        return driver

    async def _reopen(self, alone: bool) -> Driver:
        snapshot = self._snapshot
        assert snapshot is not None
        driver = self._drive(snapshot, outstanding(snapshot), alone)
        await self._write(driver, RunResumed())
        return driver

    def _drive(self, snapshot: Snapshot, effects: Effects, alone: bool) -> Driver:
        return Driver(self._config, self._run, snapshot, effects, self._journal, self._seq, turns_away=alone)

    async def _write(self, driver: Driver, what: SessionOpened | RunStarted | RunResumed | Signal) -> None:
        await driver.write(what)
        self._seq = driver.seq

    async def _close_interrupted(self) -> None:
        """A run that its process left open ends as aborted before anything new is said."""
        if self._snapshot is None or self._snapshot.state.final:
            return
        driver = self._drive(self._snapshot, (), True)
        for signal in closing_signals(self._snapshot):
            await self._write(driver, signal)
            self._snapshot = advance(self._snapshot, signal).snapshot
        self._keep(self._snapshot)

    def run_ended(self, driver: Driver) -> None:
        """Keep what the run leaves behind. For :class:`Run`."""
        if self._driver is not driver:
            return
        self._driver = None
        self._seq, self._snapshot = driver.seq, driver.snapshot
        self._keep(driver.snapshot)
        self._waiting = (*self._waiting, *(signal.message for signal in driver.left_over))

    def _keep(self, snapshot: Snapshot) -> None:
        if snapshot.state.final:
            self._waiting = (*snapshot.steering, *snapshot.follow_ups)


def closing_signals(snapshot: Snapshot) -> Iterable[Signal]:
    """What closes a run that nobody drives any more: an abort, and the unknown end of what was under way."""
    if snapshot.state is not State.ABORTING:
        abort = AbortRequested("the process that ran it ended")
        yield abort
        snapshot = advance(snapshot, abort).snapshot
    if snapshot.state.final:
        return
    running = [i for i, slot in enumerate(snapshot.batch.slots) if slot.status == "running"]
    for slot in running:
        yield CallSettled(slot, error_result(snapshot.batch.calls[slot], INTERRUPTED))
    if not running:
        yield ModelFailed(Failure("aborted", "the process ended during the request"))
