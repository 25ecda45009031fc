"""Time limits of calls: what is cancelled, what is abandoned, and that the run goes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio

from edgewise import Agent, CallContext, ToolResult
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.tools import tool


@tool(timeout=3)
async def slow() -> str:
    """Be slow."""
    await trio.sleep(1000)
    return "late"


@tool(timeout=3)
async def deaf() -> str:
    """Ignore cancellation."""
    with trio.CancelScope(shield=True):
        await trio.sleep(1000)
    return "late"


@tool
async def quick() -> str:
    """Be quick."""
    return "quick"


def _results(outcome: Any) -> list[ToolResult]:
    return [m for m in outcome.messages if isinstance(m, ToolResult)]


async def test_a_call_past_its_limit_is_cancelled_and_the_model_is_told(autojump_clock: object, valid: Any) -> None:
    outcome = await Agent(ScriptedModel([calls("slow", "quick"), says("ok")]), [slow, quick]).run("go")
    assert outcome.state == "done" and trio.current_time() == pytest.approx(3, abs=0.1)
    results = _results(outcome)
    assert results[0].is_error and "limit of 3 s" in results[0].text
    assert results[1].text == "quick"
    valid(outcome.messages)


@pytest.mark.parametrize("batch", [("deaf",), ("deaf", "quick"), ("deaf", "deaf")], ids=len)
async def test_a_call_that_ignores_its_limit_is_abandoned_and_the_run_goes_on(
    batch: tuple[str, ...], autojump_clock: object, valid: Any, told_again: Any
) -> None:
    model = ScriptedModel([calls(*batch), calls("quick"), says("ok")])
    session = Agent(model, [deaf, quick], grace=2).session()
    outcome = await session.run("go")
    assert outcome.state == "done" and trio.current_time() == pytest.approx(5, abs=0.1)
    assert "Abandoned" in _results(outcome)[0].text
    assert _results(outcome)[-1].text == "quick"
    valid(outcome.messages)
    told_again(session, outcome)
    await trio.sleep(2000)  # its late result changes nothing
    assert session.messages == outcome.messages


async def test_the_agents_limit_holds_for_tools_that_have_none_of_their_own(autojump_clock: object) -> None:
    @tool
    async def forever() -> str:
        """Never end."""
        await trio.sleep_forever()
        return ""

    outcome = await Agent(ScriptedModel([calls("forever"), says("ok")]), [forever], tool_timeout=7).run("go")
    assert outcome.state == "done" and trio.current_time() == pytest.approx(7, abs=0.1)


async def test_a_blocking_tool_past_its_limit_is_told_and_may_stop() -> None:
    @tool(timeout=0.02)
    def spin(context: CallContext) -> str:
        """Work until told."""
        while not context.cancelled:
            threading.Event().wait(0.001)
        raise RuntimeError("interrupted")

    outcome = await Agent(ScriptedModel([calls("spin"), says("ok")]), [spin]).run("go")
    assert outcome.state == "done" and "Timed out" in _results(outcome)[0].text


async def test_many_runs_share_one_watch_and_none_stays_behind(autojump_clock: object) -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    agents = [Agent(ScriptedModel([calls("slow", "quick"), says("ok")]), [slow, quick]) for _ in range(20)]
    async with trio.open_nursery() as nursery:
        for agent in agents:
            nursery.start_soon(agent.run, "go")
    assert trio.current_time() == pytest.approx(3, abs=0.1)
    await trio.testing.wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before
