"""One tool call, from the model's wish to its one result: found, read, checked, authorized, started, run, settled.

Whatever goes wrong on the way leaves through the same exit: an error result that the model can act on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import trio

from edgewise.statemachine.arguments import read_arguments
from edgewise.statemachine.errors import InvalidArguments
from edgewise.statemachine.events import CallBegan, CallUpdated
from edgewise.statemachine.hooks import ProposedCall, call_hook
from edgewise.statemachine.host import Host
from edgewise.statemachine.machine import INTERRUPTED
from edgewise.statemachine.messages import ToolCall, ToolResult, error_result
from edgewise.statemachine.ports import CallContext, Tool
from edgewise.statemachine.results import failed_result, make_result
from edgewise.statemachine.signals import (
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    HookFailed,
    Signal,
    StartCall,
)
from edgewise.statemachine.snapshot import Batch, State
from edgewise.statemachine.verdicts import Allow, Ask, Deny

ABORTED = "Aborted: the run was stopped while this call ran. What it did until then may be incomplete."
ALONE = "This call needs a person's approval, and this run has nobody to ask{why}. It was not executed."


_FIRST_STARTS = tuple([CallStarted(slot) for slot in range(8)])
"""Nearly all starts are one of these, and journals keep them; so they share them."""


class LiveCall(CallContext):
    """A call under way in this process: first prepared, then, once its start is on record, run."""

    __slots__ = (
        "_arguments",
        "_over",
        "_rewritten",
        "_thread_scope",
        "_tool",
        "abandoned",
        "cause",
        "due",
        "host",
        "limit",
        "scope",
        "slot",
    )

    _tool: Tool
    _arguments: dict[str, Any]

    def __init__(self, host: Host, effect: StartCall, call: ToolCall) -> None:
        self.host = host
        self.slot = effect.slot
        super().__init__(call, host.run_id, effect.id)
        self.scope: trio.CancelScope | None = None
        self.cause: Literal["", "abort", "timeout"] = ""
        self.limit = math.inf
        self.due = math.inf
        """When the watch should look at it next: at its time limit, then at the end of its grace period."""
        self.abandoned = False
        self._rewritten: str | None = None
        self._thread_scope: trio.CancelScope | None = None
        self._over = False

    # ---- before it starts

    def prepare(self, batch: Batch) -> CallSettled | None:
        """Find the tool and read its arguments. Gives the call's end when it goes no further than that."""
        number = self.slot
        rewritten: str | None = None
        tool = self.host.tools.get(self.call.name)
        if batch.particulars or batch.marks[number] != "s":
            slot = batch.slot(number)
            self.attempt = slot.attempts + 1
            rewritten = slot.arguments
            if slot.status == "returned" and slot.result is not None:
                return CallSettled(number, slot.result)
            if slot.status == "running":  # in another process, which died
                stopping = self.host.snapshot.state is State.ABORTING
                if tool is None or tool.replay != "safe" or stopping:
                    return CallSettled(number, error_result(self.call, INTERRUPTED))
        if tool is None:
            return CallSettled(number, _unknown_tool(self.host, self.call))
        self._tool = tool
        return self._read(rewritten)

    def _read(self, rewritten: str | None) -> CallSettled | None:
        call = self.call if rewritten is None else ToolCall(self.call.id, self.call.name, rewritten)
        try:
            self._arguments = self._tool.check(read_arguments(call))
        except InvalidArguments as error:
            return CallSettled(self.slot, _bad_arguments(self.call, error))
        except Exception as error:
            return CallSettled(self.slot, failed_result(self.call, error))
        return None

    def proposed(self) -> ProposedCall:
        """The call as hooks see it."""
        return ProposedCall(self.host.run_id, self.host.snapshot.turn, self.slot, self.call, self._arguments)

    def rewrite(self, arguments: Mapping[str, Any]) -> CallSettled | None:
        """Put a hook's arguments in place of the model's; they are validated again. Raises TypeError or ValueError."""
        self._rewritten = json.dumps(dict(arguments))
        return self._read(self._rewritten)

    def intent(self) -> CallStarted:
        """What is proposed to the machine, and written down, before the tool runs."""
        if self.plain and self.slot < len(_FIRST_STARTS):
            return _FIRST_STARTS[self.slot]
        return CallStarted(self.slot, self.attempt, self._rewritten)

    @property
    def plain(self) -> bool:
        """Whether there is nothing to its intent but its slot, so that it can share a record with others."""
        return self.attempt == 1 and self._rewritten is None

    def answer(self, taken: bool) -> None:
        """The intent was taken, so the call may run; or it was refused, since an abort was faster."""
        if taken:
            self.host.run_call(self)

    # ---- from its start on

    def limit_to(self, seconds: float | None) -> None:
        """Let it run so long from now on; the watch sees to it."""
        if seconds is not None:
            self.limit = seconds
            self.due = self.host.now() + seconds
            self.host.look_at(self.due)

    @property
    def has_own_limit(self) -> bool:
        """Whether its time limit is its tool's, not the agent's."""
        return self._tool.timeout is not None

    async def go(self, scope: trio.CancelScope) -> Signal | None:
        """Run it and give the signal that tells how it went; None when that is told already."""
        self.scope = scope
        if self.cause:  # the abort came between the record and this task
            return CallSettled(self.slot, self._cut_short())
        host, tool, call = self.host, self._tool, self.call
        config = host.config
        if self.due == math.inf:
            self.limit_to(tool.timeout if tool.timeout is not None else config.tool_timeout)
        if host.heard:
            host.emit(CallBegan(host.snapshot.turn, self.slot, call))
        try:
            if tool.blocking:
                result = await self._in_thread()
            else:
                result = make_result(call, await tool.run(self._arguments, self), config.result_limit)
        except BaseExceptionGroup as errors:
            cancelled, _ = errors.split(trio.Cancelled)
            if cancelled is not None and self.cause:
                raise cancelled from None  # what went wrong while it was cancelled is its own affair
            if not isinstance(errors, Exception):
                raise
            result = self._cut_short() if self.cause else failed_result(call, errors, config.result_limit)
        except (Exception, SystemExit) as error:  # a tool that calls sys.exit() has failed; it must not end the program
            result = self._cut_short() if self.cause else failed_result(call, error, config.result_limit)
        finally:
            self._over = True
        if not self.cause:
            self.due = math.inf
        if self.abandoned:
            return None
        if config.after_call is None:
            return CallSettled(self.slot, result)
        return await self._look_after(result)

    async def _in_thread(self) -> ToolResult:
        """Run a blocking tool. A cancel asks the thread to stop; only giving the call up leaves it behind."""
        with trio.CancelScope(shield=True) as self._thread_scope:
            value = await trio.to_thread.run_sync(self._tool.run, self._arguments, self, abandon_on_cancel=True)
            return make_result(self.call, value, self.host.config.result_limit)
        return self._cut_short()

    async def _look_after(self, result: ToolResult) -> Signal:
        """The result goes on record, then the after_call hook sees it and may put another in its place."""
        host, number = self.host, self.slot
        if not await host.propose(CallReturned(number, result)):
            return CallSettled(number, result)
        assert host.config.after_call is not None
        try:
            other = await call_hook(host.config.after_call, self.proposed(), result)
        except Exception as error:
            return HookFailed("after_call", f"{type(error).__name__}: {error}")
        if other is None:
            return CallSettled(number, result)
        return CallSettled(number, make_result(self.call, other, host.config.result_limit))

    def cut_off(self) -> Signal | None:
        """What it means that the call was cancelled: its result, unless it was given up already."""
        return None if self.abandoned else CallSettled(self.slot, self._cut_short())

    def interrupt(self, cause: Literal["abort", "timeout"], due: float) -> None:
        """Ask it to stop; the watch looks whether it has when the clock shows ``due``."""
        self.cause = self.cause or cause
        self.due = due
        self._cancelled = True
        if self.scope is not None:
            self.scope.cancel()

    def overdue(self, now: float, grace: float) -> CallSettled | None:
        """Cancel it at its time limit; give it up, with a result, when it ignored that for its grace period."""
        if now < self.due or self.abandoned:
            return None
        if not self.cause:
            self.interrupt("timeout", now + grace)
            return None
        self.abandon()
        why = "was cancelled" if self.cause == "abort" else f"exceeded its time limit of {self.limit:g} s"
        text = f"Abandoned: the call {why} and did not stop within {grace:g} s. It may still have effects."
        return CallSettled(self.slot, error_result(self.call, text))

    def abandon(self) -> None:
        """Wait for it no longer; what it gives later is dropped."""
        self.abandoned = True
        self.due = math.inf
        if self._thread_scope is not None:
            self._thread_scope.cancel()

    def _cut_short(self) -> ToolResult:
        if self.cause == "timeout":
            text = (
                f"Timed out: the call took longer than its limit of {self.limit:g} s and was cancelled. "
                "Try something smaller or faster."
            )
            return error_result(self.call, text)
        return error_result(self.call, ABORTED)

    def update(self, progress: Any) -> None:
        """Pass a progress report on to the subscribers, from whatever thread; late ones are dropped."""
        if trio.lowlevel.in_trio_task():
            self._deliver(progress)
            return
        try:
            self.host.token.run_sync_soon(self._deliver, progress)
        except trio.RunFinishedError:
            pass

    def _deliver(self, progress: Any) -> None:
        host = self.host
        if host.heard and not self._over and not self.abandoned:
            host.emit(CallUpdated(host.snapshot.turn, self.slot, self.call, progress))


def _unknown_tool(host: Host, call: ToolCall) -> ToolResult:
    import difflib  # only needed here, and slow to import

    names = sorted(host.tools)
    near = difflib.get_close_matches(call.name, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    offer = f" The tools are: {', '.join(names)}." if names else " There are no tools."
    return error_result(call, f"Unknown tool: {call.name or '(no name)'}.{hint}{offer}")


def _bad_arguments(call: ToolCall, error: InvalidArguments) -> ToolResult:
    faults = "\n".join(f"- {fault}" for fault in error.faults)
    return error_result(
        call, f"Invalid arguments for {call.name}; the call was not executed. Mend these and call again:\n{faults}"
    )


class Together:
    """Calls that start at the same moment: one intent for all of them."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Sequence[LiveCall]) -> None:
        self._calls = calls

    def intent(self) -> CallStarted:
        return CallStarted(self._calls[0].slot, others=tuple([call.slot for call in self._calls[1:]]))

    def answer(self, taken: bool) -> None:
        for call in self._calls:
            call.answer(taken)


class LivePermission:
    """The question whether a call may run, put to the authorize hook."""

    __slots__ = ("call", "scope")

    def __init__(self, call: LiveCall) -> None:
        self.call = call
        self.scope: trio.CancelScope | None = None

    async def go(self, scope: trio.CancelScope) -> Signal | None:
        """Ask, and give what follows: the intent to run the call, its end, or that it is held."""
        self.scope = scope
        call, host = self.call, self.call.host
        number = call.slot
        assert host.config.authorize is not None
        try:
            permission = await call_hook(host.config.authorize, call.proposed())
            if isinstance(permission, Allow):
                refused = call.rewrite(permission.arguments) if permission.arguments is not None else None
                return refused or call.intent()
        except Exception as error:
            return HookFailed("authorize", f"{type(error).__name__}: {error}")
        if isinstance(permission, Deny):
            text = f"Not permitted: {permission.reason}. The call was not executed."
            stop = permission.reason if permission.stop else None
            return CallSettled(number, error_result(call.call, text), stop)
        if isinstance(permission, Ask):
            if not host.turns_away:
                return CallHeld(number, permission.reason)
            why = f": {permission.reason}" if permission.reason else ""
            return CallSettled(number, error_result(call.call, ALONE.format(why=why)))
        return HookFailed("authorize", f"it gave {permission!r}; it must give Allow(), Deny(reason) or Ask(reason)")

    def cut_off(self) -> None:
        """An abort has settled the call already."""
        return
