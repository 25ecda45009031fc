"""The engine on the same work: one Agent, real ``@tool`` functions, arguments validated, every edge journaled.

Variants: ``quiet`` (edge lines are filtered out by their level, journal in memory), ``logged`` (a JSON line for each
edge to a sink that throws it away), ``jsonl`` (quiet, with the journal in a file).
"""

from __future__ import annotations

import itertools
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
import trio
import trio.testing
from workload import HANGING, NAP, PROMPT, Job, answer, main, ran

from edgewise import (
    Agent,
    AssistantMessage,
    MemoryJournal,
    ModelRequest,
    Outcome,
    State,
    Text,
    ToolCall,
    ToolResult,
    max_turns,
)
from edgewise.adapters.stores.jsonl import JsonlJournal
from edgewise.statemachine.records import RunStarted, SessionOpened
from edgewise.tools import tool

all_hang = trio.Event()

EDGES_A_TURN = 4
"""The model replied, the call started, the call settled, the turn was judged."""


@tool
async def echo(turn: int, call: int) -> str:
    """Say which call this is."""
    ran.tool_calls += 1
    await trio.lowlevel.checkpoint()
    return answer("echo", turn, call)


@tool
async def nap(turn: int, call: int) -> str:
    """Sleep, then say which call this is."""
    ran.tool_calls += 1
    await trio.sleep(NAP)
    return answer("nap", turn, call)


@tool
async def hang(turn: int, call: int) -> str:
    """Never return."""
    ran.tool_calls += 1
    if ran.tool_calls == HANGING:
        all_hang.set()
    await trio.sleep_forever()


class FakeModel:
    """Calls the job's tool until the history has all its turns, then says so."""

    name = "fake"

    def __init__(self, job: Job) -> None:
        self.job = job

    async def reply(self, request: ModelRequest, draft: object) -> AssistantMessage:
        ran.model_calls += 1
        await trio.lowlevel.checkpoint()
        job = self.job
        turn = (len(request.messages) - 1) // (1 + job.calls)
        if turn == job.turns:
            return AssistantMessage((Text("done"),), "stop")
        calls = [ToolCall(f"{turn}-{n}", job.tool, f'{{"turn": {turn}, "call": {n}}}') for n in range(job.calls)]
        return AssistantMessage(tuple(calls), "tool_use")


class NullSink:
    """Counts the lines and throws them away."""

    lines = 0

    def write(self, line: bytes) -> None:
        self.lines += 1

    def flush(self) -> None:
        pass


def json_dumps() -> tuple[str, Callable[..., bytes]]:
    try:
        import orjson
    except ImportError:
        import msgspec

        def dumps(event: object, default: Callable[[Any], Any]) -> bytes:
            return msgspec.json.encode(event, enc_hook=default)

        return "msgspec", dumps
    return "orjson", orjson.dumps


def configure_log(variant: str, sink: NullSink) -> str:
    """As a program in production would: levels filtered by the wrapper, loggers cached, JSON as bytes."""
    serializer, dumps = json_dumps()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(serializer=dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO if variant == "logged" else logging.WARNING),
        logger_factory=structlog.BytesLoggerFactory(file=sink),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
    return serializer


class Engine:
    def __init__(self, variant: str) -> None:
        self.variant = variant or "quiet"
        self.sink = NullSink()
        self.serializer = configure_log(self.variant, self.sink)
        self.folder = tempfile.TemporaryDirectory() if self.variant == "jsonl" else None
        self.numbers = itertools.count()
        self.job = Job(0, 1, "echo")

    def prepare(self, job: Job) -> None:
        self.job = job
        self.sink.lines = 0
        self.agent = Agent(
            FakeModel(job), [echo, nap], should_continue=max_turns(10**9), max_parallel=max(100, job.calls)
        )

    async def run(self) -> Outcome:
        if not self.journals:
            return await self.agent.run(PROMPT)
        self.journal = self._make_journal()
        return await self.agent.session(self.journal).run(PROMPT)

    @property
    def journals(self) -> bool:
        """Turns are measured with a journal that is kept; the others as ``agent.run()`` goes, whose journal is not."""
        return self.job.tool == "echo" and self.job.runs == 1

    def _make_journal(self) -> MemoryJournal | JsonlJournal:
        if self.folder is None:
            return MemoryJournal()
        return JsonlJournal.open(os.path.join(self.folder.name, f"{next(self.numbers)}.jsonl"))

    def history(self, done: Outcome) -> tuple[int, Sequence[str]]:
        if done.state is not State.DONE:
            raise SystemExit(f"the run did not end well: {done.explanation}")
        if self.journals:
            self._check_trail()
        return len(done.messages), [message.text for message in done.messages if isinstance(message, ToolResult)]

    def _check_trail(self) -> None:
        """Every edge is in the journal, after the records that open it and its run, and in the log when that is on."""
        journal = self.journal
        edges = sum(not isinstance(record.what, SessionOpened | RunStarted) for record in journal.records())
        journal.close()
        expected = EDGES_A_TURN * self.job.turns + 2
        if edges != expected:
            raise SystemExit(f"{edges} edges were journaled; expected: {expected}")
        if self.variant == "logged" and self.sink.lines != edges:
            raise SystemExit(f"{self.sink.lines} lines were logged; expected: {edges}")
        self.sink.lines = 0

    def close(self) -> dict[str, Any]:
        if self.folder is not None:
            self.folder.cleanup()
        return {"variant": self.variant, "serializer": self.serializer}


async def abort(reps: int) -> dict[str, Any]:
    """Milliseconds from ``run.abort()`` until the outcome is there, with each of the hanging calls answered."""
    global all_hang
    configure_log("quiet", NullSink())
    walls: list[float] = []
    cpus: list[float] = []
    answered = 0
    agent = Agent(FakeModel(Job(1, HANGING, "hang")), [hang])
    for _ in range(reps + 1):  # the first one is to get warm
        ran.tool_calls, all_hang = 0, trio.Event()
        async with agent.start(PROMPT) as run:
            await all_hang.wait()
            await trio.testing.wait_all_tasks_blocked()
            cpu, wall = time.process_time(), time.perf_counter()
            run.abort("enough")
            outcome = await run.outcome()
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            _prove_answered(outcome)
            answered += 1
    return {
        "reps": reps,
        "wall_s": statistics.median(walls[1:]),
        "wall_s_each": walls[1:],
        "cpu_s": statistics.median(cpus[1:]),
        "cpu_s_each": cpus[1:],
        "work": {"aborted_and_answered": answered - 1, "calls_in_each": HANGING},
    }


def _prove_answered(outcome: Outcome) -> None:
    results = [message for message in outcome.messages if isinstance(message, ToolResult)]
    calls = [f"0-{n}" for n in range(HANGING)]
    if outcome.state is not State.ABORTED or [result.call_id for result in results] != calls:
        raise SystemExit(f"the abort left this behind: {outcome.state}, {results}")


if __name__ == "__main__":
    main(Engine, abort)
