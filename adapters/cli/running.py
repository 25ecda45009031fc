"""Carries out one run for the command line: opens the session, shows the run, hears Ctrl-C, gives the exit code."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import attrs
import trio

from edgewise.adapters.cli.edges import Form, configure
from edgewise.adapters.cli.exits import CODES, UsageError, forget_output
from edgewise.adapters.cli.interrupts import Interrupts
from edgewise.adapters.cli.jsonlines import JsonLines
from edgewise.adapters.cli.screen import Screen, error_console
from edgewise.adapters.cli.weights import pull_if_needed
from edgewise.adapters.cli.words import call_words, count, program
from edgewise.adapters.models import model
from edgewise.adapters.stores import JsonlJournal
from edgewise.statemachine.agent import Agent
from edgewise.statemachine.errors import JournalCorrupt, JournalError
from edgewise.statemachine.events import Event
from edgewise.statemachine.hooks import max_turns
from edgewise.statemachine.messages import AssistantMessage
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.records import replay
from edgewise.statemachine.run import Run
from edgewise.statemachine.session import Session
from edgewise.tools import workspace

INSTRUCTIONS = "You answer about the files of this workspace. Look at them with your tools before you answer."

View: TypeAlias = Screen | JsonLines


@attrs.frozen
class Options:
    """What was asked for on the command line."""

    model: str = "local"
    workspace: str = "."
    max_turns: int = 20
    system: str = INSTRUCTIONS
    session: str | None = None
    as_json: bool = False
    edges: bool = False
    log: Form = "console"


@attrs.frozen
class Ended:
    """A run that is over, and the code to leave with."""

    outcome: Outcome
    code: int


Begin: TypeAlias = Callable[[Session, View], Run | None]
"""Begins a run of the session, or gives None when there is nothing to do. Says to the view what it found."""


def carry_out(options: Options, begin: Begin) -> Ended | None:
    """Do one run as ``options`` say. Raises EdgewiseError for what prevents it."""
    view = make_view(options)
    agent = make_agent(options)
    name = agent.model.name
    if not options.as_json:
        view.note(f"{name}, workspace {os.path.abspath(options.workspace)}")
    with _journal(options.session, view) as journal:
        pull_if_needed(options.model, error_console())
        try:
            session = agent.session(journal)
        except JournalCorrupt as error:
            raise JournalCorrupt(f"{options.session}: {error}") from error
        last_words = f"Stopped at once. {_way_on(options.session, interrupted=True)}"
        with Interrupts(last_words) as interrupts:
            return trio.run(_run, session, begin, view, interrupts, name, options.session)


def make_view(options: Options) -> View:
    """What shows the run; sets up the edge log."""
    lines = configure(options.edges, options.log)
    return JsonLines(lines) if options.as_json else Screen(lines)


def make_agent(options: Options) -> Agent:
    """The agent that ``options`` describe."""
    return Agent(
        model(options.model),
        workspace(options.workspace),
        instructions=options.system,
        should_continue=max_turns(options.max_turns, wrap_up=True),
    )


@contextmanager
def _journal(path: str | None, view: View) -> Iterator[JsonlJournal | None]:
    if path is None:
        yield None
        return
    try:
        journal = JsonlJournal.open(path)
    except JournalCorrupt:
        raise
    except JournalError as error:
        raise UsageError(str(error)) from error
    with journal:
        if journal.torn:
            view.note(f"The last line of {path} was cut short, by a crash or a full disk; it was removed.", "yellow")
        yield journal


async def _run(
    session: Session, begin: Begin, view: View, interrupts: Interrupts, name: str, path: str | None
) -> Ended | None:
    run = begin(session, view)
    if run is None:
        return None
    _warn_of_another_model(session, name, view)
    began = time.monotonic()
    async with run:
        interrupts.attach(run.abort)
        readable = await _show_all(run, view)
        outcome = await run.outcome()
    if readable:
        hint = "" if outcome.state == "done" else _way_on(path)
        try:
            view.finish(outcome, time.monotonic() - began, hint)
        except BrokenPipeError:
            readable = False
    if not readable:
        forget_output()
    return Ended(outcome, CODES[outcome.state])


async def _show_all(run: Run, view: View) -> bool:
    """Show the run as it goes on. When nobody reads any more it is aborted, and False given.

    The writing is done in a thread, so that a reader that takes its time keeps neither the run nor Ctrl-C waiting.
    """
    async with run.events() as events:
        async for event in events:
            batch = [event]
            while True:
                try:
                    batch.append(events.receive_nowait())
                except (trio.WouldBlock, trio.EndOfChannel):
                    break
            try:
                await trio.to_thread.run_sync(_show, view, batch)
            except BrokenPipeError:
                run.abort("nobody reads its output any more")
                return False
        view.end_line()
    return True


def _show(view: View, events: list[Event]) -> None:
    for event in events:
        view.show(event)


# ---- beginning


def saying(prompt: str) -> Begin:
    """Begin by saying ``prompt``, in a new conversation or as the next word of an old one."""

    def begin(session: Session, view: View) -> Run:
        if session.interrupted:
            view.note(
                f"The last run of this session was interrupted ({_where(session)}). It is closed as aborted before "
                "your prompt is put. (`resume` would have gone on with it.)",
                "yellow",
            )
        elif session.messages:
            view.note(f"Going on with a conversation of {count(len(session.messages), 'message')}.")
        return session.start(prompt)

    return begin


def resuming(path: str) -> Begin:
    """Begin where the session stopped: with an interrupted run, or after a limit, an abort or a failure."""

    def begin(session: Session, view: View) -> Run | None:
        if session.interrupted:
            if held := _held(session):
                raise UsageError(
                    f"the run in {path} waits for a person's approval of {held}. This command can't give it; "
                    "resume the run with the program that held the call"
                )
            view.note(f"Taking up the run that was interrupted ({_where(session)}).")
            return session.resume()
        last = session.last_outcome
        if last is None:
            raise UsageError(f"{path} holds no run to resume. Begin one with: {_command('run', path)}")
        if last.state == "done" and not session.queued:
            view.note(f"The last run in {path} is done; there is nothing to resume.")
            view.note(f"To go on with its conversation: {_command('run', path)}")
            return None
        view.note(f"Going on after a run that ended as {last.state}{f' ({last.reason})' if last.reason else ''}.")
        return session.start_continue()

    return begin


def _where(session: Session) -> str:
    """In which state a session was interrupted, and what was under way."""
    snapshot = replay(session.journal.records())
    running = [call_words(slot.call) for slot in snapshot.batch.slots if slot.status in ("running", "returned")]
    under_way = f"; running: {', '.join(running)}" if running else ""
    return f"in {snapshot.state}, turn {snapshot.turn}{under_way}"


def _held(session: Session) -> str:
    return ", ".join(
        call_words(slot.call) for slot in replay(session.journal.records()).batch.slots if slot.status == "held"
    )


def _warn_of_another_model(session: Session, name: str, view: View) -> None:
    """A session keeps no model's name to go on with; who resumes one easily forgets to give it."""
    spoke = next((m.model for m in reversed(session.messages) if isinstance(m, AssistantMessage) and m.model), name)
    if spoke != name:
        view.note(f"So far {spoke} spoke in this session; {name} goes on. (--model names another.)", "yellow")


def _command(verb: str, path: str) -> str:
    prompt = ' "YOUR PROMPT" --session' if verb == "run" else ""
    return f"{program()} {verb}{prompt} {shlex.quote(path)}"


def _way_on(path: str | None, interrupted: bool = False) -> str:
    if path is None:
        return "No session was kept; with --session FILE this could be gone on with."
    verb = "taken up" if interrupted else "gone on with"
    return f"It can be {verb}: {_command('resume', path)}"
