"""The program that the crash test kills: a journaled run of several turns, with tools that leave traces.

It imports everything once and forks a process for each line ``begin|resume JOURNAL LEDGER SNAPSHOT`` on its standard
input. It answers ``pid N``, ``running`` once that process has begun its run, and ``ended STATUS`` after its end.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import trio

from edgewise import Agent, AssistantMessage, CallContext, ModelRequest, Snapshot, replay
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.adapters.stores import JsonlJournal, read_jsonl
from edgewise.statemachine.codec import from_json, to_json
from edgewise.statemachine.events import CallBegan, MessageStarted
from edgewise.tools import tool

TURNS = 4
PACE = 0.003
"""Seconds between two pieces of a reply."""
WORK = 0.010
"""Seconds that a call takes."""

ledger = -1


def _note(what: str, context: CallContext) -> None:
    os.write(ledger, f"{what} {context.key} {context.call.name}\n".encode())


async def _work(context: CallContext, share: float) -> str:
    _note("start", context)
    await trio.sleep(WORK * share)
    _note("end", context)
    return f"{context.call.name} happened"


@tool
async def charge(context: CallContext) -> str:
    """Do what must not be done twice."""
    return await _work(context, 1)


@tool
async def send(context: CallContext) -> str:
    """Do what must not be done twice, in less time."""
    return await _work(context, 0.5)


@tool(replay="safe")
async def look(context: CallContext) -> str:
    """Do what may be done twice."""
    return await _work(context, 0.7)


@tool(exclusive=True)
async def close_books(context: CallContext) -> str:
    """Do what must not be done twice, alone."""
    return await _work(context, 0.3)


def _reply(request: ModelRequest) -> Any:
    turn = sum(isinstance(m, AssistantMessage) and bool(m.tool_calls) for m in request.messages)
    if turn >= TURNS:
        return says("All of it is done.", stream=True, pace=PACE)
    first = "charge" if turn % 2 else "send"
    return calls(
        first, "look", "send", "close_books", "look", text="I shall do the next part now.", stream=True, pace=PACE
    )


async def _main(how: str, journal_path: str, tell: int = 1) -> Snapshot:
    with JsonlJournal.open(journal_path) as journal:
        session = Agent(ScriptedModel(_reply), [charge, send, look, close_books]).session(journal)
        if how == "resume" and not session.interrupted and session.messages:
            outcome = session.last_outcome
        else:
            resumes = session.interrupted
            async with session.resume() if resumes else session.start("Do all the parts.") as run:
                if tell > 0:
                    os.write(tell, b"running\n")
                async for event in run.events():
                    if resumes:
                        continue
                    if isinstance(event, CallBegan) and event.slot == 1:
                        run.steer(f"steered in turn {event.turn}")
                    if isinstance(event, MessageStarted) and event.turn == 2:
                        run.follow_up("a first follow-up")
                        run.follow_up("a second follow-up")
                outcome = await run.outcome()
    assert outcome is not None
    return outcome.snapshot


def _child(how: str, journal: str, ledger_path: str, snapshot: str) -> None:
    global ledger
    ledger = os.open(ledger_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    status = 1
    try:
        live = trio.run(_main, how, journal)
        with open(snapshot, "w") as file:
            file.write(to_json(live))
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def _warm_up() -> None:
    """Do all once, so that the processes to come spend their time on their run and not on first times."""
    global ledger
    ledger = os.open(os.devnull, os.O_WRONLY)
    with tempfile.TemporaryDirectory() as directory:
        journal = os.path.join(directory, "journal")
        snapshot = trio.run(_main, "begin", journal, -1)
        assert from_json(to_json(snapshot)) == replay(read_jsonl(journal))


def _serve() -> None:
    _warm_up()
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            _child(*line.split())
        os.write(1, f"pid {pid}\n".encode())
        os.write(1, f"ended {os.waitpid(pid, 0)[1]}\n".encode())


if __name__ == "__main__":
    _serve()
