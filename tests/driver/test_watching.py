"""Events, the edge log, the journal, and going by hand."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog
import trio

from edgewise import Agent, CallContext, JournalError, MemoryJournal, MisuseError, Usage
from edgewise.adapters.models.scripted import ScriptedModel, calls, fails, says
from edgewise.statemachine.events import BUFFER, CallUpdated, Edge, EventsDropped, MessageDelta, RunFinished
from edgewise.statemachine.records import Record
from edgewise.statemachine.signals import CallStarted
from edgewise.tools import tool


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "looked"


def _agent(**options: Any) -> Agent:
    return Agent(ScriptedModel([calls("look", "look"), says("ok there", stream=True)]), [look], **options)


async def test_events_tell_the_run_in_order_from_the_first_to_the_last() -> None:
    async with _agent().start("go") as run:
        events = [event async for event in run.events()]
    names = [type(e).__name__ for e in events if not isinstance(e, Edge)]
    assert names == [
        "MessageStarted", "MessageEnded", "CallBegan", "CallBegan", "CallEnded", "CallEnded", "TurnEnded",
        "MessageStarted", "MessageDelta", "MessageDelta", "MessageEnded", "TurnEnded", "RunFinished",
    ]  # fmt: skip
    assert "".join(e.text for e in events if isinstance(e, MessageDelta)) == "ok there"
    edges = [(e.source.value, e.signal, e.target.value) for e in events if isinstance(e, Edge)]
    assert edges == [
        ("awaiting_model", "ModelReplied", "executing_tools"),
        ("executing_tools", "CallStarted", "executing_tools"),  # both, since they start at the same moment
        ("executing_tools", "CallSettled", "executing_tools"),
        ("executing_tools", "CallSettled", "between_turns"),
        ("between_turns", "TurnJudged", "awaiting_model"),
        ("awaiting_model", "ModelReplied", "between_turns"),
        ("between_turns", "TurnJudged", "done"),
    ]


async def test_a_slow_subscriber_is_told_what_it_missed_and_stalls_nobody() -> None:
    script = [calls(*["look"] * 8)] * (BUFFER // 20) + [says("ok")]
    async with Agent(ScriptedModel(script), [look], should_continue=lambda r: _go()).start("go") as run:
        events = run.events()
        outcome = await run.outcome()  # nobody reads meanwhile
        told = [event async for event in events]
    assert outcome.state == "done"
    assert len(told) == BUFFER + 2
    dropped, finished = told[-2:]
    assert isinstance(dropped, EventsDropped)
    assert dropped.count > 0
    assert isinstance(finished, RunFinished)


def _go() -> Any:
    from edgewise import Continue

    return Continue()


async def test_missed_events_are_counted_where_they_are_missing() -> None:
    from edgewise.statemachine.events import MessageStarted, Subscription

    subscription = Subscription(buffer=2)
    for n in range(5):
        assert subscription.put(MessageStarted(n, 1))
    assert subscription.receive.receive_nowait() == MessageStarted(0, 1)
    assert subscription.receive.receive_nowait() == MessageStarted(1, 1)
    subscription.put(MessageStarted(9, 1))
    assert subscription.receive.receive_nowait() == EventsDropped(3)
    assert subscription.receive.receive_nowait() == MessageStarted(9, 1)
    subscription.receive.close()
    assert not subscription.put(MessageStarted(10, 1))


async def test_a_callback_that_raises_disturbs_neither_the_run_nor_other_subscribers() -> None:
    def bad(event: Any) -> None:
        raise RuntimeError("mine")

    async with _agent(on_event=bad).start("go") as run:
        events = [type(e).__name__ async for e in run.events()]
        outcome = await run.outcome()
    assert outcome.state == "done" and events[-1] == "RunFinished"


async def test_a_callback_gets_every_event_sync_or_async() -> None:
    seen: list[str] = []
    finished = trio.Event()

    async def slow(event: Any) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(type(event).__name__)
        if seen[-1] == "RunFinished":
            finished.set()

    await _agent(on_event=slow).run("go")
    await finished.wait()
    assert seen.count("Edge") == 7


async def test_a_reader_that_goes_away_is_forgotten() -> None:
    async with _agent().start("go") as run:
        async with run.events() as events:
            await events.receive()
        assert (await run.outcome()).state == "done"


async def test_progress_is_shown_while_a_call_runs_and_dropped_afterwards() -> None:
    kept: list[CallContext] = []

    @tool
    async def work(context: CallContext) -> str:
        """Work."""
        context.update({"percent": 50})
        kept.append(context)
        return "done"

    @tool
    def work_in_thread(context: CallContext) -> str:
        """Work in a thread."""
        context.update("half")
        return "done"

    async with Agent(ScriptedModel([calls("work", "work_in_thread"), says("ok")]), [work, work_in_thread]).start(
        "go"
    ) as run:
        progress = []
        async for event in run.events():
            if kept and isinstance(event, Edge) and event.signal == "TurnJudged":
                kept[0].update("too late")
            if isinstance(event, CallUpdated):
                progress.append((event.slot, event.progress))
    assert sorted(progress, key=str) == [(0, {"percent": 50}), (1, "half")]


# ---- the edge log


@pytest.fixture
def lines() -> Any:
    kept: list[dict[str, Any]] = []

    def keep(logger: Any, method: str, line: Any) -> Any:
        kept.append(dict(line))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.contextvars.merge_contextvars, keep])
    yield kept
    structlog.reset_defaults()


async def test_every_edge_writes_one_line_and_the_users_fields_ride_along(lines: list[dict[str, Any]]) -> None:
    structlog.contextvars.bind_contextvars(customer="c-17")
    model = ScriptedModel([calls("look", usage=Usage(7, 3)), says("ok")])
    session = Agent(model, [look]).session()
    await session.run("go")
    structlog.contextvars.clear_contextvars()
    assert len(lines) == len(session.journal.records()) - 2  # less the session's and the run's opening
    first = lines[0]
    assert first["customer"] == "c-17"
    assert first["run"] == f"{session.id}-1" and first["turn"] == 1 and first["seq"] == 3
    assert (first["source"], first["signal"], first["guard"], first["target"]) == (
        "awaiting_model", "ModelReplied", "has calls", "executing_tools",
    )  # fmt: skip
    assert lines[1]["slots"] == (0,) and lines[1]["signal"] == "CallStarted"
    assert first["effects"] == ("StartCall t1.c0",) and first["input_tokens"] == 7 and first["seconds"] >= 0


async def test_a_tools_own_lines_carry_the_run(lines: list[dict[str, Any]]) -> None:
    @tool
    async def talk() -> str:
        """Log something."""
        structlog.get_logger().info("hello")
        return ""

    await Agent(ScriptedModel([calls("talk"), says("ok")]), [talk]).run("go")
    hello = next(line for line in lines if line["event"] == "hello")
    assert hello["run"].endswith("-1")


async def test_without_a_configuration_edges_go_to_the_standard_logger_and_not_to_the_screen(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    await _agent().run("go")
    assert caplog.records == []
    with caplog.at_level(logging.INFO, "edgewise"):
        await _agent().run("go")
    assert len([r for r in caplog.records if r.name == "edgewise"]) == 7
    assert caplog.records[0].source == "awaiting_model"
    assert capsys.readouterr().out == ""


async def test_a_level_that_filters_edges_out_is_respected(lines: list[dict[str, Any]]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    await _agent().run("go")
    assert lines == []


async def test_a_log_that_raises_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    def broken(logger: Any, method: str, line: Any) -> Any:
        raise RuntimeError("the log server is down")

    structlog.configure(processors=[broken])
    try:
        outcome = await _agent().run("go")
    finally:
        structlog.reset_defaults()
    assert outcome.state == "done"
    assert len([r for r in caplog.records if "edge log" in r.message]) == 1


# ---- the journal


class Failing(MemoryJournal):
    """Can't be written after some records."""

    def __init__(self, good: int, error: Exception) -> None:
        super().__init__()
        self.good, self.error = good, error

    def append(self, record: Record) -> None:
        if len(self.records()) >= self.good:
            raise self.error
        super().append(record)


@pytest.mark.parametrize("good", range(9))
async def test_a_journal_that_cannot_be_written_ends_the_run_loudly_and_nothing_goes_on(good: int) -> None:
    ran: list[int] = []

    @tool
    async def act() -> str:
        """Act."""
        ran.append(1)
        return ""

    journal = Failing(good, OSError(28, "No space left on device"))
    session = Agent(ScriptedModel([calls("act", "act"), says("ok")]), [act]).session(journal)
    with pytest.raises(JournalError, match="No space left"):
        await session.run("go")
    started = sum(1 + len(r.what.others) for r in journal.records() if isinstance(r.what, CallStarted))
    assert len(ran) <= started


class Slow(MemoryJournal):
    """Takes its time, as a database does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def append(self, record: Record) -> Any:  # type: ignore[override]
        async def write() -> None:
            await trio.sleep(self.seconds)
            MemoryJournal.append(self, record)

        return write()


async def test_records_are_written_before_anything_is_done_about_them(autojump_clock: object, valid: Any) -> None:
    journal = Slow(1)

    @tool
    async def act(context: CallContext) -> str:
        """Act."""
        slot = int(context.key[-1])
        intents = [r.what for r in journal.records() if isinstance(r.what, CallStarted)]
        assert any(slot in (intent.slot, *intent.others) for intent in intents)
        return "fine"

    session = Agent(ScriptedModel([calls("act", "act", "act"), says("ok")]), [act]).session(journal)
    outcome = await session.run("go")
    assert [m.text for m in outcome.messages if type(m).__name__ == "ToolResult"] == ["fine"] * 3
    valid(outcome.messages)


async def test_cancelling_the_caller_does_not_cancel_the_write(autojump_clock: object, told_again: Any) -> None:
    session = Agent(ScriptedModel([calls("look", "look"), says("ok")]), [look]).session(Slow(1))
    with trio.move_on_after(4.5):
        await session.run("go")
    outcome = session.last_outcome
    assert outcome is not None and outcome.state == "aborted"
    told_again(session, outcome)


async def test_a_journal_that_hangs_ends_the_run_at_its_deadline(autojump_clock: object) -> None:
    session = Agent(ScriptedModel([says("ok")])).session(Slow(100))
    with pytest.raises(JournalError, match="within 10 s"):
        await session.run("go")


# ---- by hand


async def test_pause_and_step_go_edge_by_edge() -> None:
    async with _agent().start("go") as run:
        run.pause()
        first = await run.step()
        assert first is not None and first.signal == "ModelReplied" and run.state == "executing_tools"
        await trio.testing.wait_all_tasks_blocked()
        assert run.state == "executing_tools"  # nothing moves by itself
        second = await run.step()
        assert second is not None and second.signal == "CallStarted"
        run.resume()
        outcome = await run.outcome()
        assert await run.step() is None
    assert outcome.state == "done"


async def test_a_run_can_be_stepped_to_its_end() -> None:
    async with _agent().start("go") as run:
        run.pause()
        edges = []
        while (edge := await run.step()) is not None:
            edges.append(edge.signal)
    assert edges[0] == "ModelReplied" and edges[-1] == "TurnJudged" and len(edges) == 7


async def test_a_paused_run_hears_an_abort() -> None:
    async with _agent().start("go") as run:
        run.pause()
        await trio.testing.wait_all_tasks_blocked()
        run.abort()
        assert (await run.outcome()).state == "aborted"


async def test_stepping_a_run_that_is_not_paused_is_misuse() -> None:
    async with _agent().start("go") as run:
        with pytest.raises(MisuseError, match="pause"):
            await run.step()


async def test_a_run_is_used_once_and_not_before_it_starts() -> None:
    run = _agent().start("go")
    with pytest.raises(MisuseError, match="async with"):
        run.state
    async with run:
        await run.outcome()
    with pytest.raises(MisuseError, match="make another"):
        async with run:
            pass


async def test_a_failed_attempt_is_shown_as_void_and_retried(autojump_clock: object) -> None:
    async with Agent(ScriptedModel([fails(after="half"), says("whole", stream=True)])).start("go") as run:
        events = [event async for event in run.events()]
    failed = next(e for e in events if type(e).__name__ == "MessageFailed")
    assert failed.retried and failed.delay > 0
    outcome = events[-1].outcome
    assert [m.text for m in outcome.messages] == ["go", "whole"]
