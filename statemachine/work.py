"""The kinds of work that a driver has done, and those who are told whether a signal of theirs was taken."""

from __future__ import annotations

from typing import TypeAlias

import trio

from edgewise.statemachine.calls import LiveCall, LivePermission, Together
from edgewise.statemachine.hooks import Report, ShouldContinue, call_hook, checked_verdict
from edgewise.statemachine.modelcalls import LiveRequest
from edgewise.statemachine.signals import HookFailed, Signal, TurnJudged


class Ticket:
    """The answer to a signal that was proposed: True once it was taken and written, False when it was refused."""

    __slots__ = ("event", "taken")

    def __init__(self) -> None:
        self.taken: bool | None = None
        self.event: trio.Event | None = None

    def answer(self, taken: bool) -> None:
        self.taken = taken
        if self.event is not None:
            self.event.set()


class LiveHook:
    """A should-continue hook that takes its time. An abort does not wait for it: the scope around it is cancelled."""

    __slots__ = ("_hook", "_report")

    def __init__(self, hook: ShouldContinue, report: Report) -> None:
        self._hook = hook
        self._report = report

    async def go(self, scope: trio.CancelScope) -> Signal:
        try:
            verdict = await call_hook(self._hook, self._report)
            return TurnJudged(checked_verdict(verdict))
        except Exception as error:
            return hook_failed("should_continue", error)

    def cut_off(self) -> None:
        return None


def hook_failed(hook: str, error: BaseException) -> HookFailed:
    return HookFailed(hook, f"{type(error).__name__}: {error}")


Work: TypeAlias = LiveCall | LiveRequest | LivePermission | LiveHook
Answered: TypeAlias = Ticket | LiveCall | Together
"""Who is told whether a signal was taken."""
