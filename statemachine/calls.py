"""One tool call, from the model's wish to its one result: found, read, checked, authorized, started, run, settled.

Whatever goes wrong on the way leaves through the same exit: an error result that the model can act on.
"""

from __future__ import annotations

import difflib
import json
import math
from typing import Any, Literal

import trio

from edgewise.statemachine.arguments import read_arguments
from edgewise.statemachine.errors import InvalidArguments, MisuseError
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
from edgewise.statemachine.snapshot import Slot, State
from edgewise.statemachine.verdicts import Allow, Ask, Deny

ABORTED = "Aborted: the run was stopped while this call ran. What it did until then may be incomplete."
ALONE = "This call needs a person's approval, and this run has nobody to ask{why}. It was not executed."


class LiveCall:
    """A call under way in this process."""

    __slots__ = (
        "abandoned",
        "approved",
        "call",
        "cause",
        "context",
        "due",
        "host",
        "limit",
        "over",
        "scope",
        "slot",
        "thread_scope",
    )

    def __init__(self, host: Host, effect: StartCall, scope: trio.CancelScope) -> None:
        self.host = host
        self.slot = effect.slot
        self.approved = effect.approved
        self.scope = scope
        self.call: ToolCall | None = None
        self.thread_scope: trio.CancelScope | None = None
        self.context: CallContext | None = None
        self.cause: Literal["", "abort", "timeout"] = ""
        self.limit = math.inf
        self.due = math.inf
        """When the watch should look at it next: at its time limit, then at the end of its grace period."""
        self.abandoned = False
        self.over = False

    async def go(self) -> Signal | None:
        """Carry the call out and give the signal that tells how it went; None when it went nowhere."""
        host, number = self.host, self.slot
        slots = host.snapshot.batch.slots
        if number >= len(slots) or slots[number].status == "settled":
            return None  # an abort settled it before its task began
        slot = slots[number]
        self.call = slot.call
        try:
            signal = await _carry_out(host, self, slot)
        except Exception as error:
            # Only what the steps around the tool did not expect comes here; it must not cost the call its result.
            signal = CallSettled(number, failed_result(slot.call, error))
        finally:
            self.over = True
            self.context = None  # it knows this call; a circle would wait for the garbage collector
        return None if self.abandoned else signal

    def cut_off(self) -> Signal | None:
        """What it means that the call was cancelled: its result, unless it was given up already."""
        return None if self.abandoned or self.call is None else CallSettled(self.slot, self.interrupted_result())

    def cancel(self, cause: Literal["abort", "timeout"], due: float) -> None:
        """Ask it to stop; the watch looks whether it has when the clock shows ``due``."""
        self.cause = self.cause or cause
        self.due = due
        if self.context is not None:
            self.context.cancel()
        self.scope.cancel()

    def overdue(self, now: float, grace: float) -> CallSettled | None:
        """Cancel it at its time limit; give it up, with a result, when it ignored that for its grace period."""
        if now < self.due or self.abandoned or self.call is None:
            return None
        if not self.cause:
            self.cancel("timeout", now + grace)
            return None
        self.abandon()
        why = "was cancelled" if self.cause == "abort" else f"exceeded its time limit of {self.limit:g} s"
        text = f"Abandoned: the call {why} and did not stop within {grace:g} s. It may still have effects."
        return CallSettled(self.slot, error_result(self.call, text))

    def abandon(self) -> None:
        """Wait for it no longer; what it gives later is dropped."""
        self.abandoned = True
        self.due = math.inf
        if self.thread_scope is not None:
            self.thread_scope.cancel()

    def interrupted_result(self) -> ToolResult:
        assert self.call is not None
        if self.cause == "timeout":
            text = (
                f"Timed out: the call took longer than its limit of {self.limit:g} s and was cancelled. "
                "Try something smaller or faster."
            )
            return error_result(self.call, text)
        return error_result(self.call, ABORTED)

    def show(self, progress: Any) -> None:
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
        if host.heard and not self.over and not self.abandoned and self.call is not None:
            host.emit(CallUpdated(host.snapshot.turn, self.slot, self.call, progress))


async def _carry_out(host: Host, live: LiveCall, slot: Slot) -> Signal | None:
    call, number = slot.call, live.slot
    tool = host.tools.get(call.name)
    if slot.status == "returned" and slot.result is not None:
        return CallSettled(number, slot.result)
    if slot.status == "running":  # in another process, which died
        stopping = host.snapshot.state is State.ABORTING
        if tool is None or tool.replay != "safe" or stopping:
            return CallSettled(number, error_result(call, INTERRUPTED))
    if tool is None:
        return CallSettled(number, _unknown_tool(host, call))
    try:
        arguments = _checked(tool, call, slot.arguments)
    except InvalidArguments as error:
        return CallSettled(number, _bad_arguments(call, error))
    except Exception as error:
        return CallSettled(number, failed_result(call, error))
    config = host.config
    rewritten: str | None = None
    if config.authorize is not None and not live.approved:
        settled, arguments, rewritten = await _authorize(host, live, tool, arguments)
        if settled is not None:
            return settled
    attempt = slot.attempts + 1
    if not await host.propose(CallStarted(number, attempt, rewritten)):
        return None
    if live.scope.cancel_called:
        return CallSettled(number, live.interrupted_result())
    context = live.context = CallContext(
        call, f"{host.run_id}.t{host.snapshot.turn}.c{number}", host.run_id, attempt, live.show
    )
    limit = tool.timeout if tool.timeout is not None else config.tool_timeout
    if limit is not None:
        live.limit = limit
        live.due = trio.current_time() + limit
        host.look_at(live.due)
    if host.heard:
        host.emit(CallBegan(host.snapshot.turn, number, call))
    try:
        if tool.blocking:
            value = await _in_thread(live, tool, arguments, context)
        else:
            value = await tool.run(arguments, context)
    except (Exception, SystemExit) as error:  # a tool that calls sys.exit() has failed; it must not end the program
        if live.cause:
            return CallSettled(number, live.interrupted_result())
        result = failed_result(call, error, config.result_limit)
    else:
        result = make_result(call, value, config.result_limit)
    live.over = True
    if not live.cause:
        live.due = math.inf
    if config.after_call is None or live.abandoned:
        return CallSettled(number, result)
    return await _look_after(host, live, arguments, result)


def _checked(tool: Tool, call: ToolCall, rewritten: str | None) -> dict[str, Any]:
    if rewritten is not None:
        call = ToolCall(call.id, call.name, rewritten)
    return tool.check(read_arguments(call))


def _unknown_tool(host: Host, call: ToolCall) -> ToolResult:
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


async def _authorize(
    host: Host, live: LiveCall, tool: Tool, arguments: dict[str, Any]
) -> tuple[Signal | None, dict[str, Any], str | None]:
    """Ask the hook. Gives a signal when the call goes no further, else the arguments to run with."""
    call, number = live.call, live.slot
    assert call is not None
    assert host.config.authorize is not None
    proposed = ProposedCall(host.run_id, host.snapshot.turn, number, call, arguments)
    try:
        permission = await call_hook(host.config.authorize, proposed)
    except Exception as error:
        return HookFailed("authorize", f"{type(error).__name__}: {error}"), arguments, None
    if isinstance(permission, Deny):
        text = f"Not permitted: {permission.reason}. The call was not executed."
        stop = permission.reason if permission.stop else None
        return CallSettled(number, error_result(call, text), stop), arguments, None
    if isinstance(permission, Ask):
        if host.turns_away:
            why = f": {permission.reason}" if permission.reason else ""
            return CallSettled(number, error_result(call, ALONE.format(why=why))), arguments, None
        return CallHeld(number, permission.reason), arguments, None
    if not isinstance(permission, Allow):
        wrong = MisuseError(f"it gave {permission!r}; it must give Allow(), Deny(reason) or Ask(reason)")
        return HookFailed("authorize", str(wrong)), arguments, None
    if permission.arguments is None:
        return None, arguments, None
    try:
        text = json.dumps(dict(permission.arguments))
        return None, _checked(tool, call, text), text
    except InvalidArguments as error:
        return CallSettled(number, _bad_arguments(call, error)), arguments, None
    except (TypeError, ValueError) as error:
        return HookFailed("authorize", f"its arguments cannot be written as JSON: {error}"), arguments, None


async def _in_thread(live: LiveCall, tool: Tool, arguments: dict[str, Any], context: CallContext) -> Any:
    """Run a blocking tool in a worker thread. A cancel asks it to stop; only giving it up leaves the thread behind."""
    with trio.CancelScope(shield=True) as live.thread_scope:
        return await trio.to_thread.run_sync(tool.run, arguments, context, abandon_on_cancel=True)
    return None  # left behind


async def _look_after(host: Host, live: LiveCall, arguments: dict[str, Any], result: ToolResult) -> Signal:
    """The result goes on record, then the hook sees it and may put another in its place."""
    number, call = live.slot, live.call
    if not await host.propose(CallReturned(number, result)):
        return CallSettled(number, result)
    assert call is not None
    assert host.config.after_call is not None
    proposed = ProposedCall(host.run_id, host.snapshot.turn, number, call, arguments)
    try:
        other = await call_hook(host.config.after_call, proposed, result)
    except Exception as error:
        return HookFailed("after_call", f"{type(error).__name__}: {error}")
    if other is None:
        return CallSettled(number, result)
    return CallSettled(number, make_result(call, other, host.config.result_limit))
