"""A whole agent on the Chat Completions wire: what the server sees of its turns."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from edgewise import Agent, Backoff, ToolResult, max_turns
from edgewise.adapters.models import model
from edgewise.statemachine.events import MessageDelta
from edgewise.tools import tool, workspace


@tool
async def slow(text: str) -> str:
    """Give the text back, the first one last."""
    for _ in range(5 - len(text)):
        await trio.lowlevel.checkpoint()
    return text


def call(server, *texts: str):
    calls = [{"id": "same", "function": {"name": "slow", "arguments": f'{{"text": "{text}"}}'}} for text in texts]
    return server.delta(tool_calls=[{"index": n, **call} for n, call in enumerate(calls)])


async def test_results_go_back_in_declaration_order_under_unique_ids(server):
    server.will_stream(call(server, "a", "bb", "ccc"), server.delta("stop"))
    server.will_stream(server.delta("stop", content="Done."))
    agent = Agent(model("openai:m", base_url=server.url, api_key="k"), [slow])
    with trio.fail_after(10):
        outcome = await agent.run("go")
    assert (outcome.state, outcome.text) == ("done", "Done.")
    sent = server.requests[1]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "tool"]
    assert [message["content"] for message in sent[2:]] == ["a", "bb", "ccc"]
    ids = [asked["id"] for asked in sent[1]["tool_calls"]]
    assert len(set(ids)) == 3
    assert ids == [message["tool_call_id"] for message in sent[2:]]


async def test_arguments_that_are_no_json_are_answered_and_the_run_goes_on(server):
    broken = {"index": 0, "id": "a", "function": {"name": "slow", "arguments": '{"text": '}}
    server.will_stream(server.delta(tool_calls=[broken]), server.delta("tool_calls"))
    server.will_stream(server.delta("stop", content="Sorry."))
    with trio.fail_after(10):
        outcome = await Agent(model("openai:m", base_url=server.url, api_key="k"), [slow]).run("go")
    assert outcome.state == "done"
    asked, answered = server.requests[1]["messages"][1:]
    assert asked["tool_calls"][0]["function"]["arguments"] == "{}"
    assert answered["content"].startswith("Error: ")
    assert "JSON" in answered["content"]


async def test_a_cut_stream_is_asked_for_again_and_nothing_of_it_runs(server):
    server.will_answer(server.event(call(server, "a")), server.cut)
    server.will_stream(server.delta("stop", content="Whole."))
    agent = Agent(model("openai:m", base_url=server.url, api_key="k"), [slow], backoff=Backoff(first=0.0))
    with trio.fail_after(10):
        outcome = await agent.run("go")
    assert (outcome.state, outcome.text) == ("done", "Whole.")
    assert not [message for message in outcome.messages if isinstance(message, ToolResult)]
    assert server.requests[0]["messages"] == server.requests[1]["messages"]


async def test_aborting_in_mid_stream_hangs_up_and_keeps_the_partial_reply(server):
    server.will_answer(server.event(server.delta(content="Half an ans")), trio.sleep_forever)
    agent = Agent(model("openai:m", base_url=server.url, api_key="k"))
    with trio.fail_after(10):
        async with agent.start("go") as run:
            async for event in run.events():
                if isinstance(event, MessageDelta):
                    run.abort("enough")
            outcome = await run.outcome()
        with trio.fail_after(1):
            await server.hung_up.wait()
    assert outcome.state == "aborted"
    assert outcome.messages[-1].text == "Half an ans"
    assert outcome.messages[-1].stop_reason == "aborted"


@pytest.mark.model
async def test_an_agent_on_a_real_server_lists_the_files(openai_server, tmp_path: Path):
    (tmp_path / "README.md").write_text("# Sample\n")
    (tmp_path / "notes.txt").write_text("Some notes.\n")
    real = model(
        f"openai:{openai_server.model}", base_url=openai_server.base_url, api_key="any", temperature=0, max_tokens=200
    )
    agent = Agent(
        real,
        workspace(tmp_path),
        instructions="You answer about the files of this workspace.",
        should_continue=max_turns(5),
    )
    asked = len(openai_server.requests())
    deltas = ""
    with trio.fail_after(120):
        async with agent.start("List the files in the workspace") as run:
            async for event in run.events():
                if isinstance(event, MessageDelta) and event.kind == "text":
                    deltas += event.text
            outcome = await run.outcome()
    outcome.raise_for_state()
    results = [message for message in outcome.messages if isinstance(message, ToolResult)]
    assert ("list_files", False) in [(result.name, result.is_error) for result in results]
    assert outcome.messages[1].stop_reason == "tool_use"
    assert "README.md" in outcome.text
    assert "notes.txt" in outcome.text
    assert deltas == outcome.text
    assert outcome.usage.input_tokens > 0
    assert outcome.usage.output_tokens > 0
    first, second = (request["messages"] for request in openai_server.requests()[asked : asked + 2])
    assert second[: len(first)] == first
    assert [message["role"] for message in second[:4]] == ["system", "user", "assistant", "tool"]
    assert [message["tool_call_id"] for message in second[3:]] == [call["id"] for call in second[2]["tool_calls"]]
    assert "notes.txt" in "".join(message["content"] for message in second[3:])
