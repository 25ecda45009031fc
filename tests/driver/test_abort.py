"""Abort: started tools clean up, every call has its result, nothing new starts, the session goes on afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from edgewise import Agent, Ask, AssistantMessage, Continue, RunAborted, ToolResult
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.statemachine.events import CallBegan, Edge, MessageDelta, MessageStarted
from edgewise.statemachine.messages import text_of
from edgewise.tools import tool

cleaned: list[str] = []


@tool
async def quick() -> str:
    """Answer at once."""
    return "quick"


@tool
async def hang(name: str = "hang") -> str:
    """Hang until cancelled, then clean up."""
    try:
        await trio.sleep_forever()
    finally:
        cleaned.append(name)
    raise AssertionError


@tool
async def deaf() -> str:
    """Ignore cancellation."""
    with trio.CancelScope(shield=True):
        await trio.sleep(10_000)
    return "too late"


async def _abort_when(run: Any, seen: Callable[[Any], bool], reason: str = "enough") -> None:
    async for event in run.events():
        if seen(event):
            run.abort(reason)
            break


def _began(count: int) -> Callable[[Any], bool]:
    so_far = 0

    def seen(event: Any) -> bool:
        nonlocal so_far
        so_far += isinstance(event, CallBegan)
        return so_far == count

    return seen


async def test_abort_of_three_running_tools_one_of_them_deaf(
    autojump_clock: object, valid: Any, told_again: Any
) -> None:
    cleaned.clear()
    model = ScriptedModel([calls("hang", "quick", "deaf"), says("never said")])
    session = Agent(model, [quick, hang, deaf], grace=2).session()
    async with session.start("go") as run:
        await _abort_when(run, _began(3))
        begun = trio.current_time()
        outcome = await run.outcome()
    assert trio.current_time() - begun == pytest.approx(2, abs=0.1)  # the grace period, not the tool's 10,000 s
    assert outcome.state == "aborted" and outcome.reason == "enough"
    valid(outcome.messages)
    told_again(session, outcome)
    texts = [m.text for m in outcome.messages if isinstance(m, ToolResult)]
    assert texts[0].startswith("Aborted") and texts[1] == "quick" and texts[2].startswith("Abandoned")
    assert cleaned == ["hang"]
    assert len(model.requests) == 1
    with pytest.raises(RunAborted, match="enough"):
        outcome.raise_for_state()


async def test_the_session_goes_on_after_an_abort(valid: Any) -> None:
    model = ScriptedModel([calls("hang", "quick"), says("here again")])
    session = Agent(model, [quick, hang]).session()
    async with session.start("go") as run:
        await _abort_when(run, _began(2))
        await run.outcome()
    outcome = await session.run("and now?")
    assert outcome.state == "done" and outcome.text == "here again"
    valid(outcome.messages)
    assert [type(m).__name__ for m in model.requests[1].messages] == [
        "UserMessage", "AssistantMessage", "ToolResult", "ToolResult", "UserMessage",
    ]  # fmt: skip


async def test_abort_in_the_middle_of_a_reply_keeps_what_came_marked(autojump_clock: object, told_again: Any) -> None:
    model = ScriptedModel([says("one two three four", stream=True, pace=1), says("afterwards")])
    session = Agent(model).session()
    async with session.start("count") as run:
        await _abort_when(run, lambda e: isinstance(e, MessageDelta) and "two" in e.text)
        outcome = await run.outcome()
    partial = outcome.messages[-1]
    assert isinstance(partial, AssistantMessage)
    assert partial.text == "one two" and partial.stop_reason == "aborted"
    told_again(session, outcome)
    assert (await session.continue_()).state == "done"


async def test_abort_before_the_first_word_is_on_record_too(autojump_clock: object) -> None:
    session = Agent(ScriptedModel([says("late", delay=60)])).session()
    async with session.start("go") as run:
        await _abort_when(run, lambda e: isinstance(e, MessageStarted))
        outcome = await run.outcome()
    last = outcome.messages[-1]
    assert isinstance(last, AssistantMessage) and last.stop_reason == "aborted" and last.content == ()


async def test_abort_of_a_held_call(valid: Any) -> None:
    model = ScriptedModel([calls("quick", "hang"), says("no")])
    agent = Agent(model, [quick, hang], authorize=lambda call: Ask("really?"))
    async with agent.start("go") as run:
        async for event in run.events():
            if isinstance(event, Edge) and event.target == "awaiting_approval":
                run.abort("not now")
        outcome = await run.outcome()
    assert outcome.state == "aborted"
    valid(outcome.messages)
    assert all("Not executed" in m.text for m in outcome.messages if isinstance(m, ToolResult))


async def test_abort_between_turns_is_heard_while_a_slow_hook_thinks(valid: Any) -> None:
    asked = trio.Event()

    async def slow(report: object) -> Continue:
        asked.set()
        await trio.sleep_forever()
        raise AssertionError

    model = ScriptedModel([calls("quick"), says("never")])
    async with Agent(model, [quick], should_continue=slow).start("go") as run:
        await asked.wait()
        run.abort("bored")
        outcome = await run.outcome()
    assert outcome.state == "aborted" and len(model.requests) == 1
    valid(outcome.messages)


async def test_abort_is_heard_while_a_sync_hook_blocks_its_thread() -> None:
    blocked, release = threading.Event(), threading.Event()

    def slow(report: object) -> Continue:
        blocked.set()
        release.wait(20)
        return Continue()

    async with Agent(ScriptedModel([says("x")]), should_continue=slow).start("go") as run:
        await trio.to_thread.run_sync(blocked.wait)
        run.abort()
        outcome = await run.outcome()
        release.set()
    assert outcome.state == "aborted"


async def test_a_call_that_waits_for_its_place_never_starts_after_an_abort(valid: Any) -> None:
    ran: list[str] = []

    @tool
    async def note(name: str) -> str:
        """Note that it ran."""
        ran.append(name)
        await trio.sleep_forever()
        return ""

    from edgewise import ToolCall

    wanted = [ToolCall.of("note", name=n) for n in "abcd"]
    async with Agent(ScriptedModel([calls(*wanted)]), [note], max_parallel=2).start("go") as run:
        await _abort_when(run, _began(2))
        outcome = await run.outcome()
    assert sorted(ran) == ["a", "b"]
    valid(outcome.messages)
    texts = [m.text for m in outcome.messages if isinstance(m, ToolResult)]
    assert [t.split(":")[0] for t in texts] == ["Aborted", "Aborted", "Not executed", "Not executed"]


async def test_a_call_that_is_being_authorized_never_starts_after_an_abort(valid: Any) -> None:
    ran: list[str] = []
    asked = trio.Event()

    @tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        return ""

    async def authorize(call: object) -> object:
        asked.set()
        await trio.sleep_forever()

    async with Agent(ScriptedModel([calls("act")]), [act], authorize=authorize).start("go") as run:
        await asked.wait()
        run.abort()
        outcome = await run.outcome()
    assert ran == [] and outcome.state == "aborted"
    valid(outcome.messages)


async def test_abort_ends_a_retry_wait_at_once(autojump_clock: object) -> None:
    from edgewise import Backoff
    from edgewise.adapters.models.scripted import fails
    from edgewise.statemachine.events import MessageFailed

    model = ScriptedModel([fails(retry_after=50), says("no")])
    async with Agent(model, backoff=Backoff(longest=60)).start("go") as run:
        begun = trio.current_time()
        await _abort_when(run, lambda e: isinstance(e, MessageFailed))
        outcome = await run.outcome()
    assert outcome.state == "aborted" and len(model.requests) == 1
    assert trio.current_time() - begun < 1


async def test_cancelling_the_callers_scope_is_an_abort_and_then_goes_on(valid: Any, told_again: Any) -> None:
    cleaned.clear()
    began = trio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await trio.sleep_forever()
        return ""

    session = Agent(ScriptedModel([calls("wait", "hang")]), [wait, hang]).session()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def stop() -> None:
                await began.wait()
                scope.cancel()

            nursery.start_soon(stop)
            await session.run("go")
            raise AssertionError("the cancellation was swallowed")
    assert scope.cancelled_caught
    outcome = session.last_outcome
    assert outcome is not None and outcome.state == "aborted" and "cancelled" in outcome.reason
    valid(outcome.messages)
    told_again(session, outcome)
    assert cleaned == ["hang"]


async def test_leaving_the_block_early_aborts_the_run(valid: Any) -> None:
    session = Agent(ScriptedModel([calls("hang")]), [hang]).session()
    async with session.start("go") as run:
        await _until(run, "executing_tools")
    assert run.finished and run.state == "aborted"
    valid(session.messages)
    assert not session.busy


async def _until(run: Any, state: str) -> None:
    async for event in run.events():
        if isinstance(event, Edge) and event.target == state:
            return


async def test_an_exception_in_the_block_aborts_the_run_and_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Agent(ScriptedModel([calls("hang")]), [hang]).start("go") as run:
            await _until(run, "executing_tools")
            1 / 0
    assert run.state == "aborted"


async def test_no_task_outlives_its_run() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with Agent(ScriptedModel([calls("hang", "hang", "quick")]), [hang, quick], tool_timeout=None).start(
        "x"
    ) as run:
        await _abort_when(run, _began(3))
        await run.outcome()
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_a_blocking_tool_sees_that_it_was_cancelled_and_may_clean_up() -> None:
    from edgewise import CallContext

    began = threading.Event()
    seen: list[bool] = []

    @tool
    def spin(context: CallContext) -> str:
        """Work until cancelled."""
        began.set()
        while not context.cancelled:
            threading.Event().wait(0.001)
        seen.append(True)
        return "cleaned up"

    async with Agent(ScriptedModel([calls("spin")]), [spin]).start("go") as run:
        await trio.to_thread.run_sync(began.wait)
        run.abort()
        outcome = await run.outcome()
    assert seen == [True]
    assert [m.text for m in outcome.messages if isinstance(m, ToolResult)] == ["cleaned up"]


async def test_a_blocking_tool_that_never_looks_is_left_behind_after_its_grace() -> None:
    began, release = threading.Event(), threading.Event()

    @tool
    def stuck() -> str:
        """Block."""
        began.set()
        release.wait(20)
        return "late"

    async with Agent(ScriptedModel([calls("stuck")]), [stuck], grace=0.01).start("go") as run:
        await trio.to_thread.run_sync(began.wait)
        run.abort()
        outcome = await run.outcome()
    release.set()
    assert outcome.state == "aborted"
    assert [m.text.split(":")[0] for m in outcome.messages if isinstance(m, ToolResult)] == ["Abandoned"]


async def test_a_model_that_ignores_its_cancellation_is_abandoned(autojump_clock: object) -> None:
    class Stubborn:
        name = "stubborn"

        async def reply(self, request: object, draft: Any) -> AssistantMessage:
            draft.text("half")
            with trio.CancelScope(shield=True):
                await trio.sleep(1000)
            raise AssertionError

    async with Agent(Stubborn(), grace=3).start("go") as run:
        await _abort_when(run, lambda e: isinstance(e, MessageDelta))
        outcome = await run.outcome()
    assert outcome.state == "aborted" and text_of(outcome.messages[-1].content) == "half"
    assert trio.current_time() < 10
