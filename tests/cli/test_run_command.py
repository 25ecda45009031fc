"""``edgewise run`` against a real server on loopback: what is shown where, what is kept, and the exit codes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewise import __version__

Command = Callable[..., Any]

LIST = ("list_files", "{}")


def test_the_answer_goes_to_stdout_and_all_else_to_stderr(server: Any, files: Path, edgewise: Command) -> None:
    server.calls(LIST, text="Let me look.")
    server.says("There are ", "README.md and", " src/index.ts.")
    said = edgewise("run", "List the files", "--workspace", files)
    assert said.code == 0
    assert said.out == "Let me look.\nThere are README.md and src/index.ts.\n"
    assert f"openai:test, workspace {files}" in said.err
    assert "→ list_files({})\n← list_files:\n    README.md (21 bytes)\n    src/index.ts (11 bytes)\n" in said.err
    assert re.search(r"^done: 2 turns, 1 call, 2,000 \+ 40 tokens \(in \+ out\), \d+\.\d s$", said.err, re.MULTILINE)
    assert "edge " not in said.err
    assert "\x1b" not in said.out + said.err
    results = [m["content"] for m in server.requests[1]["messages"] if m["role"] == "tool"]
    assert results == ["README.md (21 bytes)\nsrc/index.ts (11 bytes)"]


def test_verbose_shows_each_edge_between_what_it_led_to(server: Any, files: Path, edgewise: Command) -> None:
    server.calls(LIST)
    server.says("Two files.")
    said = edgewise("run", "List the files", "-w", files, "-v")
    lines = [line for line in said.err.splitlines() if line.startswith(("edge", "→", "←"))]
    shown = [re.sub(r" \(\d\.\d{3}s\)", "", line) for line in lines]
    assert [re.sub(r"^edge +\d+ +t\d ", "", line) for line in shown] == [
        "awaiting_model → executing_tools  ModelReplied [has calls] ⇒ StartCall t1.c0 tokens=1000+20",
        "executing_tools → executing_tools CallStarted c0 [about to run]",
        "→ list_files({})",
        "executing_tools → between_turns   CallSettled c0 [all settled] ⇒ AskHook t1.judge",
        "← list_files:",
        "between_turns → awaiting_model    TurnJudged [go on; calls were made or input is queued] ⇒ CallModel t2.model",
        "awaiting_model → between_turns    ModelReplied [no calls] ⇒ AskHook t2.judge tokens=2000+40",
        "between_turns → done              TurnJudged [go on; nothing is left]",
    ]


def test_edges_as_json_have_every_field(server: Any, files: Path, edgewise: Command) -> None:
    server.says("Hi.")
    said = edgewise("run", "Hello", "-w", files, "-v", "--log", "json")
    edges = [json.loads(line) for line in said.err.splitlines() if line.startswith("{")]
    assert [(e["source"], e["signal"], e["target"]) for e in edges] == [
        ("awaiting_model", "ModelReplied", "between_turns"),
        ("between_turns", "TurnJudged", "done"),
    ]
    assert {"run", "seq", "turn", "guard", "effects", "seconds", "input_tokens", "output_tokens"} <= edges[0].keys()


def test_json_gives_one_object_per_event_and_the_outcome_last(server: Any, files: Path, edgewise: Command) -> None:
    server.calls(LIST)
    server.says("Two ", "files.")
    said = edgewise("run", "List the files", "-w", files, "--json")
    assert said.code == 0 and said.err == ""
    names = [event["event"] for event in said.events if event["event"] != "edge"]
    assert names == [
        "message_started", "message_delta", "message_ended", "call_began", "call_ended", "turn_ended",
        "message_started", "message_delta", "message_delta", "message_ended", "turn_ended", "outcome",
    ]  # fmt: skip
    ended = next(event for event in said.events if event["event"] == "call_ended")
    assert ended["call"]["name"] == "list_files"
    assert ended["result"]["content"] == [{"text": "README.md (21 bytes)\nsrc/index.ts (11 bytes)", "type": "Text"}]
    outcome = said.events[-1]
    assert (outcome["state"], outcome["text"], outcome["turns"], outcome["calls"]) == ("done", "Two files.", 2, 1)
    assert outcome["usage"]["input_tokens"] == 2000


def test_json_with_verbose_puts_the_edges_on_stderr_as_json_too(server: Any, files: Path, edgewise: Command) -> None:
    server.says("Hi.")
    said = edgewise("run", "Hello", "-w", files, "--json", "-v")
    assert [json.loads(line)["target"] for line in said.err.splitlines()] == ["between_turns", "done"]
    assert all(json.loads(line) for line in said.out.splitlines())


def test_parallel_calls_say_whose_result_is_whose_and_errors_are_marked(
    server: Any, files: Path, edgewise: Command
) -> None:
    server.calls(("read_file", '{"path": "REDME.md"}'), ("read_file", '{"path": "README.md"}'), ("nosuch", "{}"))
    server.says("Well.")
    said = edgewise("run", "Read", "-w", files)
    assert said.code == 0
    for line in (
        '→ [1] read_file({"path": "REDME.md"})',
        "✗ [1] read_file: File not found: REDME.md. Did you mean README.md?",
        '→ [2] read_file({"path": "README.md"})',
        "← [2] read_file:",
        "→ [3] nosuch({})",
        "✗ [3] nosuch: Unknown tool: nosuch.",
    ):
        assert line in said.err
    assert said.err.index("→ [1]") < said.err.index("✗ [1]")


def test_a_long_result_is_shortened_on_the_screen_but_not_for_the_model(
    server: Any, files: Path, edgewise: Command
) -> None:
    text = "".join(f"line {n}\n" for n in range(100))
    (files / "long.txt").write_text(text)
    server.calls(("read_file", '{"path": "long.txt"}'))
    server.says("Long.")
    said = edgewise("run", "Read", "-w", files)
    assert "line 7" in said.err and "line 50" not in said.err and "more lines" in said.err
    assert "line 99" in server.requests[1]["messages"][-1]["content"]


def test_what_models_and_files_hold_cannot_drive_the_terminal(server: Any, files: Path, edgewise: Command) -> None:
    (files / "evil.txt").write_text("a\x1b]0;owned\x07b")
    server.calls(("read_file", '{"path": "evil.txt"}'))
    server.says("c\x1b[2Jd\x9b31m")
    said = edgewise("run", "Read", "-w", files)
    assert said.code == 0
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said.out + said.err)
    assert "c\ufffd[2Jd" in said.out


def test_markup_in_what_is_shown_is_only_text(server: Any, files: Path, edgewise: Command) -> None:
    server.calls(("read_file", '{"path": "[bold]x[/bold].md :smile:"}'))
    server.says("[red]see[/red] :smile:")
    said = edgewise("run", "Read", "-w", files)
    assert said.out == "[red]see[/red] :smile:\n"
    assert "[bold]x[/bold].md :smile:" in said.err


def test_a_retry_is_shown_and_the_run_goes_on(server: Any, files: Path, edgewise: Command, monkeypatch: Any) -> None:
    monkeypatch.setattr("edgewise.statemachine.replies.Backoff.delay", lambda *args: 0.0)
    server.fails(503, "busy now")
    server.says("Here.")
    said = edgewise("run", "Hello", "-w", files)
    assert said.code == 0 and said.out == "Here.\n"
    assert re.search(r"! no usable reply \(overloaded: .*busy now.*\); asking again", said.err)


def test_a_failure_says_why_and_ends_with_code_5(server: Any, files: Path, edgewise: Command) -> None:
    server.fails(401, "wrong key")
    said = edgewise("run", "Hello", "-w", files)
    assert said.code == 5 and said.out == ""
    assert "failed: 1 turn" in said.err and "wrong key" in said.err
    assert said.err.count("wrong key") == 1
    assert "with --session FILE" in said.err


def test_the_prompt_can_come_from_stdin(server: Any, files: Path, edgewise: Command, monkeypatch: Any) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("From a pipe\n"))
    server.says("Yes.")
    assert edgewise("run", "-", "-w", files).code == 0
    assert server.requests[0]["messages"][-1]["content"] == "From a pipe\n"


def test_instructions_of_ones_own(server: Any, files: Path, edgewise: Command) -> None:
    server.says("Arr.")
    edgewise("run", "Hello", "-w", files, "--system", "You are a pirate.")
    assert server.requests[0]["messages"][0]["content"] == "You are a pirate."


# ---- the small ones


def test_show_prints_the_conversation(server: Any, files: Path, edgewise: Command, tmp_path: Path) -> None:
    session = tmp_path / "s"
    server.calls(LIST, text="Let me look.")
    server.says("Two files.")
    edgewise("run", "List\nthem", "-w", files, "-s", session)
    said = edgewise("show", session)
    assert said.code == 0
    assert said.out == (
        "> List\n> them\nLet me look.\n→ list_files({})\n← list_files: README.md (21 bytes)\n"
        "    src/index.ts (11 bytes)\nTwo files.\n"
    )
    assert "4 messages in 1 run; the last run ended as done." in said.err
    as_json = edgewise("show", session, "--json")
    assert [json.loads(line)["type"] for line in as_json.out.splitlines()] == [
        "UserMessage", "AssistantMessage", "ToolResult", "AssistantMessage",
    ]  # fmt: skip


def test_the_version_and_the_help(edgewise: Command) -> None:
    assert edgewise("--version").out == f"edgewise {__version__}\n"
    said = edgewise("run", "--help")
    assert said.code == 0
    for word in ("--model", "--workspace", "--max-turns", "--session", "--json", "--verbose", "EDGEWISE_MODEL"):
        assert word in said.out
    assert "Exit codes: 0 done, 2 wrong usage, 3 limit exceeded, 4 aborted, 5 failed." in said.out


def test_a_closed_stdout_does_not_end_in_a_traceback(server: Any, files: Path, command: Any) -> None:
    server.says("Hello.")
    shell = f"exec >&-; exec {sys.executable} -c '{_MAIN}' run Hi -w '{files}'"
    done = subprocess.run(["/bin/sh", "-c", shell], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr


_MAIN = "import sys; from edgewise.adapters.cli import main; sys.exit(main())"
