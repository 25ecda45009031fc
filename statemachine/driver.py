"""The driver: carries out a run's effects under trio and feeds what happens back into the machine.

One task owns a run. Effects that take time (a model call, a tool, a slow hook) are *work*: when a single piece is to be
done and nothing else goes on, the owner does it itself; otherwise each gets a task of its own. Whoever has a signal
posts it, and if nobody is stepping the machine at that moment, steps it. A step is, in this order: the machine, the
journal, the edge log, the subscribers, the effects. What is not on the journal has not happened.

Aborting never waits for anybody: it is a signal like any other, and work that is cancelled and does not end within
its grace period is abandoned. The owner is a system task, so that not even a tool that ignores cancellation keeps a
run from ending. A run has no nursery of its own: thousands of them wait at once, and each would keep one alive.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any

import structlog
import trio

from edgewise.statemachine.audience import Audience
from edgewise.statemachine.calls import LiveCall, LivePermission, Together
from edgewise.statemachine.config import Config
from edgewise.statemachine.errors import IllegalSignal, JournalError
from edgewise.statemachine.events import Edge, Event
from edgewise.statemachine.hooks import Report, checked_verdict, is_inline
from edgewise.statemachine.machine import Step, advance
from edgewise.statemachine.messages import error_result
from edgewise.statemachine.modelcalls import NEVER_SENT, LiveRequest
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.ports import Journal, Tool
from edgewise.statemachine.records import NO_JOURNAL, Happening, Record
from edgewise.statemachine.signals import (
    AbortRequested,
    AskHook,
    CallModel,
    CallSettled,
    CallStarted,
    CancelCall,
    Effect,
    InputQueued,
    Signal,
    StartCall,
    TurnJudged,
)
from edgewise.statemachine.snapshot import Snapshot, State
from edgewise.statemachine.verdicts import Continue
from edgewise.statemachine.watch import current_watch
from edgewise.statemachine.work import Answered, LiveHook, Ticket, Work, hook_failed

_RANDOM = Random()
_NOBODY: frozenset[LivePermission] = frozenset()
_GO_ON = TurnJudged(Continue())


class Driver:
    """Drives one run from a snapshot to a final state."""

    __slots__ = (
        "_at_work",
        "_began",
        "_bell",
        "_clock",
        "_credits",
        "_cut",
        "_edge_taken",
        "_entered",
        "_first",
        "_in_group",
        "_inbox",
        "_last_edge",
        "_owner",
        "_scope",
        "_scopes",
        "_stepping",
        "_work",
        "audience",
        "calls",
        "config",
        "done",
        "error",
        "journal",
        "left_over",
        "over",
        "paused",
        "permissions",
        "random",
        "request",
        "run_id",
        "seq",
        "snapshot",
        "token",
        "tools",
        "turns_away",
        "watch",
    )

    def __init__(
        self,
        config: Config,
        run_id: str,
        snapshot: Snapshot,
        effects: tuple[Effect, ...],
        journal: Journal,
        seq: int,
        *,
        turns_away: bool = False,
    ) -> None:
        self.config = config
        self.run_id = run_id
        self.snapshot = snapshot
        self.journal = journal
        self.seq = seq
        self.turns_away = turns_away
        self.tools: Mapping[str, Tool] = config.tools
        self.random = _RANDOM
        self.done = trio.Event()
        self.over = False
        """Final, or broken off by an error: nothing may begin any more."""
        self.error: BaseException | None = None
        self.left_over: Sequence[InputQueued] = ()
        """Input that came too late for this run."""
        self.calls: dict[int, LiveCall] = {}
        """The calls whose start is on record, and that are not over."""
        self.permissions: frozenset[LivePermission] = _NOBODY
        self.request: LiveRequest | None = None
        self.paused = False
        self.audience = Audience(run_id)
        self.watch = current_watch()
        self.token = trio.lowlevel.current_trio_token()
        self._first = effects
        self._work: list[Work] = []
        self._at_work = 0
        self._in_group = False
        self._scope: trio.CancelScope | None = None
        """Around what the owner does itself."""
        self._scopes: set[trio.CancelScope] | None = None
        """Around each piece of work that has a task of its own; made when the first one has."""
        self._inbox: list[tuple[Signal, Answered | None]] = []
        self._stepping = False
        self._credits = 0
        self._edge_taken: trio.Event | None = None
        self._last_edge: Edge | None = None
        self._bell: trio.Event | None = None
        self._cut = False
        """Something was cancelled since the owner opened its scope: perhaps that very scope."""
        self._owner: trio.lowlevel.Task | None = None
        self._clock = trio.lowlevel.current_clock()
        self._began = self._entered = self.now()
        if snapshot.state is State.ABORTING and not snapshot.batch.open:
            self._inbox.append((NEVER_SENT, None))

    def now(self) -> float:
        """``trio.current_time()``, without the search for the loop."""
        return self._clock.current_time()

    # ---- the owner

    async def drive(self) -> None:
        """Run to the end. Raises nothing: what went wrong is in ``error``."""
        try:
            self._owner = trio.lowlevel.current_task()
            structlog.contextvars.bind_contextvars(run=self.run_id)
            if self.config.on_event is not None:
                # A task that may outlive the run: what a slow subscriber still has to read, it may read afterwards.
                subscription = self.audience.subscribe()
                trio.lowlevel.spawn_system_task(self.audience.serve, self.config.on_event, subscription)
            self._order(self._first)
            self._first = ()
            await self._step_all()
            while not self.over:
                await self._go_on()
        except trio.Cancelled:
            self._end(trio.RunFinishedError("the trio loop ended before the run did"))
            raise
        except BaseException as error:
            self._end(error)
        else:
            self._end(None)

    def _hand_out(self) -> None:
        """Give each waiting piece of work a task of its own."""
        work, self._work = self._work, []
        self._at_work += len(work)
        for piece in work:
            self._spawn(self._worker, piece)

    def _spawn(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Start a task that nobody waits for, with the owner's context variables."""
        assert self._owner is not None
        trio.lowlevel.spawn_system_task(self._guarded, function, *args, context=self._owner.context.copy())

    async def _guarded(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """What goes wrong in a task of this run is the end of this run, and of nothing else."""
        try:
            await function(*args)
        except trio.Cancelled:
            self._end(trio.RunFinishedError("the trio loop ended before the run did"))
            raise
        except BaseException as error:
            self._end(error)

    async def _go_on(self) -> None:
        """The owner's part, until something that it did itself is cancelled: then it needs another scope."""
        work: Work | None = None
        self._cut = False
        with trio.CancelScope() as scope:
            self._scope = scope
            while not self.over and not self._cut:
                if len(self._work) == 1 and not self._at_work:
                    work = self._work.pop()
                    signal = await work.go(scope)
                    self._is_over(work, signal)
                    work = signal = None
                    if (rest := self._step()) is not None:
                        await rest
                elif self._work and not self._at_work:
                    await self._do_together()
                elif self._work:
                    self._hand_out()
                else:
                    self._bell = trio.Event()
                    await self._bell.wait()
                    self._bell = None
        if work is not None:
            self._is_over(work, work.cut_off())
            await self._step_all()

    async def _do_together(self) -> None:
        """Several pieces at once. Calls that start at one moment, with one time limit, share a scope.

        A cancel scope costs as much as all else that is done about a call, and these are only ever cancelled together:
        by an abort, or at their limit.
        """
        work, self._work = self._work, []
        self._at_work += len(work)
        limit = self.config.tool_timeout
        first: LiveCall | None = None
        self._in_group = True
        async with trio.open_nursery() as nursery:
            for piece in work:
                if isinstance(piece, LiveCall) and not piece.has_own_limit:
                    if first is None:
                        first = piece
                        piece.limit_to(limit)
                    piece.limit, piece.due = first.limit, first.due
                    nursery.start_soon(self._member, piece, nursery.cancel_scope, name=piece.call.name)
                else:
                    self._spawn(self._worker, piece)
        self._in_group = False

    def _owner_comes_back(self) -> bool:
        """Whether the owner sees to new work itself: it is stepping, or about to leave a group that has ended."""
        return (self._in_group and not self._at_work) or trio.lowlevel.current_task() is self._owner

    async def _member(self, call: LiveCall, scope: trio.CancelScope) -> None:
        signal: Signal | None = None
        try:
            signal = await call.go(scope)
        except BaseException as error:
            cancelled, _ = BaseExceptionGroup("", [error]).split(trio.Cancelled)
            if cancelled is None:
                self._end(error)
            else:
                if scope.cancel_called:
                    signal = call.cut_off()
                raise cancelled from None
        finally:
            if self.calls.get(call.slot) is call:
                del self.calls[call.slot]
            if signal is not None:
                self._inbox.append((signal, None))
            self._at_work -= 1
            if (rest := self._step()) is not None:
                await rest

    async def _worker(self, work: Work) -> None:
        signal: Signal | None = None
        scope = trio.CancelScope()
        scopes = self._scopes = self._scopes or set()
        scopes.add(scope)
        try:
            with scope:
                signal = await work.go(scope)
            if scope.cancelled_caught:
                signal = work.cut_off()
        finally:
            scopes.discard(scope)
            self._is_over(work, signal)
            self._at_work -= 1
            if (rest := self._step()) is not None:
                await rest

    def _is_over(self, work: Work, signal: Signal | None) -> None:
        """Let go of a piece of work, so that nobody cancels it any more, and leave its signal for the machine."""
        ticket: LiveCall | None = None
        if isinstance(work, LiveCall):
            if self.calls.get(work.slot) is work:
                del self.calls[work.slot]
        elif isinstance(work, LiveRequest):
            if self.request is work:
                self.request = None
        elif isinstance(work, LivePermission):
            self.permissions -= {work}
            ticket = work.call if isinstance(signal, CallStarted) else None
        if signal is not None:
            self._inbox.append((signal, ticket))

    # ---- signals in

    async def propose(self, signal: Signal) -> bool:
        """Hand a signal to the machine and wait until it was taken and written (True) or refused (False)."""
        ticket = Ticket()
        self._inbox.append((signal, ticket))
        if (rest := self._step()) is not None:
            await rest
        if ticket.taken is None:
            ticket.event = trio.Event()
            await ticket.event.wait()
        return ticket.taken is True

    def tell(self, signal: Signal) -> None:
        """Hand a signal to the machine, without waiting; where it is not legal any more, nothing happens."""
        if isinstance(signal, AbortRequested):
            self.paused = False
            self._inbox.insert(0, (signal, None))
        else:
            self._inbox.append((signal, None))
        self.kick()

    def kick(self) -> None:
        """See to it that somebody steps the machine."""
        if self._owner is not None and not self._stepping and not self.done.is_set():
            self._spawn(self._step_all)

    async def next_edge(self) -> Edge | None:
        """While paused: let signals through until one takes an edge, or the run ends."""
        if self.done.is_set():
            return None
        self._credits += 1
        taken = self._edge_taken = self._edge_taken or trio.Event()
        self._last_edge = None
        self.kick()
        await taken.wait()
        self._edge_taken = None
        return self._last_edge

    async def _step_all(self) -> None:
        if (rest := self._step()) is not None:
            await rest

    def _step(self) -> Awaitable[None] | None:
        """Take signals until none is left. Only one task does this at a time; the others leave theirs to it.

        Most journals write at once. Then all is done when this returns, without a coroutine; otherwise what it gives
        has to be awaited, and does the rest.
        """
        if self._stepping:
            return None
        self._stepping = True
        inbox = self._inbox
        try:
            while inbox and self.error is None and (not self.paused or self._credits):
                signal, ticket = inbox.pop(0)
                step = self._try(signal)
                if step is not None and (pending := self._write(signal)) is not None:
                    return self._step_on(pending, signal, step, ticket)
                self._taken(signal, step, ticket)
        except BaseException:
            self._stepping = False
            raise
        self._stepping = False
        self._look_round()
        return None

    async def _step_on(self, pending: Awaitable[None], signal: Signal, step: Step, ticket: Answered | None) -> None:
        """Go on stepping from a record that is yet to be written."""
        try:
            await self._persist(pending)
            self._taken(signal, step, ticket)
        finally:
            self._stepping = False
        await self._step_all()

    def _try(self, signal: Signal) -> Step | None:
        try:
            return advance(self.snapshot, signal)
        except IllegalSignal:
            # What comes too late: a start after an abort, a result of a call that was given up, input after the end.
            if isinstance(signal, InputQueued):
                self.left_over = (*self.left_over, signal)
            return None

    def _taken(self, signal: Signal, step: Step | None, ticket: Answered | None) -> None:
        """A signal was refused (no step), or its record is written, or failed to be: do what comes of it."""
        if step is not None and self.error is None:
            before = self.snapshot
            after, effects, _ = step
            self.snapshot = after
            if self.audience.attentive or self._edge_taken is not None:
                seconds = self.now() - self._entered
                self._last_edge = self.audience.show(self.seq, signal, before, step, seconds)
                if self._edge_taken is not None:
                    self._edge_taken.set()
            if after.state is not before.state:
                self._entered = self.now()
                if after.state is State.ABORTING:
                    self._drop_permissions()
                elif after.state.final:
                    self.finish()
            if effects:
                self._order(effects)
            if self._credits:
                self._credits -= 1
            if ticket is not None:
                ticket.answer(True)
        elif ticket is not None:
            ticket.answer(False)

    def _look_round(self) -> None:
        """Nobody is stepping any more: see that the work which has come of it is done, or that none is."""
        if self.over:
            self._stop_work()
        if self._bell is not None:
            if self._work or self.over:
                self._bell.set()
        elif self._work and not self._owner_comes_back():
            self._hand_out()

    async def write(self, what: Happening) -> None:
        """Write a record. Raises JournalError when that fails."""
        if (pending := self._write(what)) is not None:
            await self._persist(pending)
        if self.error is not None:
            raise self.error

    def _write(self, what: Happening) -> Awaitable[None] | None:
        """Hand a record to the journal; what is to be awaited is given back. A failure stops the run, loudly."""
        self.seq += 1
        if self.journal is NO_JOURNAL:
            return None
        try:
            return self.journal.append(Record(self.seq, self.run_id, time.time(), what))
        except Exception as error:
            self._not_written(error)
            return None

    def _not_written(self, error: Exception) -> None:
        self.seq -= 1
        self.over = True
        if isinstance(error, JournalError):
            self.error = error
        else:
            self.error = JournalError(f"the journal could not be written: {type(error).__name__}: {error}")
            self.error.__cause__ = error

    async def _persist(self, pending: Awaitable[None]) -> None:
        """Wait until a record is written: shielded, with a deadline."""
        seconds = self.config.journal_deadline
        try:
            with trio.CancelScope(shield=True, deadline=self.now() + seconds) as scope:
                await pending
            if scope.cancelled_caught:
                raise JournalError(f"the journal was not written within {seconds:g} s")
        except Exception as error:
            self._not_written(error)

    # ---- effects out

    def _order(self, effects: tuple[Effect, ...]) -> None:
        ready: list[LiveCall] = []
        for effect in effects:
            if isinstance(effect, StartCall):
                self._prepare_call(effect, ready)
            elif isinstance(effect, CallModel):
                self.request = LiveRequest(self, effect)
                self._work.append(self.request)
            elif isinstance(effect, AskHook):
                self._ask_hook(effect)
            elif isinstance(effect, CancelCall):
                self._cut = True
                live = self.calls.get(effect.slot)
                if live is not None:
                    live.interrupt("abort", self.now() + self.config.grace)
                    self.look_at(live.due)
                else:
                    self._inbox.append((self._lost_call(effect.slot), None))
            else:
                self._cut = True
                if self.request is not None:
                    self.request.cancel(self.now() + self.config.grace)
                    self.look_at(self.request.kill_at)
        if len(ready) > 1:
            together = Together(ready)
            self._inbox.append((together.intent(), together))
        elif ready:
            self._inbox.append((ready[0].intent(), ready[0]))

    def _prepare_call(self, effect: StartCall, ready: list[LiveCall]) -> None:
        """Take a call as far as it goes without waiting: to its end, to the hook, or to the intent to run it."""
        batch = self.snapshot.batch
        call = LiveCall(self, effect, batch.calls[effect.slot])
        if (settled := call.prepare(batch)) is not None:
            self._inbox.append((settled, None))
        elif self.config.authorize is not None and not effect.approved:
            permission = LivePermission(call)
            self.permissions |= {permission}
            self._work.append(permission)
        elif call.plain:
            ready.append(call)
        else:
            self._inbox.append((call.intent(), call))

    def run_call(self, call: LiveCall) -> None:
        """The start of ``call`` is on record: have it run."""
        self.calls[call.slot] = call
        self._work.append(call)

    def _lost_call(self, slot: int) -> CallSettled:
        call = self.snapshot.batch.calls[slot]
        return CallSettled(slot, error_result(call, "Aborted before it ran."))

    def _drop_permissions(self) -> None:
        """Nobody need answer any more whether a call may run: the abort has settled it."""
        self._cut = True
        for permission in self.permissions:
            if permission.scope is not None:
                permission.scope.cancel()
        self._work = [work for work in self._work if not isinstance(work, LivePermission)]

    def _ask_hook(self, effect: AskHook) -> None:
        hook = self.config.should_continue
        if not is_inline(hook):
            self._work.append(LiveHook(hook, self.report()))
            return
        try:
            verdict = checked_verdict(hook(self.report()))
        except Exception as error:
            self._inbox.append((hook_failed("should_continue", error), None))
        else:
            self._inbox.append((_GO_ON if verdict == _GO_ON.verdict else TurnJudged(verdict), None))

    def report(self) -> Report:
        return Report(self.run_id, self.snapshot, self.now() - self._began)

    def overdue(self, now: float) -> float:
        """The watch's call: see to calls past their time limit or their grace period."""
        if self.done.is_set():
            return math.inf
        self._cut = True
        due = math.inf
        for live in tuple(self.calls.values()):
            if (given_up := live.overdue(now, self.config.grace)) is not None:
                self.tell(given_up)
            due = min(due, live.due)
        if self.request is not None:
            if (failed := self.request.overdue(now)) is not None:
                self.tell(failed)
            due = min(due, self.request.kill_at)
        return due

    # ---- the end

    def finish(self) -> None:
        """The run has reached a final state: say so, and let go of everything."""
        if self.done.is_set():
            return
        self.over = True
        self.audience.close(self.outcome() if self.error is None else None)
        self.watch.forget(self)
        self.done.set()
        if self._edge_taken is not None:
            self._edge_taken.set()

    def _stop_work(self) -> None:
        """Nothing survives the run."""
        for signal, ticket in self._inbox:
            if isinstance(signal, InputQueued):
                self.left_over = (*self.left_over, signal)
            if ticket is not None:
                ticket.answer(False)
        self._inbox.clear()
        self._work = []
        for live in self.calls.values():
            live.abandon()
        for scope in (self._scope, *(self._scopes or ())):
            if scope is not None:
                scope.cancel()
        if self.error is not None:
            self.finish()

    def _end(self, error: BaseException | None) -> None:
        if not self.done.is_set():
            self.over = True
            self.error = self.error or error
            self.finish()
        self._stop_work()

    def outcome(self) -> Outcome:
        return Outcome(self.run_id, self.snapshot)

    # ---- for the work under way, see Host

    @property
    def heard(self) -> bool:
        return self.audience.listens

    def emit(self, event: Event) -> None:
        self.audience.emit(event)

    def look_at(self, due: float) -> None:
        self.watch.note(self, due)
