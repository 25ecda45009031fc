"""Held calls: nobody waits for nothing, each is decided by itself, and a pause never runs a settled call again."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from edgewise import Agent, Allow, Ask, MisuseError, ToolCall, ToolResult, inline
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.statemachine.events import CallAwaitsApproval, Edge
from edgewise.tools import tool

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool
async def pay(amount: int) -> str:
    """Pay."""
    ran.append(f"paid {amount}")
    return f"paid {amount}"


@tool
async def look() -> str:
    """Look."""
    ran.append("looked")
    return "looked"


@inline
def _ask_for_money(call: Any) -> Allow | Ask:
    return Ask("that is money") if call.name == "pay" else Allow()


def _agent(*wanted: ToolCall | str) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel([calls(*wanted), says("ok")])
    return Agent(model, [pay, look], authorize=_ask_for_money), model


async def _until_only_held(run: Any) -> None:
    async for event in run.events():
        if isinstance(event, Edge) and event.target == "awaiting_approval":
            return


async def test_only_the_held_call_waits_and_settled_calls_stay_settled(valid: Any, told_again: Any) -> None:
    agent, _ = _agent("look", ToolCall.of("pay", amount=5), "look")
    session = agent.session()
    async with session.start("go") as run:
        await _until_only_held(run)
        assert run.state == "awaiting_approval" and ran == ["looked", "looked"]
        assert [(h.slot, h.call.name) for h in run.held] == [(1, "pay")]
        run.approve(1)
        outcome = await run.outcome()
    assert outcome.state == "done" and ran == ["looked", "looked", "paid 5"]
    valid(outcome.messages)
    told_again(session, outcome)


async def test_two_pending_answers_are_keyed_by_call_not_by_order(valid: Any) -> None:
    agent, _ = _agent(ToolCall.of("pay", amount=1), ToolCall.of("pay", amount=2))
    async with agent.start("go") as run:
        await _until_only_held(run)
        run.approve(run.held[1])
        run.refuse(run.held[0], "too much")
        outcome = await run.outcome()
    assert ran == ["paid 2"]
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert results[0].is_error and "too much" in results[0].text
    assert results[1].text == "paid 2"
    valid(outcome.messages)


async def test_refusing_every_call_goes_back_to_the_model() -> None:
    agent, model = _agent(ToolCall.of("pay", amount=1), ToolCall.of("pay", amount=2))
    async with agent.start("go") as run:
        await _until_only_held(run)
        for held in run.held:
            run.refuse(held)
        outcome = await run.outcome()
    assert outcome.state == "done" and ran == [] and len(model.requests) == 2


async def test_approval_may_change_the_arguments_which_are_validated_again() -> None:
    agent, _ = _agent(ToolCall.of("pay", amount=1), ToolCall.of("pay", amount=2))
    async with agent.start("go") as run:
        await _until_only_held(run)
        run.approve(0, '{"amount": 100}')
        run.approve(1, '{"amount": "lots"}')
        outcome = await run.outcome()
    assert ran == ["paid 100"]
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert results[1].is_error and "amount" in results[1].text


async def test_a_call_can_be_decided_while_others_still_run(autojump_clock: object) -> None:
    @tool
    async def slow() -> str:
        """Be slow."""
        await trio.sleep(30)
        ran.append("slow")
        return ""

    model = ScriptedModel([calls("slow", ToolCall.of("pay", amount=1)), says("ok")])
    async with Agent(model, [pay, slow], authorize=_ask_for_money).start("go") as run:
        async for event in run.events():
            if isinstance(event, CallAwaitsApproval):
                assert event.reason == "that is money"
                run.approve(event.slot)
        outcome = await run.outcome()
    assert outcome.state == "done" and ran == ["paid 1", "slow"]


async def test_deciding_on_a_call_that_is_not_held_says_which_are(valid: Any) -> None:
    agent, _ = _agent("look", ToolCall.of("pay", amount=1))
    async with agent.start("go") as run:
        await _until_only_held(run)
        with pytest.raises(MisuseError, match=r"0: no such call is held.*1 \(pay\)"):
            run.approve(0)
        run.approve(1)
        run.approve(1)  # a double click is harmless
        outcome = await run.outcome()
    assert ran == ["looked", "paid 1"] and outcome.state == "done"


async def test_a_run_with_nobody_to_ask_refuses_instead_of_hanging() -> None:
    agent, _ = _agent(ToolCall.of("pay", amount=1))
    outcome = await agent.run("go")
    assert outcome.state == "done" and ran == []
    result = outcome.messages[2]
    assert isinstance(result, ToolResult) and result.is_error and "nobody to ask" in result.text
