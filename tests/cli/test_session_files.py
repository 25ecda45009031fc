"""``--session`` and ``edgewise resume``: what is kept, and how it is gone on with."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from edgewise import Agent, Ask, AssistantMessage, ToolResult, UserMessage, inline, replay
from edgewise.adapters.models.scripted import ScriptedModel, calls
from edgewise.adapters.stores import JsonlJournal, read_jsonl
from edgewise.statemachine.events import CallAwaitsApproval
from edgewise.tools import workspace as tools_of

Command = Callable[..., Any]

LIST = ("list_files", "{}")


def test_a_limit_gives_a_closing_word_says_how_to_go_on_and_ends_with_code_3(
    server: Any, files: Path, edgewise: Command, tmp_path: Path
) -> None:
    session = tmp_path / "my session.jsonl"
    server.calls(LIST)
    server.says("I only listed them.")
    said = edgewise("run", "Read all", "-w", files, "--max-turns", 1, "--session", session)
    assert said.code == 3 and said.out == "I only listed them.\n"
    assert "did not converge" in said.err and "list_files" in said.err
    assert f"edgewise resume '{session}'" in said.err
    assert "tools" not in server.requests[1]
    server.says("All is read.")
    said = edgewise("resume", session, "-w", files)
    assert said.code == 0 and said.out == "All is read.\n"
    assert "Going on after a run that ended as limit_exceeded (it used its one turn)." in said.err


def test_a_session_is_kept_and_gone_on_with(server: Any, files: Path, edgewise: Command, tmp_path: Path) -> None:
    session = tmp_path / "s.jsonl"
    server.says("Hello.")
    server.says("Hello again.")
    first = edgewise("run", "One", "-w", files, "-s", session)
    assert "Going on" not in first.err
    second = edgewise("run", "Two", "-w", files, "-s", session)
    assert "Going on with a conversation of 2 messages." in second.err
    asked = [m["content"] for m in server.requests[1]["messages"] if m["role"] != "system"]
    assert asked == ["One", "Hello.", "Two"]
    assert [m.text for m in replay(read_jsonl(session)).history] == ["One", "Hello.", "Two", "Hello again."]


def test_another_model_in_the_same_session_is_pointed_out(
    server: Any, files: Path, edgewise: Command, tmp_path: Path
) -> None:
    server.says("Hello.")
    server.says("Hello again.")
    edgewise("run", "One", "-w", files, "-s", tmp_path / "s")
    said = edgewise("run", "Two", "-w", files, "-s", tmp_path / "s", "-m", "openai:other")
    assert "So far openai:test spoke in this session; openai:other goes on." in said.err


def test_an_empty_session_file_has_nothing_to_resume(server: Any, edgewise: Command, tmp_path: Path) -> None:
    (tmp_path / "s").touch()
    said = edgewise("resume", tmp_path / "s")
    assert said.code == 2 and "holds no run to resume. Begin one with: edgewise run" in said.err


def test_a_done_session_says_so_and_how_to_go_on(server: Any, files: Path, edgewise: Command, tmp_path: Path) -> None:
    server.says("Hello.")
    edgewise("run", "One", "-w", files, "-s", tmp_path / "s")
    said = edgewise("resume", tmp_path / "s", "-w", files)
    assert said.code == 0 and said.out == ""
    assert "is done; there is nothing to resume" in said.err
    assert f'edgewise run "YOUR PROMPT" --session {tmp_path / "s"}' in said.err
    assert len(server.requests) == 1


def test_a_resumed_failure_goes_on(server: Any, files: Path, edgewise: Command, tmp_path: Path) -> None:
    server.fails(401, "wrong key")
    server.says("Now.")
    assert edgewise("run", "One", "-w", files, "-s", tmp_path / "s").code == 5
    said = edgewise("resume", tmp_path / "s", "-w", files)
    assert said.code == 0 and said.out == "Now.\n"
    kinds = [type(m) for m in replay(read_jsonl(tmp_path / "s")).history]
    assert kinds == [UserMessage, AssistantMessage]


def test_a_torn_session_is_mended_and_the_repair_is_told(
    server: Any, files: Path, edgewise: Command, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.calls(LIST)
    server.says("Fine.")
    edgewise("run", "One", "-w", files, "-s", session)
    lines = session.read_bytes().splitlines(keepends=True)
    started = next(n for n, line in enumerate(lines) if b'"CallStarted"' in line)
    session.write_bytes(b"".join(lines[: started + 1]) + lines[started + 1][:20])
    server.says("Anew.")
    said = edgewise("resume", session, "-w", files)
    assert said.code == 0 and said.out == "Anew.\n"
    assert "was cut short, by a crash or a full disk; it was removed" in said.err
    assert "interrupted (in executing_tools, turn 1; running: list_files({}))" in said.err
    results = [m for m in replay(read_jsonl(session)).history if isinstance(m, ToolResult)]
    assert len(results) == 1


def test_a_new_prompt_on_an_interrupted_session_closes_it_and_says_so(
    server: Any, files: Path, edgewise: Command, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.calls(LIST)
    server.says("Fine.")
    edgewise("run", "One", "-w", files, "-s", session)
    lines = session.read_bytes().splitlines(keepends=True)
    session.write_bytes(b"".join(lines[:3]))
    server.says("Something else.")
    said = edgewise("run", "Two", "-w", files, "-s", session)
    assert said.code == 0 and said.out == "Something else.\n"
    assert "was interrupted (in executing_tools, turn 1). It is closed as aborted before your prompt is put" in said.err


async def _hold_a_call(session: Path) -> None:
    """Leave a session whose run waits for somebody's approval, as a program that died meanwhile does."""
    agent = Agent(ScriptedModel([calls("list_files")]), tools_of("."), authorize=inline(lambda call: Ask("sure?")))
    with JsonlJournal.open(f"{session}.live") as journal:
        async with agent.session(journal).start("go") as run:
            async for event in run.events():
                if isinstance(event, CallAwaitsApproval):
                    shutil.copy(f"{session}.live", session)
                    run.abort()


def test_a_run_that_waits_for_approval_is_left_alone(server: Any, edgewise: Command, tmp_path: Path) -> None:
    session = tmp_path / "s"
    trio.run(_hold_a_call, session)
    before = session.read_bytes()
    said = edgewise("resume", session, "-w", tmp_path)
    assert said.code == 2
    assert "waits for a person's approval of list_files({})" in said.err
    assert session.read_bytes() == before


def test_a_session_that_can_no_longer_be_written_stops_the_run_loudly(
    server: Any, files: Path, command: Any, edgewise: Command, tmp_path: Path
) -> None:
    session = tmp_path / "s"
    server.says("word " * 1000)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    process = command("run", "Hi", "-w", files, "-s", session, preexec_fn=limit)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 5
    assert out.endswith(b"word \n")
    assert f"error: the session file {session} can't be written: File too large." in err.decode()
    assert "Traceback" not in err.decode()
    server.says("Short.")
    said = edgewise("resume", session, "-w", files)
    assert said.code == 0 and said.out == "Short.\n"
    assert "was cut short" not in said.err
