"""What reaches a Chat Completions server, as the server sees it."""

from __future__ import annotations

from typing import Any

import attrs
import httpx2
import openai
import pytest
import trio
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from edgewise.adapters.models import model as find_model
from edgewise.adapters.models.openai import OpenAIModel
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.history import History
from edgewise.statemachine.messages import (
    AssistantMessage,
    Message,
    Text,
    ToolCall,
    ToolResult,
    error_result,
    user_message,
)
from edgewise.statemachine.ports import ModelRequest


@attrs.frozen
class Spec:
    name: str
    description: str
    parameters: dict[str, Any]


LIST_FILES = Spec("list_files", "Lists files.", {"type": "object", "properties": {"path": {"type": "string"}}})
ASKED = ModelRequest([user_message("hello")])


async def ask(server, model, request: ModelRequest = ASKED) -> dict[str, Any]:
    """One exchange; gives the request as the server saw it."""
    server.will_stream(server.delta("stop", content="fine"))
    with trio.fail_after(10):
        await model.reply(request, Draft())
    return server.requests[-1]


async def test_a_request_holds_instructions_messages_and_tools_as_the_sdk_types_them(server):
    model = OpenAIModel("gpt-5-mini", base_url=server.url, api_key="secret", temperature=0)
    request = ModelRequest(History([user_message("List the files.")]), "Be brief.", (LIST_FILES,))
    assert await ask(server, model, request) == {
        "model": "gpt-5-mini",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "List the files."}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "list_files",
                    "description": "Lists files.",
                    "parameters": LIST_FILES.parameters,
                },
            }
        ],
    }
    TypeAdapter(CompletionCreateParamsStreaming).validate_python(server.requests[-1])
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["authorization"] == "Bearer secret"


async def test_results_are_in_the_next_request_in_declaration_order(server):
    model = OpenAIModel("m", base_url=server.url, api_key="k")
    calls = [{"index": n, "id": id, "function": {"name": "f", "arguments": "{}"}} for n, id in enumerate("ab")]
    server.will_stream(server.delta(tool_calls=calls), server.delta("stop"))
    history = History([user_message("go")])
    answered = await model.reply(ModelRequest(history), Draft())
    first, second = answered.tool_calls
    history = history.extended([answered, ToolResult("a", "f", (Text("one"),)), error_result(second, "no such file")])
    sent = await ask(server, model, ModelRequest(history))
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in sent["messages"][2:]] == [
        (first.id, "one"),
        (second.id, "Error: no such file"),
    ]


async def test_ids_and_every_earlier_byte_stay_the_same_as_the_history_grows(server):
    model = OpenAIModel("m", base_url=server.url, api_key="k")
    history = History([user_message("go")])
    for turn in range(4):
        await ask(server, model, ModelRequest(history, "Be brief."))
        twins = (ToolCall("", "f", "{}"), ToolCall("same", "f", "{}"), ToolCall("same", "f", "{}"))
        batch: list[Message] = [AssistantMessage(twins), *(ToolResult("", "f", (Text(str(turn)),)) for _ in twins)]
        history = history.extended(batch)
    for earlier, later in zip(server.raw, server.raw[1:], strict=False):
        messages = earlier[: earlier.index(b'],"stream":true')]
        assert later.startswith(messages)
    messages = server.requests[-1]["messages"]
    ids = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert len(ids) == 9
    assert len(set(ids)) == 9
    assert ids == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


async def test_arguments_that_are_no_json_do_not_break_the_next_request(server):
    model = OpenAIModel("m", base_url=server.url, api_key="k")
    call = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"path": "a'}}
    server.will_stream(server.delta(tool_calls=[call]), server.delta("tool_calls"))
    broken = await model.reply(ASKED, Draft())
    assert broken.tool_calls[0].arguments == '{"path": "a'
    history = [user_message("go"), broken, error_result(broken.tool_calls[0], "The arguments are no JSON.")]
    sent = await ask(server, model, ModelRequest(history))
    assert sent["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"


async def test_lone_surrogates_never_reach_the_wire(server):
    model = OpenAIModel("m", base_url=server.url, api_key="k")
    tools = (attrs.evolve(LIST_FILES, description="\udcff"),)
    sent = await ask(server, model, ModelRequest([user_message("a\ud83d")], "b\udfff", tools))
    assert [message["content"] for message in sent["messages"]] == ["b\ufffd", "a\ufffd"]


async def test_options_of_the_request_come_over_those_of_the_model_and_none_takes_one_out(server):
    model = OpenAIModel("m", base_url=server.url, api_key="k", temperature=0, seed=7, top_k=40, stream_options=None)
    sent = await ask(server, model, attrs.evolve(ASKED, options={"temperature": 1, "seed": None}))
    assert {"temperature": 1, "top_k": 40}.items() <= sent.items()
    assert not {"seed", "stream_options"} & sent.keys()


async def test_headers_query_and_body_can_be_added_as_with_the_sdk(server):
    extra = {"extra_headers": {"x-team": "a"}, "extra_query": {"v": "2"}, "extra_body": {"top_k": 1}}
    sent = await ask(server, OpenAIModel("m", base_url=server.url, api_key="k", **extra))
    assert server.headers[0]["x-team"] == "a"
    assert server.paths == ["/v1/chat/completions?v=2"]
    assert sent["top_k"] == 1
    assert not extra.keys() & sent.keys()


async def test_options_about_tools_are_left_out_when_there_are_none(server):
    model = OpenAIModel("m", base_url=server.url, api_key="k", tool_choice="auto", parallel_tool_calls=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & (await ask(server, model)).keys()
    assert (await ask(server, model, attrs.evolve(ASKED, tools=(LIST_FILES,))))["tool_choice"] == "auto"


async def test_a_blind_model_is_sent_notes(server):
    from edgewise.statemachine.messages import Image, UserMessage

    request = ModelRequest([UserMessage((Image("aGk=", "image/png"),))])
    sent = await ask(server, OpenAIModel("m", base_url=server.url, api_key="k", images=False), request)
    assert "cannot see" in sent["messages"][0]["content"]


async def test_a_server_at_a_url_of_its_own_needs_no_key(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await ask(server, find_model("openai:qwen2.5", base_url=server.url))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    model = find_model("openai:qwen2.5:7b")
    await ask(server, model)
    assert model.name == "openai:qwen2.5:7b"
    assert [request["model"] for request in server.requests] == ["qwen2.5", "qwen2.5:7b"]


async def test_the_key_is_looked_up_when_it_is_needed(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIModel("m", base_url=server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "later")
    await ask(server, model)
    assert server.headers[0]["authorization"] == "Bearer later"


async def test_a_configured_client_is_used_as_it_is_and_stays_open(server):
    async with openai.AsyncOpenAI(
        api_key="mine", base_url=server.url, max_retries=5, default_headers={"x-from": "vault"}
    ) as client:
        model = OpenAIModel("m", client=client)
        await ask(server, model)
        assert server.headers[0]["x-from"] == "vault"
        server.will_fail(500, {"error": {"message": "down"}})
        with pytest.raises(Exception, match="down"):
            await model.reply(ASKED, Draft())
        assert len(server.requests) == 2  # the client's own retries are off
        assert not client.is_closed()


async def test_azures_paths_are_the_clients_affair(server):
    async with openai.AsyncAzureOpenAI(
        api_key="k", azure_endpoint=server.url.removesuffix("/v1"), api_version="2024-10-21"
    ) as client:
        await ask(server, OpenAIModel("my-deployment", client=client))
    assert server.paths == ["/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"]
    assert server.headers[0]["api-key"] == "k"


async def test_a_client_with_a_transport_of_its_own_is_used(server):
    async with (
        httpx2.AsyncClient(headers={"x-proxy": "1"}, timeout=9) as http,
        openai.AsyncOpenAI(api_key="k", base_url=server.url, http_client=http) as client,
    ):
        await ask(server, OpenAIModel("m", client=client))
    assert server.headers[0]["x-proxy"] == "1"


async def test_nothing_is_made_before_it_is_needed(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert repr(OpenAIModel("gpt-5-mini")) == "<OpenAIModel openai:gpt-5-mini>"
