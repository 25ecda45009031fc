"""Prints what a session's file holds."""

from __future__ import annotations

import sys

from edgewise.adapters.cli.exits import UsageError
from edgewise.adapters.cli.screen import error_console
from edgewise.adapters.cli.words import count, message_lines
from edgewise.adapters.stores import read_jsonl
from edgewise.statemachine.codec import to_json
from edgewise.statemachine.errors import JournalCorrupt, JournalError
from edgewise.statemachine.records import Recovered, recover


def show_session(path: str, as_json: bool) -> None:
    """Print the messages on stdout and how the last run stands on stderr. Raises JournalError."""
    found = recovered(path)
    history = found.snapshot.history if found.snapshot is not None else ()
    for message in history:
        lines = [to_json(message)] if as_json else message_lines(message)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    if not as_json:
        error_console().print(_standing(found))


def recovered(path: str) -> Recovered:
    """What the journal at ``path`` tells. Raises JournalError."""
    try:
        records = read_jsonl(path)
    except JournalCorrupt:
        raise
    except JournalError as error:
        raise UsageError(str(error)) from error
    try:
        return recover(records)
    except JournalCorrupt as error:
        raise JournalCorrupt(f"{path}: {error}") from error


def _standing(found: Recovered) -> str:
    if found.snapshot is None:
        return "This session holds no run yet."
    state = found.snapshot.state
    stands = "was interrupted, or is under way," if found.interrupted else "ended"
    runs = f"{count(len(found.snapshot.history), 'message')} in {count(found.runs, 'run')}"
    return f"{runs}; the last run {stands} {'in' if found.interrupted else 'as'} {state}."
