"""What no run can answer for (an error that is no Exception) ends that run alone, and nothing of it goes on."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from edgewise import Agent, Allow, AssistantMessage, ProposedCall, ToolCall
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.tools import tool


class Collapse(BaseException):
    """Not an Exception: no hook and no tool may catch it as a failure of its own."""


async def test_an_error_that_is_no_exception_ends_its_run_stops_its_work_and_leaves_other_runs_alone(
    autojump_clock: trio.abc.Clock,
) -> None:
    stopped: list[str] = []

    @tool
    async def wait(seconds: float) -> str:
        """Wait."""
        try:
            await trio.sleep(seconds)
        finally:
            if seconds == 100:
                stopped.append("wait")
        return "waited"

    async def collapsing(call: ProposedCall) -> Allow:
        if call.arguments["seconds"] == 3:
            await trio.sleep(1)
            raise Collapse
        return Allow()

    def waits(*seconds: int) -> AssistantMessage:
        return calls(*[ToolCall(str(n), "wait", f'{{"seconds": {n}}}') for n in seconds])

    replies = [waits(100, 3), says("done")]
    async with Agent(ScriptedModel([waits(9), says("fine")]), [wait]).start("go") as other:
        with pytest.raises(Collapse):
            await Agent(ScriptedModel(replies), [wait], authorize=collapsing).run("go")
        await trio.testing.wait_all_tasks_blocked()
        assert stopped == ["wait"]
        assert (await other.outcome()).text == "fine"
