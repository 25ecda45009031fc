"""The should-continue hook and its ready-made forms, and how hooks of any kind are called.

A hook is any callable, sync or async. After each turn the should-continue hook sees a :class:`Report` and answers
Continue, Finish or Limit; there is no other cap on a run. A sync hook runs in a worker thread, so that a slow one
cannot keep an abort from being heard; one that never blocks can be marked :func:`inline` and is called in place.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs
import trio

from edgewise.statemachine.arguments import canonical_arguments
from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.messages import AssistantMessage, Message, ToolCall, ToolResult, Usage
from edgewise.statemachine.ports import ModelRequest
from edgewise.statemachine.snapshot import Snapshot
from edgewise.statemachine.verdicts import Continue, Limit, Permission, Verdict

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_MAX_TURNS = 50


@attrs.frozen(eq=False)
class Report:
    """What a should-continue hook is asked about: the turn that just ended, and the run so far."""

    run_id: str
    snapshot: Snapshot
    elapsed: float
    """Seconds since the run began, in this process."""

    @property
    def turns(self) -> int:
        """How many turns this run has had."""
        return self.snapshot.turn

    @property
    def calls(self) -> int:
        """How many tool calls this run has made."""
        return self.snapshot.calls

    @property
    def usage(self) -> Usage:
        """Tokens and cost of this run."""
        return self.snapshot.usage

    @property
    def pending(self) -> bool:
        """Whether anything is left to do: calls were made, or input is queued. If not, Continue ends the run."""
        s = self.snapshot
        return bool(s.turn_calls or s.steering or s.follow_ups)

    @property
    def message(self) -> AssistantMessage | None:
        """The reply of the turn that just ended."""
        for message in reversed(self.snapshot.history):
            if isinstance(message, AssistantMessage):
                return message
        return None

    def recent_calls(self) -> Iterator[tuple[ToolCall, ToolResult]]:
        """The calls of this conversation with their results, the newest first, back to the last user message."""
        results: list[ToolResult] = []
        for message in _backwards(self.snapshot):
            if isinstance(message, ToolResult):
                results.append(message)
            elif isinstance(message, AssistantMessage):
                yield from zip(reversed(message.tool_calls), results, strict=False)
                results = []
            else:
                return


def _backwards(snapshot: Snapshot) -> Iterator[Message]:
    history = snapshot.history
    for i in range(len(history) - 1, -1, -1):
        yield history[i]


ShouldContinue: TypeAlias = Callable[[Report], Verdict | Awaitable[Verdict]]


@attrs.frozen(eq=False)
class ProposedCall:
    """A call that an authorize hook is asked about; ``arguments`` are read, validated and coerced already."""

    run_id: str
    turn: int
    slot: int
    call: ToolCall
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return self.call.name


Authorize: TypeAlias = Callable[[ProposedCall], Permission | Awaitable[Permission]]
AfterCall: TypeAlias = Callable[[ProposedCall, ToolResult], Any]
"""Gives None to leave the result as it is, or what should stand in its place: a ToolResult, or any value."""


class PrepareRequest(Protocol):
    """Gives the request that is sent in place of the one that it is shown, or None to leave it as it is."""

    def __call__(self, request: ModelRequest, /) -> ModelRequest | Awaitable[ModelRequest | None] | None: ...


def inline(hook: F) -> F:
    """Mark a sync hook as one that never blocks; it is then called in place, not in a worker thread."""
    hook.edgewise_inline = True  # type: ignore[attr-defined]
    return hook


def is_inline(hook: Callable[..., Any]) -> bool:
    return bool(getattr(hook, "edgewise_inline", False))


def _is_async(hook: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(getattr(hook, "__call__", None))  # noqa: B004


async def call_hook(hook: Callable[..., Any], *args: Any) -> Any:
    """Call ``hook`` in the way that suits it, and give what it gives. Cancellation abandons a thread."""
    if is_inline(hook):
        result = hook(*args)
    elif _is_async(hook):
        return await hook(*args)
    else:
        # Boxed, since trio lets no thread give something to await.
        (result,) = await trio.to_thread.run_sync(lambda: (hook(*args),), abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def checked_verdict(verdict: object) -> Verdict:
    """``verdict``, or a MisuseError that says what a should-continue hook must give."""
    from edgewise.statemachine.verdicts import Finish

    if isinstance(verdict, (Continue, Finish, Limit)):
        return verdict
    raise MisuseError(f"should_continue gave {verdict!r}; it must give Continue(), Finish(reason) or Limit(reason)")


_CONTINUE = Continue()


def max_turns(turns: int, *, wrap_up: bool = False) -> ShouldContinue:
    """Limit a run to ``turns`` turns, if anything is left to do then."""
    if turns < 1:
        raise MisuseError(f"max_turns({turns}): a run has one turn at least")

    @inline
    def hook(report: Report) -> Verdict:
        if report.snapshot.turn >= turns and report.pending:
            spent = f"all {turns} turns" if turns > 1 else "its one turn"
            return Limit(f"it used {spent}", wrap_up)
        return _CONTINUE

    return hook


def token_budget(tokens: int, *, wrap_up: bool = False) -> ShouldContinue:
    """Limit a run to ``tokens`` input and output tokens together; asked after each turn, so one turn may overshoot."""

    @inline
    def hook(report: Report) -> Verdict:
        used = report.usage.total_tokens
        if used >= tokens and report.pending:
            return Limit(f"it used {used:,} of {tokens:,} tokens", wrap_up)
        return _CONTINUE

    return hook


def cost_budget(dollars: float, *, wrap_up: bool = False) -> ShouldContinue:
    """Limit a run to ``dollars`` US dollars, as far as its models' prices are known."""

    @inline
    def hook(report: Report) -> Verdict:
        if report.usage.cost >= dollars and report.pending:
            return Limit(f"it cost ${report.usage.cost:.4f} of ${dollars:.4f}", wrap_up)
        return _CONTINUE

    return hook


def deadline(seconds: float, *, wrap_up: bool = False) -> ShouldContinue:
    """Limit a run to ``seconds``, looked at after each turn. (To interrupt a turn, use a trio cancel scope.)"""

    @inline
    def hook(report: Report) -> Verdict:
        if report.elapsed >= seconds and report.pending:
            return Limit(f"it took {report.elapsed:.1f} of {seconds:g} seconds", wrap_up)
        return _CONTINUE

    return hook


def repeated_calls(times: int, *, wrap_up: bool = False) -> ShouldContinue:
    """Limit a run that makes the same call with the same arguments ``times`` times in a row, successful or not."""
    if times < 2:
        raise MisuseError(f"repeated_calls({times}): a repetition takes two calls at least")

    @inline
    def hook(report: Report) -> Verdict:
        if not report.snapshot.turn_calls:
            return _CONTINUE
        first: tuple[str, str] | None = None
        for count, (call, _) in enumerate(report.recent_calls(), 1):
            this = (call.name, canonical_arguments(call.arguments))
            first = first or this
            if this != first:
                break
            if count >= times:
                return Limit(f"it called {call.name} {times} times in a row with the same arguments", wrap_up)
        return _CONTINUE

    return hook


def any_of(*hooks: ShouldContinue) -> ShouldContinue:
    """The first verdict of ``hooks`` that is not Continue."""
    if all(is_inline(hook) for hook in hooks):

        @inline
        def in_place(report: Report) -> Verdict:
            for hook in hooks:
                verdict = checked_verdict(hook(report))
                if type(verdict) is not Continue:
                    return verdict
            return _CONTINUE

        return in_place

    async def ask(report: Report) -> Verdict:
        for hook in hooks:
            verdict = checked_verdict(await call_hook(hook, report))
            if type(verdict) is not Continue:
                return verdict
        return _CONTINUE

    return ask


def all_of(*hooks: ShouldContinue) -> ShouldContinue:
    """Continue unless every one of ``hooks`` says otherwise; then the first one's verdict."""
    if not hooks:
        raise MisuseError("all_of() takes one hook at least")

    async def ask(report: Report) -> Verdict:
        verdicts: list[Verdict] = []
        for hook in hooks:
            verdict = checked_verdict(await call_hook(hook, report))
            if type(verdict) is Continue:
                return verdict
            verdicts.append(verdict)
        return verdicts[0]

    return ask
