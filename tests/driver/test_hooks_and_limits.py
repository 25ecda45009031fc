"""The hooks, in a run: each sync and async, each raising; and limits as states that explain themselves."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from edgewise import (
    Agent,
    Allow,
    AssistantMessage,
    Continue,
    Deny,
    Finish,
    Limit,
    LimitExceeded,
    MisuseError,
    ModelRequest,
    RunFailed,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    any_of,
    cost_budget,
    deadline,
    max_turns,
    repeated_calls,
    token_budget,
)
from edgewise.adapters.models.scripted import ScriptedModel, calls, fails, says
from edgewise.tools import tool

ran: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ran.clear()


@tool
async def act(name: str = "x") -> str:
    """Act."""
    ran.append(name)
    return f"did {name}"


def _results(outcome: Any) -> list[ToolResult]:
    return [m for m in outcome.messages if isinstance(m, ToolResult)]


async def test_should_continue_is_asked_after_each_turn_with_the_runs_totals() -> None:
    reports: list[tuple[int, int, int, bool]] = []

    def watch(report: Any) -> Continue:
        reports.append((report.turns, report.calls, report.usage.total_tokens, report.pending))
        return Continue()

    script = [calls("act", "act", usage=Usage(10, 5)), says("ok", usage=Usage(20, 1))]
    await Agent(ScriptedModel(script), [act], should_continue=watch).run("go")
    assert reports == [(1, 2, 15, True), (2, 2, 36, False)]


async def test_finish_ends_the_run_done_with_its_reason() -> None:
    agent = Agent(ScriptedModel([calls("act")]), [act], should_continue=lambda report: Finish("good enough"))
    outcome = await agent.run("go")
    assert outcome.state == "done" and outcome.reason == "good enough" and ran == ["x"]


async def test_a_limit_with_wrap_up_gives_a_summary_and_the_state() -> None:
    model = ScriptedModel([calls("act"), says("I did x; y is left.")])
    outcome = await Agent(model, [act], should_continue=max_turns(1, wrap_up=True)).run("go")
    assert outcome.state == "limit_exceeded"
    assert outcome.text == "I did x; y is left."
    assert model.requests[1].tools == () and "limit" in model.requests[1].instructions
    with pytest.raises(LimitExceeded):
        outcome.raise_for_state()


async def test_calls_in_a_closing_word_do_not_run_and_are_answered(valid: Any) -> None:
    model = ScriptedModel([calls("act"), calls("act")])
    outcome = await Agent(model, [act], should_continue=max_turns(1, wrap_up=True)).run("go")
    assert outcome.state == "limit_exceeded" and ran == ["x"]
    valid(outcome.messages)


@pytest.mark.parametrize(
    ("hook", "why"),
    [
        (token_budget(25), "30 of 25 tokens"),
        (cost_budget(0.015), r"\$0.0200 of \$0.0150"),
        (deadline(0), "seconds"),
        (repeated_calls(2), "called act 2 times in a row"),
        (any_of(max_turns(9), token_budget(25)), "30 of 25 tokens"),
    ],
)
async def test_each_ready_made_hook_limits_a_run(hook: Any, why: str) -> None:
    script = ScriptedModel(lambda request: calls("act", usage=Usage(10, 5, cost=0.01)))
    outcome = await Agent(script, [act], should_continue=any_of(hook, max_turns(20))).run("go")
    assert outcome.state == "limit_exceeded"
    with pytest.raises(LimitExceeded, match=why):
        outcome.raise_for_state()


async def test_the_same_call_successful_each_time_is_noticed() -> None:
    script = ScriptedModel(lambda request: calls(ToolCall("", "act", '{"name":"a"}')))
    outcome = await Agent(script, [act], should_continue=repeated_calls(3)).run("go")
    assert outcome.state == "limit_exceeded" and ran == ["a"] * 3


async def test_different_calls_are_no_repetition() -> None:
    script = [calls(ToolCall.of("act", name=n)) for n in "abab"]
    outcome = await Agent(ScriptedModel([*script, says("ok")]), [act], should_continue=repeated_calls(2)).run("go")
    assert outcome.state == "done"


async def test_a_run_that_has_nothing_left_is_done_even_at_its_limit() -> None:
    outcome = await Agent(ScriptedModel([says("ok")]), should_continue=max_turns(1)).run("go")
    assert outcome.state == "done"


async def test_without_a_hook_there_is_a_documented_default() -> None:
    outcome = await Agent(ScriptedModel(lambda request: calls("act")), [act]).run("go")
    assert outcome.state == "limit_exceeded" and outcome.turns == 50


# ---- authorize


async def test_a_denied_call_is_an_error_result_with_its_reason(valid: Any) -> None:
    def authorize(call: Any) -> Allow | Deny:
        return Deny("not on Sundays") if call.arguments["name"] == "b" else Allow()

    wanted = [ToolCall.of("act", name=n) for n in "abc"]
    outcome = await Agent(ScriptedModel([calls(*wanted), says("ok")]), [act], authorize=authorize).run("go")
    assert sorted(ran) == ["a", "c"]
    results = _results(outcome)
    assert [r.is_error for r in results] == [False, True, False] and "not on Sundays" in results[1].text
    valid(outcome.messages)


async def test_a_denial_that_says_stop_ends_the_run_with_its_reason(autojump_clock: object, valid: Any) -> None:
    @tool
    async def slow() -> str:
        """Be slow."""
        await trio.sleep(50)
        return "slow"

    async def authorize(call: Any) -> Allow | Deny:
        if call.name == "slow":
            return Allow()
        await trio.sleep(1)
        return Deny("the police are here", stop=True)

    model = ScriptedModel([calls("slow", "act"), says("never")])
    outcome = await Agent(model, [act, slow], authorize=authorize).run("go")
    assert outcome.state == "aborted" and outcome.reason == "the police are here"
    assert len(model.requests) == 1 and ran == [] and trio.current_time() < 10
    valid(outcome.messages)


async def test_rewritten_arguments_are_validated_again_and_recorded(told_again: Any) -> None:
    wanted = [ToolCall.of("act", name="a"), ToolCall.of("act", name="b")]

    def authorize(call: Any) -> Allow:
        return Allow({"name": "safe"} if call.arguments["name"] == "a" else {"nome": 1})

    session = Agent(ScriptedModel([calls(*wanted), says("ok")]), [act], authorize=authorize).session()
    outcome = await session.run("go")
    assert ran == ["safe"]
    results = _results(outcome)
    assert results[0].text == "did safe" and results[1].is_error and "nome" in results[1].text
    started = [r.what for r in session.journal.records() if type(r.what).__name__ == "CallStarted"]
    assert [s.arguments for s in started] == ['{"name": "safe"}']
    told_again(session, outcome)


# ---- after_call and prepare_request


async def test_after_call_sees_a_recorded_result_and_may_give_another() -> None:
    session: Any = None

    def after(call: Any, result: ToolResult) -> Any:
        kinds = [type(r.what).__name__ for r in session.journal.records()]
        assert kinds[-1] == "CallReturned"  # on record before the hook runs
        return {"seen": result.text}

    session = Agent(ScriptedModel([calls("act"), says("ok")]), [act], after_call=after).session()
    outcome = await session.run("go")
    assert _results(outcome)[0].text == '{"seen": "did x"}'


async def test_prepare_request_projects_the_request_and_leaves_the_history(valid: Any) -> None:
    shown: list[int] = []

    async def last_two(request: ModelRequest) -> ModelRequest:
        shown.append(len(request.messages))
        return attrs.evolve(request, messages=request.messages[-1:], instructions="short")

    model = ScriptedModel([says("a"), says("b")])
    session = Agent(model, prepare_request=last_two).session()
    await session.run("one")
    outcome = await session.run("two")
    assert shown == [1, 3] and [len(r.messages) for r in model.requests] == [1, 1]
    assert model.requests[1].instructions == "short" and len(outcome.messages) == 4


async def test_prepare_request_may_put_another_model_and_other_tools_in_place() -> None:
    @tool
    async def other() -> str:
        """Do something else."""
        return "other"

    second = ScriptedModel([calls("other", "act"), says("from the second")], name="second")

    def switch(request: ModelRequest) -> ModelRequest:
        return attrs.evolve(request, model=second, tools=(other,))

    outcome = await Agent(ScriptedModel([]), [act], prepare_request=switch).run("go")
    assert outcome.text == "from the second"
    assert [r.is_error for r in _results(outcome)] == [False, True]


async def test_context_overflow_is_compacted_once_an_input() -> None:
    compacted: list[bool] = []

    def prepare(request: ModelRequest) -> None:
        compacted.append(request.compact)

    model = ScriptedModel(lambda request: fails("context_overflow", "too long"))
    outcome = await Agent(model, prepare_request=prepare).run("go")
    assert compacted == [False, True]
    assert outcome.state == "failed" and outcome.failure is not None and outcome.failure.kind == "context_overflow"


async def test_instructions_may_be_a_function_of_the_run() -> None:
    model = ScriptedModel([calls("act"), says("ok")])
    await Agent(model, [act], instructions=lambda info: f"turn {info.snapshot.turn}").run("go")
    assert [r.instructions for r in model.requests] == ["turn 1", "turn 2"]


# ---- hooks that raise


def _boom(*args: Any) -> Any:
    raise RuntimeError("hook broke")


async def _boom_async(*args: Any) -> Any:
    raise RuntimeError("hook broke")


@pytest.mark.parametrize("boom", [_boom, _boom_async], ids=["sync", "async"])
@pytest.mark.parametrize("role", ["should_continue", "authorize", "after_call", "prepare_request", "instructions"])
async def test_a_hook_that_raises_ends_the_run_failed_and_loses_nothing(
    role: str, boom: Any, valid: Any, told_again: Any
) -> None:
    agent = Agent(ScriptedModel([calls("act"), says("ok")]), [act], **{role: boom})
    session = agent.session()
    async with session.start("go") as run:
        events = [type(e).__name__ async for e in run.events()]
        outcome = await run.outcome()
    assert outcome.state == "failed" and role in outcome.reason and "hook broke" in outcome.reason
    assert events[-1] == "RunFinished"  # the stream ends
    valid(outcome.messages)
    told_again(session, outcome)
    if role == "after_call":
        assert _results(outcome)[0].text == "did x"
    with pytest.raises(RunFailed, match=role):
        outcome.raise_for_state()


@pytest.mark.parametrize("role", ["should_continue", "authorize", "prepare_request"])
async def test_a_hook_that_gives_nonsense_is_named_with_what_it_must_give(role: str) -> None:
    agent = Agent(ScriptedModel([calls("act"), says("ok")]), [act], **{role: lambda *args: 42})
    outcome = await agent.run("go")
    assert outcome.state == "failed" and "42" in outcome.reason and "must give" in outcome.reason


async def test_a_hook_failing_beside_running_calls_waits_for_their_clean_up(autojump_clock: object, valid: Any) -> None:
    cleaned: list[bool] = []

    @tool
    async def slow() -> str:
        """Be slow."""
        try:
            await trio.sleep(1000)
        finally:
            cleaned.append(True)
        return ""

    async def authorize(call: Any) -> Allow:
        if call.name == "act":
            await trio.sleep(1)
            raise RuntimeError("hook broke")
        return Allow()

    outcome = await Agent(ScriptedModel([calls("slow", "act")]), [act, slow], authorize=authorize).run("go")
    assert outcome.state == "failed" and cleaned == [True]
    valid(outcome.messages)


# ---- misuse


def test_misuse_is_refused_when_the_agent_is_made() -> None:
    with pytest.raises(MisuseError, match="decorate the function with @tool"):
        Agent(ScriptedModel([]), [len])  # type: ignore[list-item]
    with pytest.raises(MisuseError, match="two tools are called act"):
        Agent(ScriptedModel([]), [act, act])
    with pytest.raises(MisuseError, match="is no model"):
        Agent("gpt")  # type: ignore[arg-type]


async def test_run_sync_inside_trio_says_what_to_do_instead() -> None:
    with pytest.raises(MisuseError, match=r"await agent\.run"):
        Agent(ScriptedModel(["x"])).run_sync("hi")


def test_run_sync_inside_asyncio_says_what_to_do_instead() -> None:
    import asyncio

    async def main() -> None:
        with pytest.raises(MisuseError, match=r"asyncio\.to_thread"):
            Agent(ScriptedModel(["x"])).run_sync("hi")

    asyncio.run(main())


# ---- replies


@pytest.mark.parametrize(
    ("content", "stop", "kind"),
    [((), "stop", "empty_reply"), ((), "tool_use", "protocol"), ((Text("  \n"),), "stop", "empty_reply")],
)
async def test_a_reply_that_is_none_is_retried_within_a_bound_and_then_explained(
    content: Any, stop: str, kind: str, autojump_clock: object
) -> None:
    model = ScriptedModel(lambda request: AssistantMessage(content, stop))
    outcome = await Agent(model).run("go")
    assert outcome.state == "failed" and len(model.requests) == 3
    assert outcome.failure is not None and outcome.failure.kind == kind and "after 3 attempts" in outcome.reason


async def test_an_empty_reply_after_a_tool_is_not_the_answer(autojump_clock: object) -> None:
    model = ScriptedModel([calls("act"), AssistantMessage((), "stop"), says("really done")])
    outcome = await Agent(model, [act]).run("go")
    assert outcome.state == "done" and outcome.text == "really done"


@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
async def test_a_refusal_ends_the_run_with_its_own_reason_and_is_not_retried(stop: str) -> None:
    model = ScriptedModel([says("I can't help with that.", stop_reason=stop)])
    outcome = await Agent(model).run("go")
    assert outcome.state == "failed" and len(model.requests) == 1
    assert outcome.failure is not None and outcome.failure.kind == "content_filter"
    assert "I can't help" in outcome.text


async def test_calls_in_a_reply_cut_by_the_output_limit_do_not_run(valid: Any) -> None:
    model = ScriptedModel([calls("act", stop_reason="length"), says("ok")])
    outcome = await Agent(model, [act]).run("go")
    assert ran == [] and outcome.state == "done"
    assert "cut off by the output limit" in _results(outcome)[0].text
    valid(outcome.messages)


async def test_retry_after_is_honoured_and_bounded(autojump_clock: object) -> None:
    model = ScriptedModel([fails("rate_limited", "slow down", retry_after=42), says("ok")])
    begun = trio.current_time()
    assert (await Agent(model).run("go")).state == "done"
    assert trio.current_time() - begun == pytest.approx(42, abs=0.5)
    model = ScriptedModel([fails("rate_limited", "slow down", retry_after=7200), says("ok")])
    outcome = await Agent(model).run("go")
    assert outcome.state == "failed" and "7200" in outcome.reason and "60 s at most" in outcome.reason


async def test_an_auth_failure_ends_the_run_explained_with_the_partial_reply_kept() -> None:
    model = ScriptedModel([fails("auth", "the key is revoked", after="I was about")])
    outcome = await Agent(model).run("go")
    assert outcome.state == "failed" and "the key is revoked" in outcome.explanation
    last = outcome.messages[-1]
    assert isinstance(last, AssistantMessage) and last.stop_reason == "error" and last.text == "I was about"


async def test_an_adapter_that_raises_something_else_ends_the_run_explained() -> None:
    def script(request: Any) -> Any:
        raise KeyError("oops")

    outcome = await Agent(ScriptedModel(script)).run("go")
    assert outcome.state == "failed" and "KeyError" in outcome.reason


async def test_limit_verdict_can_be_given_by_a_custom_hook() -> None:
    outcome = await Agent(
        ScriptedModel([calls("act")]), [act], should_continue=lambda report: Limit("the boss said so")
    ).run("go")
    assert outcome.state == "limit_exceeded" and outcome.reason == "the boss said so"
