"""Results enter the history in declaration order, in whatever order calls end, and one failure costs nobody else."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
import trio

from edgewise import Agent, ToolCall, ToolResult
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.statemachine.events import CallEnded
from edgewise.tools import tool


@tool
async def nap(seconds: float, name: str) -> str:
    """Sleep, then give the name."""
    await trio.sleep(seconds)
    return name


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
async def test_results_keep_declaration_order_under_every_completion_order(
    order: tuple[int, ...], autojump_clock: object, valid: Any, told_again: Any
) -> None:
    wanted = [ToolCall.of("nap", id=f"id{i}", seconds=order.index(i) + 1, name=f"n{i}") for i in range(4)]
    session = Agent(ScriptedModel([calls(*wanted), says("ok")]), [nap]).session()
    async with session.start("go") as run:
        ended = [event.slot async for event in run.events() if isinstance(event, CallEnded)]
        outcome = await run.outcome()
    assert ended == list(order)  # subscribers see the real order
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert [r.text for r in results] == ["n0", "n1", "n2", "n3"]
    assert [r.call_id for r in results] == ["id0", "id1", "id2", "id3"]
    valid(outcome.messages)
    told_again(session, outcome)


async def test_failing_calls_keep_their_place_among_valid_ones(autojump_clock: object, valid: Any) -> None:
    wanted = [
        ToolCall.of("nap", seconds=5, name="first"),
        ToolCall.of("nope"),
        ToolCall("", "nap", "not json"),
        ToolCall.of("nap", seconds=1, name="last"),
    ]
    outcome = await Agent(ScriptedModel([calls(*wanted), says("ok")]), [nap]).run("go")
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert [r.is_error for r in results] == [False, True, True, False]
    assert (results[0].text, results[3].text) == ("first", "last")
    valid(outcome.messages)


async def test_one_failing_call_cancels_none_of_its_siblings(autojump_clock: object) -> None:
    @tool
    async def fail() -> str:
        """Fail in a nursery of its own."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1000)
            raise RuntimeError("mine alone")

    wanted = [ToolCall.of("nap", seconds=3, name="a"), ToolCall.of("fail"), ToolCall.of("nap", seconds=5, name="b")]
    outcome = await Agent(ScriptedModel([calls(*wanted), says("ok")]), [nap, fail]).run("go")
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert [r.text for r in results if not r.is_error] == ["a", "b"]
    assert "mine alone" in results[1].text


@pytest.mark.parametrize("ids", [("", "", ""), ("x", "x", "x"), ("b", "a", "b")])
async def test_empty_and_double_ids_lose_no_call_and_swap_no_result(
    ids: tuple[str, ...], autojump_clock: object, valid: Any
) -> None:
    content = [ToolCall.of("nap", id=i, seconds=3 - n, name=f"n{n}") for n, i in enumerate(ids)]
    from edgewise import AssistantMessage

    model = ScriptedModel([AssistantMessage(tuple(content), "tool_use"), says("ok")])
    outcome = await Agent(model, [nap]).run("go")
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert [(r.call_id, r.text) for r in results] == [(ids[n], f"n{n}") for n in range(3)]
    valid(outcome.messages)


async def test_an_exclusive_call_runs_alone_and_in_its_place(autojump_clock: object) -> None:
    spans: dict[str, tuple[float, float]] = {}

    async def span(name: str, seconds: float) -> str:
        begun = trio.current_time()
        await trio.sleep(seconds)
        spans[name] = (begun, trio.current_time())
        return name

    @tool
    async def shared(name: str) -> str:
        """Run beside others."""
        return await span(name, 3)

    @tool(exclusive=True)
    async def alone(name: str) -> str:
        """Run alone."""
        return await span(name, 2)

    wanted = [
        ToolCall.of("shared", name="a"),
        ToolCall.of("shared", name="b"),
        ToolCall.of("alone", name="c"),
        ToolCall.of("shared", name="d"),
    ]
    await Agent(ScriptedModel([calls(*wanted), says("ok")]), [shared, alone]).run("go")
    assert spans["a"][0] == spans["b"][0]
    assert spans["c"][0] >= max(spans["a"][1], spans["b"][1])
    assert spans["d"][0] >= spans["c"][1]


async def test_no_more_calls_run_at_once_than_allowed(autojump_clock: object) -> None:
    running = most = 0

    @tool
    async def busy() -> str:
        """Be busy."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(1)
        running -= 1
        return ""

    await Agent(ScriptedModel([calls(*["busy"] * 7), says("ok")]), [busy], max_parallel=3).run("go")
    assert most == 3


async def test_sync_tools_run_in_threads_and_block_nobody(valid: Any) -> None:
    import threading

    meet = threading.Barrier(2, timeout=10)
    loop_thread = threading.get_ident()

    @tool
    def wait() -> bool:
        """Wait for the other one."""
        meet.wait()
        return threading.get_ident() == loop_thread

    outcome = await Agent(ScriptedModel([calls("wait", "wait"), says("ok")]), [wait]).run("go")
    assert [m.text for m in outcome.messages if isinstance(m, ToolResult)] == ["false", "false"]
    valid(outcome.messages)
