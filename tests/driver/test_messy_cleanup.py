"""A tool that fails while it is being cancelled: the run ends as it should, and the call has its result."""

from __future__ import annotations

import pytest
import trio

from edgewise import Agent, AssistantMessage, State, ToolCall, ToolResult
from edgewise.adapters.models.scripted import ScriptedModel, says
from edgewise.tools import tool


async def _messy() -> str:
    """Raise while it is being cancelled, from inside a nursery of its own."""

    async def child() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("the clean-up failed")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        nursery.start_soon(trio.sleep_forever)
    return ""


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("limit", [None, 5.0])
async def test_a_tool_that_fails_while_it_is_cancelled_costs_neither_the_run_nor_its_result(
    count: int, limit: float | None, autojump_clock: trio.abc.Clock
) -> None:
    messy = tool(_messy, name="messy", timeout=limit)
    reply = AssistantMessage(tuple(ToolCall(str(n), "messy") for n in range(count)), "tool_use")
    agent = Agent(ScriptedModel([reply, says("done")]), [messy])
    async with agent.start("go") as run:
        await trio.sleep(1)
        if limit is None:
            run.abort("enough")
        outcome = await run.outcome()
    assert outcome.state is (State.ABORTED if limit is None else State.DONE)
    results = [message for message in outcome.messages if isinstance(message, ToolResult)]
    assert len(results) == count
    assert all(result.is_error for result in results)
