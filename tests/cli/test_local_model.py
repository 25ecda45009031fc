"""The command with the embedded model: protocol facts, since what half a billion parameters say is another matter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgewise import ToolResult, replay
from edgewise.adapters.stores import read_jsonl

pytestmark = pytest.mark.model


@pytest.fixture(autouse=True)
def one_thread_and_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEWISE_LOCAL_THREADS", "1")  # two starve on a busy machine
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("EDGEWISE_MODEL", raising=False)


def test_the_seed_script_runs_from_the_command_line(edgewise: Callable[..., Any], files: Path, tmp_path: Path) -> None:
    said = edgewise("run", "List the files in the workspace", "-w", files, "-s", tmp_path / "s", "-v")
    assert said.code == 0, said.err
    assert "→ list_files(" in said.err
    assert "awaiting_model → executing_tools" in said.err and "between_turns → done" in said.err
    assert said.out.strip()
    results = [m for m in replay(read_jsonl(tmp_path / "s")).history if isinstance(m, ToolResult)]
    assert results and not results[0].is_error
    assert "README.md" in results[0].text and "src/index.ts" in results[0].text


def test_the_demo_passes(edgewise: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = edgewise("demo")
    assert said.code == 0, said.err
    assert "the model called list_files" in said.err
