"""Wrong usage gets one clear message and code 2, no traceback, and the model is not asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgewise.adapters.stores import JsonlJournal

Command = Callable[..., Any]


def _session_in_use(tmp_path: Path) -> list[object]:
    _session_in_use.holder = JsonlJournal.open(tmp_path / "busy")  # type: ignore[attr-defined]
    return ["run", "Hi", "-s", tmp_path / "busy"]


def _corrupt(tmp_path: Path) -> list[object]:
    (tmp_path / "notes.md").write_text("# My notes\n\nnot a session\n")
    return ["run", "Hi", "-s", tmp_path / "notes.md"]


def _contradiction(tmp_path: Path) -> list[object]:
    from edgewise.statemachine.codec import to_json
    from edgewise.statemachine.records import Record
    from edgewise.statemachine.signals import AbortRequested

    (tmp_path / "odd").write_text(to_json(Record(1, "r", 0.0, AbortRequested())) + "\n")
    return ["resume", tmp_path / "odd"]


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (lambda p: ["run", "Hi", "-w", p / "nowhere"], r"no directory to work in: .*/nowhere"),
        (lambda p: ["run", "Hi", "-m", "opena:x"], r"no provider is called 'opena'\. Did you mean openai\?"),
        (lambda p: ["run", "Hi", "-m", "openai"], r"says no model's name; it should look like 'openai:"),
        (lambda p: ["run", "  "], r"the prompt is empty"),
        (lambda p: ["run"], r"Missing argument 'PROMPT'"),
        (lambda p: ["run", "Hi", "--max-turns", "0"], r"Invalid value for '--max-turns'"),
        (lambda p: ["run", "Hi", "--max-turn", "3"], r"No such option: --max-turn"),
        (lambda p: ["run", "Hi", "--log", "xml"], r"'xml' is not one of"),
        (lambda p: ["walk"], r"No such command 'walk'"),
        (lambda p: ["run", "Hi", "-s", p / "no" / "dir.jsonl"], r"dir\.jsonl can't be opened: No such .* Make its dir"),
        (lambda p: ["run", "Hi", "-s", p], r"can't be opened: Is a directory"),
        (lambda p: ["resume", p / "missing"], r"there is no session file .*/missing; `edgewise run PROMPT --session"),
        (lambda p: ["show", p / "missing"], r"missing can't be read: No such file"),
        (_corrupt, r"notes\.md, line 1 is no JSON"),
        (_contradiction, r"/odd: record 1: AbortRequested"),
        (_session_in_use, r"busy is in use by another process"),
        (lambda p: ["model", "pull", "qwen"], r"no local model is called 'qwen'"),
    ],
)
def test_wrong_usage_is_explained(
    argv: Callable[[Path], list[object]], why: str, server: Any, edgewise: Command, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    said = edgewise(*argv(tmp_path))
    if holder := getattr(_session_in_use, "holder", None):
        holder.close()
    assert said.code == 2, said.err
    assert re.search(why, " ".join(said.err.split())), said.err
    assert "Traceback" not in said.err and said.out == ""
    assert server.requests == []
