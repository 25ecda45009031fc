"""The seed's checkpoint and acceptance criteria, with a scripted model and real tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgewise import Agent, AssistantMessage, LimitExceeded, ToolCall, ToolResult, UserMessage, max_turns
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.tools import tool, workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# Sample\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "math.ts").write_text("export {}\n")
    return tmp_path


async def test_the_seed_script_runs_as_written(folder: Path) -> None:
    model = ScriptedModel([calls("list_files"), says("The workspace contains README.md and src/math.ts.")])
    outcome = await Agent(model, workspace(folder)).run("List the files in the workspace")
    assert [type(m) for m in outcome.messages] == [UserMessage, AssistantMessage, ToolResult, AssistantMessage]
    assert outcome.state == "done"
    assert "README.md" in outcome.messages[2].text and "src" in outcome.messages[2].text
    assert outcome.text.startswith("The workspace contains")


@pytest.mark.parametrize("stop", ["stop", "end_turn", "tool_use", "something new"])
async def test_calls_run_whatever_the_stop_reason_says(folder: Path, stop: str) -> None:
    model = ScriptedModel([calls("list_files", stop_reason=stop), says("ok")])
    outcome = await Agent(model, workspace(folder)).run("list")
    assert isinstance(outcome.messages[2], ToolResult)
    assert not outcome.messages[2].is_error


async def test_results_are_in_the_next_request(folder: Path) -> None:
    seen: list[list[object]] = []

    def script(request: object) -> object:
        seen.append(list(request.messages))
        return calls("list_files") if len(seen) == 1 else says("ok")

    outcome = await Agent(ScriptedModel(script), workspace(folder)).run("list")
    assert seen[1] == list(outcome.messages)[:3]
    assert isinstance(seen[1][-1], ToolResult)


async def test_a_wrong_path_is_answered_with_the_near_one(folder: Path) -> None:
    model = ScriptedModel([calls(ToolCall.of("read_file", path="src/maths.ts")), says("ok")])
    outcome = await Agent(model, workspace(folder)).run("read")
    result = outcome.messages[2]
    assert result.is_error
    assert result.text == "File not found: src/maths.ts. Did you mean src/math.ts?"


@tool
def breaks() -> str:
    """Raise."""
    raise ValueError("the disk is on fire")


@tool
def leaves() -> str:
    """Call sys.exit."""
    raise SystemExit(3)


async def test_unknown_tool_bad_arguments_and_exceptions_are_error_results_and_the_run_goes_on(folder: Path) -> None:
    wanted = calls(
        "list_filez",
        ToolCall("", "read_file", '{"path": 5, "pth": 1}'),
        ToolCall("", "read_file", "{broken"),
        "breaks",
        "leaves",
        "list_files",
    )
    model = ScriptedModel([wanted, says("ok")])
    outcome = await Agent(model, [*workspace(folder), breaks, leaves]).run("go")
    results = [m for m in outcome.messages if isinstance(m, ToolResult)]
    assert [r.is_error for r in results] == [True, True, True, True, True, False]
    assert "Did you mean list_files" in results[0].text
    assert "path" in results[1].text and "pth" in results[1].text and "string" in results[1].text
    assert "JSON" in results[2].text
    assert "the disk is on fire" in results[3].text
    assert "SystemExit" in results[4].text
    assert outcome.state == "done"


async def test_the_turn_limit_is_a_clear_error_and_the_run_continues_from_it(folder: Path) -> None:
    model = ScriptedModel([calls("list_files"), calls("list_files"), says("finished")])
    session = Agent(model, workspace(folder), should_continue=max_turns(2)).session()
    outcome = await session.run("loop")
    assert outcome.state == "limit_exceeded"
    with pytest.raises(
        LimitExceeded, match=r"did not converge.*all 2 turns.*last action was list_files.*continue_\(\)"
    ):
        outcome.raise_for_state()
    after = await session.continue_()
    assert after.state == "done" and after.text == "finished"
    assert len(after.messages) == 6


def test_run_sync_is_one_line_for_plain_programs(folder: Path) -> None:
    assert Agent(ScriptedModel(["hello"])).run_sync("hi").text == "hello"
