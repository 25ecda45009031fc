"""Ctrl-C, kill and a closed pipe, with real processes and real signals."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgewise import AssistantMessage, ToolResult, recover
from edgewise.adapters.stores import read_jsonl
from edgewise.statemachine.invariants import check_history

Command = Callable[..., subprocess.Popen[bytes]]
SLOW = Path(__file__).with_name("slow_tools_program.py")
PATIENCE = 20.0
"""Seconds after which a test gives up on something that should have happened long ago."""


def _read_until(stream: Any, word: bytes) -> bytes:
    """What a process writes, up to and with ``word``."""
    until = time.monotonic() + PATIENCE
    data = b""
    while word not in data:
        assert select.select([stream], [], [], max(0.0, until - time.monotonic()))[0], f"{word!r} is not in {data!r}"
        piece = os.read(stream.fileno(), 4096)
        assert piece, f"it ended without {word!r}: {data!r}"
        data += piece
    return data


def _wait_for(path: Path, word: str) -> None:
    until = time.monotonic() + PATIENCE
    while not (path.exists() and word in path.read_text()):
        assert time.monotonic() < until, f"{word!r} never came"
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out.decode(), err.decode()


def _messages(session: Path) -> list[Any]:
    found = recover(read_jsonl(session))
    assert found.snapshot is not None
    return list(found.snapshot.history)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_during_a_reply_keeps_what_came_and_the_session_goes_on(
    number: signal.Signals, server: Any, files: Path, command: Command, edgewise: Any, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    reply = server.says("Once upon ", "a time", hold=True)
    process = command("run", "Tell", "-w", files, "-s", session)
    told = _read_until(process.stdout, b"a time")
    process.send_signal(number)
    code, out, err = _end(process)
    assert code == 4
    assert told.decode() + out == "Once upon a time\n"
    assert "aborting" in err and "(the reply was broken off here)" in err
    assert "aborted: 1 turn" in err and f"edgewise resume {session}" in err
    assert "Traceback" not in err
    assert reply.gone.wait(PATIENCE), "the server was left waiting"
    last = _messages(session)[-1]
    assert isinstance(last, AssistantMessage)
    assert (last.text, last.stop_reason) == ("Once upon a time", "aborted")
    server.says("there was an end.")
    said = edgewise("resume", session, "-w", files)
    assert said.code == 0 and said.out == "there was an end.\n"
    assert "ended as aborted" in said.err


def test_an_interrupt_during_a_tool_lets_it_clean_up(
    server: Any, files: Path, command: Command, edgewise: Any, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.calls(("wait", "{}"))
    process = command("run", "Wait", "-w", files, "-s", session, program=SLOW)
    _wait_for(files / "traces", "began")
    process.send_signal(signal.SIGINT)
    code, _, err = _end(process)
    assert code == 4 and "Traceback" not in err
    assert (files / "traces").read_text() == "began\ncleaned up\n"
    assert "✗ wait: Aborted" in err
    assert check_history(_messages(session)) == []
    server.says("Never mind.")
    assert edgewise("resume", session, "-w", files).code == 0
    assert len(server.requests) == 2


def test_a_second_interrupt_stops_at_once_and_the_session_can_be_taken_up(
    server: Any, files: Path, command: Command, edgewise: Any, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.calls(("be_deaf", "{}"))
    process = command("run", "Wait", "-w", files, "-s", session, program=SLOW)
    _wait_for(files / "traces", "began")
    process.send_signal(signal.SIGINT)
    _read_until(process.stderr, b"aborting")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, _, err = _end(process)
    assert code == 4 and time.monotonic() - began < 3
    assert f"Stopped at once. It can be taken up: edgewise resume {session}" in err
    assert recover(read_jsonl(session)).interrupted
    said = edgewise("resume", session, "-w", files)
    assert said.code == 4
    assert "Taking up the run that was interrupted (in aborting, turn 1; running: be_deaf({}))." in said.err
    assert "✗ be_deaf: Interrupted" in said.err
    assert check_history(_messages(session)) == []


def test_a_killed_run_is_taken_up_and_its_call_is_not_made_again(
    server: Any, files: Path, command: Command, edgewise: Any, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.calls(("wait", "{}"))
    process = command("run", "Wait", "-w", files, "-s", session, program=SLOW)
    _wait_for(files / "traces", "began")
    process.kill()
    _end(process)
    server.says("It may have worked.")
    resumed = command("resume", session, "-w", files, program=SLOW)
    code, out, err = _end(resumed)
    assert code == 0 and out == "It may have worked.\n"
    assert "Taking up the run that was interrupted (in executing_tools, turn 1; running: wait({}))." in err
    assert "✗ wait: Interrupted: the process ended while this call was running" in err
    assert (files / "traces").read_text() == "began\n"
    results = [m for m in _messages(session) if isinstance(m, ToolResult)]
    assert len(results) == 1 and results[0].is_error


def test_a_reply_that_a_kill_cut_off_is_asked_for_again(
    server: Any, files: Path, command: Command, edgewise: Any, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.says("Once ", hold=True)
    process = command("run", "Tell", "-w", files, "-s", session)
    _read_until(process.stdout, b"Once")
    process.kill()
    _end(process)
    server.says("Anew.")
    said = edgewise("resume", session, "-w", files)
    assert said.code == 0 and said.out == "Anew.\n"
    assert [m.text for m in _messages(session)] == ["Tell", "Anew."]


def test_a_session_in_use_is_refused(server: Any, files: Path, command: Command, edgewise: Any, tmp_path: Path) -> None:
    session = tmp_path / "s"
    server.says("Once ", hold=True)
    process = command("run", "Tell", "-w", files, "-s", session)
    _read_until(process.stdout, b"Once")
    said = edgewise("resume", session, "-w", files)
    assert said.code == 2 and "is in use by another process" in said.err
    assert edgewise("show", session).out == "> Tell\n"
    process.send_signal(signal.SIGINT)
    assert _end(process)[0] == 4


@pytest.mark.parametrize("as_json", [False, True])
def test_a_reader_that_goes_away_ends_the_run_without_a_traceback(
    as_json: bool, server: Any, files: Path, command: Command, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    first = server.says("Once ", hold=True)
    first.calls = (("list_files", "{}"),)
    server.says("more", hold=True)
    process = command("run", "Tell", "-w", files, "-s", session, *(["--json"] if as_json else []))
    assert process.stdout is not None
    _read_until(process.stdout, b"Once")
    process.stdout.close()
    process.stdout = None
    first.let_go.set()
    code, err = process.wait(PATIENCE), process.stderr.read().decode()  # type: ignore[union-attr]
    assert code == 4
    assert "Traceback" not in err and "BrokenPipe" not in err
    found = recover(read_jsonl(session))
    assert found.snapshot is not None
    assert found.snapshot.state == "aborted"
    assert found.snapshot.ending is not None
    assert found.snapshot.ending.reason == "nobody reads its output any more"


def test_a_reader_that_takes_its_time_keeps_ctrl_c_from_nothing(
    server: Any, files: Path, command: Command, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.says("x" * 300_000, hold=True)  # more than a pipe holds
    process = command("run", "Tell", "-w", files, "-s", session)
    _read_until(process.stdout, b"x")
    process.send_signal(signal.SIGINT)
    _wait_for(session, '"AbortRequested"')
    _wait_for(session, '"ModelFailed"')
    assert process.poll() is None  # it waits for its reader, but the run is over
    assert recover(read_jsonl(session)).snapshot.state == "aborted"  # type: ignore[union-attr]
    code, out, _ = _end(process)
    assert code == 4 and len(out) > 200_000
