"""``list_files``: one path per line, the likely things to want first and never a flood."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgewise.statemachine.messages import ToolResult
from edgewise.tools import list_files, workspace
from edgewise.tools.files import listing, walking

Call = Callable[..., ToolResult]


def test_without_arguments_it_lists_the_files_below_the_root(root: Path, call: Call) -> None:
    result = call(list_files(root))
    assert not result.is_error
    assert result.text == "README.md (6 bytes)\nsrc/index.ts (20 bytes)\nsrc/math.ts (10 bytes)"


def test_the_tools_of_a_workspace_are_safe_to_run_again_and_block(root: Path) -> None:
    tools = workspace(root)
    assert [tool.name for tool in tools] == ["list_files", "read_file"]
    assert all(tool.replay == "safe" and tool.blocking and not tool.exclusive for tool in tools)
    assert all(tool.description and tool.parameters["additionalProperties"] is False for tool in tools)
    assert "required" not in tools[0].parameters
    assert tools[1].parameters["required"] == ["path"]
    assert all(schema["description"] for tool in tools for schema in tool.parameters["properties"].values()), (
        "a small model needs each parameter explained"
    )


def test_depth_bounds_the_levels_and_directories_end_in_a_slash(root: Path, call: Call) -> None:
    (root / "src" / "deep" / "deeper").mkdir(parents=True)
    (root / "src" / "deep" / "deeper" / "file").write_text("")
    tool = list_files(root)
    assert call(tool, depth=1).text == "README.md (6 bytes)\nsrc/"
    assert call(tool, depth=2).text.splitlines()[1:] == [
        "src/deep/",
        "src/index.ts (20 bytes)",
        "src/math.ts (10 bytes)",
    ]
    assert "src/deep/deeper/" in call(tool, depth=3).text
    assert "src/deep/deeper/file (0 bytes)" in call(tool, depth="4").text


def test_a_directory_can_be_listed_alone(root: Path, call: Call) -> None:
    for path in ("src", "./src/", str(root / "src")):
        assert call(list_files(root), path=path).text == "src/index.ts (20 bytes)\nsrc/math.ts (10 bytes)"


def test_version_control_is_left_out_and_what_tools_fill_is_named_only(root: Path, call: Call) -> None:
    for path in (".git/HEAD", ".venv/bin", "node_modules/x/y", ".github/ci.yml"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")
    lines = call(list_files(root)).text.splitlines()
    assert [line for line in lines if "README" not in line and "src" not in line] == [
        ".github/",
        ".venv/",
        "node_modules/",
    ]
    assert call(list_files(root), path=".github").text == ".github/ci.yml (0 bytes)"


def test_links_and_odd_things_are_named_for_what_they_are(root: Path, call: Call) -> None:
    (root / "link").symlink_to("/etc")
    os.mkfifo(root / "pipe")
    (root / "empty").mkdir()
    lines = call(list_files(root)).text.splitlines()
    assert "link -> /etc" in lines
    assert "pipe (a named pipe)" in lines
    assert "empty/ (empty)" in lines
    assert not any(line.startswith("link/") for line in lines)


def test_a_name_with_a_line_break_is_one_line(root: Path, call: Call) -> None:
    (root / "a\nb.txt").write_text("")
    (root / os.fsdecode(b"bad\xff")).write_text("")
    lines = call(list_files(root)).text.splitlines()
    assert '"a\\nb.txt" (0 bytes)' in lines
    assert '"bad�" (0 bytes)' in lines


def test_a_large_directory_is_capped_and_says_how_many_more(root: Path, call: Call) -> None:
    many = root / "many"
    many.mkdir()
    for i in range(listing.MOST_LINES + 20):
        (many / f"{i:04}").touch()
    assert "many/ (520 entries)" in call(list_files(root)).text.splitlines()
    lines = call(list_files(root), path="many").text.splitlines()
    assert lines[0] == "many/0000 (0 bytes)"
    assert lines[-1] == "... and 20 more."
    assert len(lines) == listing.MOST_LINES + 1


def test_a_huge_directory_is_not_read_to_its_end(root: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "MOST_IN_DIRECTORY", 30)
    monkeypatch.setattr(listing, "MOST_IN_DIRECTORY", 30)
    monkeypatch.setattr(listing, "MOST_LINES", 10)
    (root / "many").mkdir()
    for i in range(50):
        (root / "many" / str(i)).touch()
    assert call(list_files(root), path="many").text.endswith("... and at least 20 more.")
    assert "many/ (at least 30 entries)" in call(list_files(root)).text


def test_an_empty_directory_says_so(root: Path, call: Call) -> None:
    (root / "empty").mkdir()
    assert call(list_files(root), path="empty").text == "empty/ is empty."
    assert call(list_files(root / "empty")).text == "The workspace is empty."


def test_a_file_is_refused_with_the_tool_to_use(root: Path, call: Call) -> None:
    result = call(list_files(root), path="README.md")
    assert result.is_error
    assert result.text == "README.md is a file, not a directory. Use read_file to see what is in it."


def test_a_missing_directory_answers_with_the_nearest(root: Path, call: Call) -> None:
    result = call(list_files(root), path="scr")
    assert result.is_error
    assert result.text == "Directory not found: scr. Did you mean src?"


def test_outside_is_refused(root: Path, call: Call) -> None:
    result = call(list_files(root), path="..")
    assert result.is_error
    assert "outside the workspace" in result.text
