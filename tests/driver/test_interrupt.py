"""Ctrl-C in a user's own program: the run is aborted, started tools clean up, then the program ends as Python does."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import trio
from edgewise import Agent
from edgewise.adapters.models.scripted import ScriptedModel, calls
from edgewise.tools import tool

@tool
async def hang() -> str:
    "Hang."
    print("started", flush=True)
    try:
        await trio.sleep_forever()
    finally:
        print("cleaned up", flush=True)

session = None

async def main():
    global session
    session = Agent(ScriptedModel([calls("hang")]), [hang]).session()
    await session.run("go")

try:
    trio.run(main)
except KeyboardInterrupt:
    print(session.last_outcome.state, session.last_outcome.reason, len(session.messages), flush=True)
"""


def test_ctrl_c_in_a_users_program_aborts_the_run_and_then_goes_on() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=30)
    assert rest.splitlines() == ["cleaned up", "aborted KeyboardInterrupt 3"]
    assert process.returncode == 0
