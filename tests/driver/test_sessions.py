"""Conversations over many runs: input stated once, one run at a time, and going on after whatever happened."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from edgewise import (
    Agent,
    Allow,
    Ask,
    CallContext,
    Continue,
    JournalError,
    MemoryJournal,
    MisuseError,
    SessionBusy,
    State,
    ToolResult,
    UserMessage,
    max_turns,
    replay,
)
from edgewise.adapters.models.scripted import ScriptedModel, calls, fails, says
from edgewise.statemachine.events import CallBegan, Edge, MessageDelta
from edgewise.statemachine.machine import INTERRUPTED
from edgewise.statemachine.records import Record
from edgewise.statemachine.signals import CallSettled, CallStarted
from edgewise.tools import tool


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "looked"


@tool
async def wait_long() -> str:
    """Wait."""
    await trio.sleep(10)
    return "waited"


def _said(messages: Any) -> list[str]:
    return [m.text for m in messages if isinstance(m, UserMessage)]


async def test_a_session_remembers(valid: Any) -> None:
    session = Agent(ScriptedModel([says("hello"), says("again")])).session()
    await session.run("one")
    outcome = await session.run("two")
    assert [m.text for m in outcome.messages] == ["one", "hello", "two", "again"]
    assert session.messages == outcome.messages


async def test_a_second_run_on_a_busy_session_is_refused_and_disturbs_nothing() -> None:
    session = Agent(ScriptedModel([calls("wait_long"), says("ok")]), [wait_long]).session()
    async with session.start("one") as run:
        with pytest.raises(SessionBusy, match="wait for it, steer it or abort it"):
            await session.run("two")
        run.abort()
        await run.outcome()
    assert _said(session.messages) == ["one"]


async def test_steering_goes_in_at_the_next_turn_boundary_after_the_calls_already_made(
    autojump_clock: object, valid: Any
) -> None:
    model = ScriptedModel([calls("wait_long", "look"), says("ok")])
    async with Agent(model, [wait_long, look]).start("go") as run:
        async for event in run.events():
            if isinstance(event, CallBegan) and event.slot == 0:
                run.steer("and hurry")
        outcome = await run.outcome()
    kinds = [type(m).__name__ for m in outcome.messages]
    assert kinds == ["UserMessage", "AssistantMessage", "ToolResult", "ToolResult", "UserMessage", "AssistantMessage"]
    assert not any(m.is_error for m in outcome.messages if isinstance(m, ToolResult))
    valid(outcome.messages)


@pytest.mark.parametrize(("mode", "turns"), [("one", 4), ("all", 2)])
async def test_steering_goes_in_one_at_a_time_or_all_at_once(mode: Any, turns: int, autojump_clock: object) -> None:
    model = ScriptedModel(lambda request: calls("wait_long") if len(request.messages) == 1 else says("ok"))
    async with Agent(model, [wait_long], steering=mode).start("go") as run:
        async for event in run.events():
            if isinstance(event, CallBegan):
                for word in "abc":
                    run.steer(word)
        outcome = await run.outcome()
    assert outcome.turns == turns and _said(outcome.messages) == ["go", "a", "b", "c"]


@pytest.mark.parametrize(("mode", "turns"), [("one", 4), ("all", 3)])
async def test_follow_ups_wait_until_the_run_would_end(mode: Any, turns: int, autojump_clock: object) -> None:
    model = ScriptedModel([calls("wait_long"), says("first"), says("second"), says("third")])
    async with Agent(model, [wait_long], follow_ups=mode).start("go") as run:
        async for event in run.events():
            if isinstance(event, CallBegan):
                run.follow_up("then this")
                run.follow_up("and that")
        outcome = await run.outcome()
    assert outcome.turns == turns and outcome.state == "done"
    texts = [m.text for m in outcome.messages]
    assert texts.index("then this") > texts.index("first")
    assert _said(outcome.messages) == ["go", "then this", "and that"]


async def test_input_that_an_abort_or_a_limit_left_in_the_queue_is_said_once_in_the_next_run(
    autojump_clock: object,
) -> None:
    session = Agent(ScriptedModel([calls("wait_long"), says("ok")]), [wait_long]).session()
    async with session.start("go") as run:
        async for event in run.events():
            if isinstance(event, CallBegan):
                run.steer("interjection")
                run.follow_up("later")
                run.abort()
        outcome = await run.outcome()
    assert _said(outcome.messages) == ["go"]
    assert [m.text for m in session.queued] == ["interjection", "later"]
    after = await session.run("next")
    assert _said(after.messages) == ["go", "interjection", "later", "next"]
    assert session.queued == ()


@pytest.mark.parametrize("first", ["abort", "steer"])
@pytest.mark.parametrize("turn", [1, 2])
async def test_an_interjection_at_the_very_moment_of_an_abort_is_neither_lost_nor_doubled(
    first: str, turn: int, autojump_clock: object
) -> None:
    async def hook(report: Any) -> Continue:
        if report.turns == turn:
            run.abort() if first == "abort" else run.steer("did you hear?")
            run.steer("did you hear?") if first == "abort" else run.abort()
        return Continue()

    model = ScriptedModel([calls("look"), says("ok", delay=1), says("fine"), says("fine")])
    session = Agent(model, [look], should_continue=hook).session()
    async with session.start("go") as run:
        outcome = await run.outcome()
    assert outcome.state == "aborted" and _said(outcome.messages) == ["go"]
    after = await session.run("next")
    assert _said(after.messages) == ["go", "did you hear?", "next"]


async def test_saying_something_to_an_ended_run_is_refused_with_what_to_do() -> None:
    session = Agent(ScriptedModel([says("ok")])).session()
    async with session.start("go") as run:
        await run.outcome()
        with pytest.raises(MisuseError, match="say it to the session"):
            run.steer("hello?")


@pytest.mark.parametrize("how", ["limit", "abort", "failure"])
async def test_a_session_continues_after(how: str, autojump_clock: object, valid: Any) -> None:
    script = {
        "limit": [calls("look"), says("done now")],
        "abort": [calls("wait_long"), says("done now")],
        "failure": [calls("look"), fails("auth", "no key"), says("done now")],
    }[how]
    hook = max_turns(1) if how == "limit" else max_turns(9)
    session = Agent(ScriptedModel(script), [look, wait_long], should_continue=hook).session()
    async with session.start("go") as run:
        async for event in run.events():
            if how == "abort" and isinstance(event, CallBegan):
                run.abort()
        first = await run.outcome()
    assert first.state == {"limit": "limit_exceeded", "abort": "aborted", "failure": "failed"}[how]
    outcome = await session.continue_()
    assert outcome.state == "done" and outcome.text == "done now"
    valid(outcome.messages)


async def test_continuing_after_a_spoken_word_gives_the_model_something_to_answer() -> None:
    session = Agent(ScriptedModel([says("half"), says("whole")])).session()
    await session.run("go")
    outcome = await session.continue_()
    assert _said(outcome.messages) == ["go", "Continue where you left off."]


async def test_there_must_be_something_to_say() -> None:
    session = Agent(ScriptedModel([])).session()
    with pytest.raises(MisuseError, match="nothing to continue"):
        await session.continue_()
    with pytest.raises(MisuseError, match="no run of this session was interrupted"):
        session.resume()


# ---- interrupted by the end of the process: the journal is cut at every record and taken up by a new session


def _cut(journal: MemoryJournal, length: int) -> MemoryJournal:
    copy = MemoryJournal()
    for record in journal.records()[:length]:
        copy.append(record)
    return copy


def _recorded(agent: Agent) -> MemoryJournal:
    session = agent.session()
    trio.run(session.run, "go")
    assert isinstance(session.journal, MemoryJournal)
    return session.journal


ledger: list[tuple[str, int]] = []


@tool
async def once(context: CallContext) -> str:
    """Happen once."""
    ledger.append((context.key, context.attempt))
    return "happened"


@tool(replay="safe")
async def again(context: CallContext) -> str:
    """May happen again."""
    ledger.append((context.key, context.attempt))
    return "seen"


def _script() -> ScriptedModel:
    def reply(request: Any) -> Any:
        turn = sum(type(m).__name__ == "AssistantMessage" and m.stop_reason != "aborted" for m in request.messages)
        return calls("once", "again", "once") if turn < 2 else says("finished")

    return ScriptedModel(reply)


def _agent() -> Agent:
    return Agent(_script(), [once, again])


LENGTH = len(_recorded(_agent()).records())


@pytest.mark.parametrize("length", range(3, LENGTH))
async def test_resume_after_any_record_runs_nothing_twice_and_loses_nothing(length: int, valid: Any) -> None:
    whole = _agent().session()
    ledger.clear()
    await whole.run("go")
    cut = _cut(whole.journal, length)  # type: ignore[arg-type]
    started = {
        f"{record.run}.t{turn}.c{slot}"
        for record, turn in _with_turns(cut.records())
        if isinstance(record.what, CallStarted)
        for slot in (record.what.slot, *record.what.others)
    }
    settled = {
        f"{record.run}.t{turn}.c{record.what.slot}"
        for record, turn in _with_turns(cut.records())
        if isinstance(record.what, CallSettled)
    }
    ledger.clear()
    session = _agent().session(cut)
    if not session.interrupted:
        assert length == LENGTH - 1 or replay(cut.records()).state.final
        return
    async with session.resume() as run:
        outcome = await run.outcome()
    assert outcome.state == "done" and outcome.text == "finished"
    valid(outcome.messages)
    assert replay(cut.records()) == outcome.snapshot
    for key, attempt in ledger:
        assert key not in settled  # what was recorded as done is not done again
        if key in started:
            assert key.endswith("c1") and attempt == 2  # only the tool that is safe to replay
    interrupted = [m for m in outcome.messages if isinstance(m, ToolResult) and m.text == INTERRUPTED]
    assert len(interrupted) == len([k for k in started - settled if not k.endswith("c1")])


def _with_turns(records: Any) -> list[tuple[Record, int]]:
    turn, out = 0, []
    for record in records:
        if type(record.what).__name__ == "ModelReplied":
            turn += 1
        out.append((record, turn))
    return out


@pytest.mark.parametrize("length", range(3, LENGTH))
async def test_a_new_prompt_on_an_interrupted_session_closes_what_was_open_first(length: int, valid: Any) -> None:
    whole = _agent().session()
    await whole.run("go")
    cut = _cut(whole.journal, length)  # type: ignore[arg-type]
    states = [replay(cut.records()).state]
    ledger.clear()
    session = Agent(ScriptedModel([says("new answer")]), [once, again]).session(cut)
    outcome = await session.run("something else")
    assert ledger == []
    assert outcome.state == "done" and outcome.text == "new answer"
    valid(outcome.messages)
    assert replay(cut.records()) == outcome.snapshot
    begins = [i for i, r in enumerate(cut.records()) if type(r.what).__name__ == "RunStarted"]
    assert replay(cut.records()[: begins[1]]).state == (State.DONE if states[0].final else State.ABORTED)


async def test_an_interrupted_abort_is_carried_to_its_end() -> None:
    session = Agent(ScriptedModel([calls("wait_long")]), [wait_long]).session()
    async with session.start("go") as run:
        async for event in run.events():
            if isinstance(event, CallBegan):
                run.abort("stop it")
        await run.outcome()
    records = session.journal.records()
    cut = _cut(session.journal, len(records) - 1)  # type: ignore[arg-type]
    assert replay(cut.records()).state == "aborting"
    again_session = Agent(ScriptedModel([]), [wait_long]).session(cut)
    async with again_session.resume() as run:
        outcome = await run.outcome()
    assert outcome.state == "aborted" and outcome.reason == "stop it"
    assert outcome.messages[-1].text == INTERRUPTED


async def test_an_interrupted_reply_is_asked_for_again(autojump_clock: object) -> None:
    session = Agent(ScriptedModel([says("one two", stream=True, pace=1)])).session()
    async with session.start("go") as run:
        async for event in run.events():
            if isinstance(event, MessageDelta):
                break
        cut = _cut(session.journal, 2)  # type: ignore[arg-type]
    second = Agent(ScriptedModel([says("anew")])).session(cut)
    assert second.interrupted
    async with second.resume() as run:
        outcome = await run.outcome()
    assert outcome.state == "done" and outcome.text == "anew"


async def test_a_held_call_waits_on_over_a_restart_and_is_answered_then() -> None:
    ledger.clear()
    script = [calls("again", "once"), says("ok")]

    def ask(call: Any) -> Any:
        return Ask("sure?") if call.name == "once" else Allow()

    session = Agent(ScriptedModel(script), [once, again], authorize=ask).session()
    async with session.start("go") as run:
        async for event in run.events():
            if isinstance(event, Edge) and event.target == "awaiting_approval":
                break
        cut = _cut(session.journal, len(session.journal.records()))  # type: ignore[arg-type]
    second = Agent(ScriptedModel([says("ok")]), [once, again], authorize=ask).session(cut)
    async with second.resume() as run:
        assert run.state == "awaiting_approval"
        run.approve(1)
        outcome = await run.outcome()
    assert outcome.state == "done"
    assert [key[-2:] for key, _ in ledger] == ["c0", "c1"]  # each once, over both processes


class Breaks(MemoryJournal):
    """Can't write one kind of record."""

    def append(self, record: Record) -> None:
        if isinstance(record.what, CallSettled):
            raise OSError("the disk is gone")
        super().append(record)


async def test_a_tool_that_ran_before_its_result_could_be_written_is_known_as_unknown_and_not_run_again(
    valid: Any,
) -> None:
    ledger.clear()
    journal = Breaks()
    session = Agent(ScriptedModel([calls("once")]), [once]).session(journal)
    with pytest.raises(JournalError, match="the disk is gone"):
        await session.run("go")
    assert len(ledger) == 1
    second = Agent(ScriptedModel([says("I will look first")]), [once]).session(_cut(journal, len(journal.records())))
    async with second.resume() as run:
        outcome = await run.outcome()
    assert len(ledger) == 1
    assert [m.text for m in outcome.messages if isinstance(m, ToolResult)] == [INTERRUPTED]
    valid(outcome.messages)


async def test_when_a_run_breaks_off_no_sibling_goes_on_working(autojump_clock: object) -> None:
    worked: list[float] = []

    @tool
    async def work() -> str:
        """Work on and on."""
        while True:
            await trio.sleep(1)
            worked.append(trio.current_time())

    session = Agent(ScriptedModel([calls("work", "once")]), [work, once]).session(Breaks())
    with pytest.raises(JournalError):
        await session.run("go")
    at = len(worked)
    await trio.sleep(100)
    assert len(worked) == at
