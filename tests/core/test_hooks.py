"""The ready-made should-continue hooks, and how hooks of every kind are called."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from edgewise import (
    Continue,
    Finish,
    Limit,
    MisuseError,
    Report,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    all_of,
    any_of,
    cost_budget,
    deadline,
    fold,
    inline,
    max_turns,
    repeated_calls,
    start,
    token_budget,
)
from edgewise.statemachine.hooks import call_hook, checked_verdict, is_inline
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.signals import CallSettled, InputQueued, ModelReplied, Signal, TurnJudged

GO_ON = TurnJudged(Continue())


def _turn(*calls: ToolCall, failed: bool = False) -> list[Signal]:
    """A turn with ``calls``, up to the hook."""
    reply = ModelReplied(AssistantMessage(calls or (Text("hello"),), usage=Usage(100, 10, cost=0.5)))
    results = [ToolResult(call.id, call.name, (Text("x"),), failed) for call in calls]
    return [reply, *(CallSettled(i, result) for i, result in enumerate(results))]


def _report(*signals: Signal, elapsed: float = 0.0) -> Report:
    snapshot, _ = start(inputs=[user_message("go")])
    return Report("run", fold(snapshot, signals), elapsed)


LOOK, READ = ToolCall.of("look"), ToolCall.of("read", path="a.txt")
ONE, TWO = _report(*_turn(LOOK)), _report(*_turn(LOOK), GO_ON, *_turn(LOOK))
OVER = _report(*_turn(LOOK), GO_ON, *_turn())  # nothing is left to do


# ---- what a hook sees


def test_a_report_tells_the_turn_and_the_run_so_far() -> None:
    report = _report(*_turn(LOOK, READ), GO_ON, *_turn(READ), elapsed=2.5)
    assert (report.turns, report.calls, report.elapsed, report.pending) == (2, 3, 2.5, True)
    assert report.usage == Usage(200, 20, cost=1.0)
    assert report.message is not None and report.message.tool_calls == (READ,)
    assert [call for call, _ in report.recent_calls()] == [READ, READ, LOOK]  # the newest first
    assert all(call.name == result.name for call, result in report.recent_calls())


def test_a_report_says_whether_anything_is_left_to_do() -> None:
    assert not OVER.pending
    assert _report(InputQueued(user_message("more")), *_turn()).pending
    assert _report(InputQueued(user_message("more"), "follow_up"), *_turn()).pending


def test_recent_calls_go_back_to_the_last_user_message() -> None:
    report = _report(*_turn(LOOK), InputQueued(user_message("stop looking")), GO_ON, *_turn(READ))
    assert [call for call, _ in report.recent_calls()] == [READ]


# ---- the ready-made ones


@pytest.mark.parametrize(
    ("hook", "within", "over", "reason"),
    [
        (max_turns(2), ONE, TWO, "it used all 2 turns"),
        (token_budget(220), ONE, TWO, "it used 220 of 220 tokens"),
        (cost_budget(0.75), ONE, TWO, "it cost $1.0000 of $0.7500"),
        (deadline(10), attrs.evolve(ONE, elapsed=9.9), attrs.evolve(ONE, elapsed=10.0), "it took 10.0 of 10 seconds"),
        (repeated_calls(2), ONE, TWO, "it called look 2 times in a row with the same arguments"),
    ],
    ids=["max_turns", "token_budget", "cost_budget", "deadline", "repeated_calls"],
)
def test_a_limit_is_reached_and_says_so(hook: Any, within: Report, over: Report, reason: str) -> None:
    assert hook(within) == Continue()
    assert hook(over) == Limit(reason)


@pytest.mark.parametrize("hook", [max_turns(1), token_budget(1), cost_budget(0.01), deadline(0.0), repeated_calls(2)])
def test_a_run_with_nothing_left_to_do_is_done_not_limited(hook: Any) -> None:
    assert hook(OVER) == Continue()


@pytest.mark.parametrize("make", [max_turns, token_budget, cost_budget, deadline, repeated_calls])
def test_each_limit_may_grant_a_closing_word(make: Callable[..., Any]) -> None:
    amount = 2 if make in (max_turns, repeated_calls) else 0
    verdict = make(amount, wrap_up=True)(TWO)
    assert isinstance(verdict, Limit) and verdict.wrap_up


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(MisuseError, match=r"max_turns\(0\): a run has one turn at least"):
        max_turns(0)
    with pytest.raises(MisuseError, match=r"repeated_calls\(1\): a repetition takes two calls at least"):
        repeated_calls(1)
    with pytest.raises(MisuseError, match=r"all_of\(\) takes one hook at least"):
        all_of()


# ---- the doom loop


def _calls(*calls: ToolCall, failed: bool = False) -> Report:
    signals: list[Signal] = []
    for call in calls:
        signals += [*_turn(call, failed=failed), GO_ON]
    return _report(*signals[:-1])


@pytest.mark.parametrize("failed", [False, True], ids=["successful", "failing"])
def test_the_same_call_again_and_again_is_seen_successful_or_not(failed: bool) -> None:
    hook = repeated_calls(3)
    assert hook(_calls(READ, READ, failed=failed)) == Continue()
    assert isinstance(hook(_calls(READ, READ, READ, failed=failed)), Limit)


def test_the_same_arguments_written_otherwise_are_the_same() -> None:
    one, other = ToolCall("1", "f", '{"a": 1, "b": 2}'), ToolCall("2", "f", '{"b":2,"a":1}')
    assert isinstance(repeated_calls(2)(_calls(one, other)), Limit)


def test_other_arguments_other_tools_and_other_calls_in_between_are_no_loop() -> None:
    hook = repeated_calls(2)
    assert hook(_calls(READ, ToolCall.of("read", path="b.txt"))) == Continue()
    assert hook(_calls(READ, LOOK)) == Continue()
    assert hook(_calls(READ, LOOK, READ)) == Continue()


def test_repeats_within_one_turn_count_too() -> None:
    assert isinstance(repeated_calls(3)(_report(*_turn(READ, READ, READ))), Limit)


def test_arguments_that_are_no_json_are_compared_as_they_stand() -> None:
    broken = ToolCall("", "read", '{"path": ')
    assert isinstance(repeated_calls(2)(_calls(broken, broken)), Limit)


# ---- combined


@inline
def _go_on(report: Report) -> Continue:
    return Continue()


def _finish(report: Report) -> Finish:
    return Finish("sync")


async def _limit(report: Report) -> Limit:
    await trio.lowlevel.checkpoint()
    return Limit("async")


def _broken(report: Report) -> Continue:
    raise ValueError("broken")


async def _ask(hook: Any, report: Report = ONE) -> object:
    return await call_hook(hook, report)


async def test_any_of_gives_the_first_verdict_that_ends_the_run() -> None:
    assert await _ask(any_of(_go_on, _finish, _limit)) == Finish("sync")
    assert await _ask(any_of(_limit, _finish)) == Limit("async")
    assert await _ask(any_of(_go_on)) == Continue()
    assert await _ask(any_of()) == Continue()


async def test_any_of_asks_no_further_than_it_must() -> None:
    assert await _ask(any_of(_finish, _broken)) == Finish("sync")


async def test_all_of_ends_the_run_when_all_say_so_with_the_first_ones_reason() -> None:
    assert await _ask(all_of(_limit, _finish)) == Limit("async")
    assert await _ask(all_of(_finish, _go_on)) == Continue()
    assert await _ask(all_of(_go_on, _broken)) == Continue()


@pytest.mark.parametrize("combine", [any_of, all_of])
async def test_a_hook_that_raises_is_not_swallowed(combine: Any) -> None:
    with pytest.raises(ValueError, match="broken"):
        await _ask(combine(_broken, _finish))
    with pytest.raises(ValueError, match="broken"):
        await _ask(combine(inline(functools.partial(_broken)), max_turns(5)))


@pytest.mark.parametrize("combine", [any_of, all_of])
async def test_a_hook_that_gives_something_else_is_told_what_it_must_give(combine: Any) -> None:
    with pytest.raises(MisuseError, match=r"gave True; it must give Continue\(\), Finish\(reason\) or Limit\(reason\)"):
        await _ask(combine(lambda report: True))


async def test_combined_hooks_that_never_block_are_called_in_place() -> None:
    assert is_inline(any_of(max_turns(3), token_budget(1_000)))
    assert not is_inline(any_of(max_turns(3), _finish))
    nested = any_of(max_turns(9), all_of(token_budget(220), any_of(repeated_calls(2))))
    assert isinstance(await _ask(nested, TWO), Limit)
    assert await _ask(nested, ONE) == Continue()


def test_a_verdict_is_checked() -> None:
    for verdict in (Continue(), Finish(), Limit("x")):
        assert checked_verdict(verdict) is verdict
    for wrong in (None, True, "continue", Continue):
        with pytest.raises(MisuseError, match="should_continue gave"):
            checked_verdict(wrong)


# ---- how hooks are called


async def test_a_plain_function_runs_in_a_thread_of_its_own() -> None:
    assert await call_hook(threading.get_ident) != threading.get_ident()


async def test_an_inline_function_runs_in_place() -> None:
    @inline
    def here() -> int:
        return threading.get_ident()

    assert await call_hook(here) == threading.get_ident()


@attrs.define
class _Counter:
    """A hook with a state of its own; equal to others like it, and therefore not hashable."""

    seen: int = 0

    def __call__(self, report: Report) -> Continue:
        self.seen += 1
        return Continue()


@attrs.define
class _AsyncCounter:
    seen: int = 0

    async def __call__(self, report: Report) -> Continue:
        await trio.lowlevel.checkpoint()
        self.seen += 1
        return Continue()

    async def method(self, report: Report) -> Continue:
        return await self(report)


async def test_hooks_may_be_objects_methods_and_partials_sync_or_async() -> None:
    sync, other = _Counter(), _AsyncCounter()
    for hook in (sync, other, other.method, functools.partial(other.method), functools.partial(sync)):
        assert await call_hook(hook, ONE) == Continue()
    assert (sync.seen, other.seen) == (2, 3)


async def test_a_plain_function_may_give_something_to_await() -> None:
    assert await call_hook(lambda report: _limit(report), ONE) == Limit("async")
    assert await call_hook(inline(lambda report: _limit(report)), ONE) == Limit("async")


async def test_a_slow_plain_hook_can_be_left_behind() -> None:
    go = threading.Event()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call_hook, go.wait)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    go.set()
    assert scope.cancelled_caught
