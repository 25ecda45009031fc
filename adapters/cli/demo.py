"""The demonstration: a real model calls a real tool in a small workspace, and every edge is shown."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from rich.text import Text

from edgewise.adapters.cli.exits import DONE, FAILED
from edgewise.adapters.cli.running import Options, carry_out, saying
from edgewise.adapters.cli.screen import error_console
from edgewise.adapters.cli.words import program
from edgewise.statemachine.messages import ToolResult

PROMPT = "List the files in the workspace"

_INTRO = """\
A language model is asked about a small directory, a copy of a sample:
  {workspace}
It can't see the files. It can call tools, and Edgewise runs them. Below,
  edge  is a step of the state machine: its number in the journal, its turn,
        state → next state, what happened [guard] ⇒ what is to be done (seconds)
  →     is a tool call by the model, and ← the tool's result.

> {prompt}
"""
_CALLED = """
That is the loop: the model called {calls}, read the result, and answered.
Each step was written to the session's file before anything was done about it.
To read the conversation:
  {show}
To ask something else:
  {run}"""
_NOT_CALLED = """
The model answered without calling a tool, or no call succeeded, so this shows
no loop. It is a very small model, and now and then it does that; try again."""


def demonstrate(model: str) -> int:
    """Run the demonstration and give the exit code."""
    console = error_console()
    home = Path(tempfile.mkdtemp(prefix="edgewise-demo-"))
    place, session = home / "workspace", home / "session.jsonl"
    with as_file(files("edgewise.adapters.cli") / "sample") as sample:
        shutil.copytree(sample, place)
    console.print(Text(_INTRO.format(workspace=place, prompt=PROMPT)))
    options = Options(model=model, workspace=str(place), max_turns=6, session=str(session), edges=True)
    ended = carry_out(options, saying(PROMPT))
    assert ended is not None
    if ended.code != DONE:
        return ended.code
    called = [m.name for m in ended.outcome.messages if isinstance(m, ToolResult) and not m.is_error]
    if not called:
        console.print(Text(_NOT_CALLED, "yellow"))
        return FAILED
    console.print(
        Text(
            _CALLED.format(
                calls=", ".join(dict.fromkeys(called)),
                show=f"{program()} show {shlex.quote(str(session))}",
                run=f'{program()} run "Read README.md" --workspace {shlex.quote(str(place))}',
            )
        )
    )
    return DONE
