"""The command's exit codes, and how errors become one clear message and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.text import Text

from edgewise.adapters.cli.screen import error_console
from edgewise.adapters.cli.words import plain
from edgewise.adapters.models.local import PullStopped
from edgewise.statemachine.errors import EdgewiseError, JournalCorrupt, MisuseError
from edgewise.statemachine.snapshot import State

DONE, USAGE, LIMIT, ABORTED, FAILED = 0, 2, 3, 4, 5

CODES = {State.DONE: DONE, State.LIMIT_EXCEEDED: LIMIT, State.ABORTED: ABORTED, State.FAILED: FAILED}

EXPLAINED = "Exit codes: 0 done, 2 wrong usage, 3 limit exceeded, 4 aborted, 5 failed."


class UsageError(EdgewiseError):
    """What was asked for cannot be done as it was asked."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn this library's errors into a message and an exit code. Others are bugs, and keep their traceback."""
    try:
        yield
    except (UsageError, MisuseError, JournalCorrupt) as error:
        raise _leaving(str(error), USAGE) from error
    except PullStopped as error:
        raise _leaving(str(error), ABORTED) from error
    except EdgewiseError as error:
        raise _leaving(str(error), FAILED) from error
    except BrokenPipeError as error:
        forget_output()
        raise typer.Exit(ABORTED) from error
    except KeyboardInterrupt as interrupt:
        raise _leaving("interrupted before anything was begun", ABORTED) from interrupt


def forget_output() -> None:
    """Nobody reads it any more: what is still in the buffers would raise once more at the exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(null, stream.fileno())
    os.close(null)


def _leaving(message: str, code: int) -> typer.Exit:
    error_console().print(Text.assemble(("error: ", "bold red"), plain(message)))
    return typer.Exit(code)
