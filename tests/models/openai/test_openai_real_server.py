"""A real OpenAI-compatible server with a real model: facts of the protocol, not of the wording.

A whole agent on this server is in ``test_openai_agent.py``.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from edgewise.adapters.models import model
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import ModelError
from edgewise.statemachine.messages import AssistantMessage, Text, ToolCall, ToolResult, user_message
from edgewise.statemachine.ports import ModelRequest

pytestmark = pytest.mark.model

INSTRUCTIONS = "You answer about the files of this workspace."
PATH = {"path": {"type": "string"}}


@attrs.frozen
class Spec:
    name: str
    description: str
    parameters: dict[str, Any]


TOOLS = (
    Spec("list_files", "List the files of the workspace.", {"type": "object", "properties": PATH}),
    Spec("read_file", "Read a file.", {"type": "object", "properties": PATH, "required": ["path"]}),
)


@pytest.fixture
def real(openai_server):
    return model(
        f"openai:{openai_server.model}", base_url=openai_server.base_url, api_key="any", temperature=0, max_tokens=200
    )


async def test_cancelling_a_real_reply_keeps_its_beginning_and_frees_the_server(real):
    begun = trio.Event()
    draft = Draft(lambda kind, text, block: begun.set())
    counting = ModelRequest([user_message("Count from 1 to 1000 in words, one number a line.")])
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(real.reply, counting, draft)
            await begun.wait()
            nursery.cancel_scope.cancel()
        assert draft.finish("aborted").text
        reply = await real.reply(ModelRequest([user_message("Say yes.")], options={"max_tokens": 5}), Draft())
    assert isinstance(reply, AssistantMessage)


async def test_a_reply_cut_by_the_output_limit_says_so(real):
    with trio.fail_after(120):
        request = ModelRequest([user_message("Count from 1 to 100 in words.")], options={"max_tokens": 3})
        assert (await real.reply(request, Draft())).stop_reason == "length"


async def test_a_request_that_is_too_long_is_known_as_such(real):
    with trio.fail_after(120), pytest.raises(ModelError) as caught:
        await real.reply(ModelRequest([user_message("word " * 20_000)]), Draft())
    assert caught.value.failure.kind == "context_overflow"


async def test_an_odd_history_is_taken_by_a_real_server(real):
    """Half a reply, arguments that are no JSON, ids that are empty, a result without a call: nothing it refuses."""
    half = AssistantMessage((Text("I loo"), ToolCall("", "list_files", '{"pa'), ToolCall("", "a.b", "")), "aborted")
    stray = ToolResult("", "read_file", (Text("?"),))
    history = [user_message("List the files."), half, user_message("Go on."), stray, AssistantMessage((Text(" "),))]
    request = ModelRequest([*history, user_message("Say yes.")], INSTRUCTIONS, TOOLS, options={"max_tokens": 20})
    with trio.fail_after(120):
        assert (await real.reply(request, Draft())).stop_reason in ("stop", "length", "tool_use")
