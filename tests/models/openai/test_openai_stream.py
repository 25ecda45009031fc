"""Replies of a Chat Completions server, read off a real connection."""

from __future__ import annotations

import gc
import json
from typing import Any

import attrs
import pytest
import trio

from edgewise.adapters.models.openai import OpenAIModel
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import ModelError
from edgewise.statemachine.messages import AssistantMessage, Text, Thinking, ToolCall, Usage, user_message
from edgewise.statemachine.ports import ModelRequest

ASKED = ModelRequest([user_message("hello")])


@pytest.fixture
def model(server):
    return OpenAIModel("m", base_url=server.url, api_key="k")


async def reply(model: OpenAIModel, request: ModelRequest = ASKED, draft: Draft | None = None) -> AssistantMessage:
    with trio.fail_after(10):
        return await model.reply(request, draft or Draft())


async def failure(model: OpenAIModel, request: ModelRequest = ASKED, draft: Draft | None = None):
    with pytest.raises(ModelError) as caught:
        await reply(model, request, draft)
    return caught.value.failure


def call_delta(server, index: int | None = None, id: str | None = None, name: str | None = None, arguments: Any = None):
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    call: dict[str, Any] = {"function": function}
    if index is not None:
        call["index"] = index
    if id is not None:
        call["id"] = id
    return server.delta(tool_calls=[call])


async def test_text_streams_in_as_it_comes(server, model):
    heard = []
    server.will_stream(server.delta(content="Hel"), server.delta(content="lo"), server.delta("stop"))
    got = await reply(model, draft=Draft(lambda *delta: heard.append(delta)))
    assert got == AssistantMessage((Text("Hello"),), "stop", model="openai:m")
    assert heard == [("text", "Hel", 0), ("text", "lo", 0)]


async def test_a_delta_is_heard_before_the_next_one_was_sent(server, model):
    first = trio.Event()
    server.will_answer(
        server.event(server.delta(content="one")), first.wait, server.event(server.delta("stop", content=" two"))
    )
    got = await reply(model, draft=Draft(lambda kind, text, block: first.set()))
    assert got.text == "one two"


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
async def test_a_stream_split_at_every_byte_gives_the_same_reply(server, model, ending):
    body = (
        b": ping\n\nevent: message\nid: 7\nretry: 5\ndata: "
        + json.dumps(server.delta(content="größer 😀")).encode()
        + b"\n\n:\n\ndata:"
        + json.dumps(server.delta("stop"), ensure_ascii=False).encode()
        + b"\n\ndata: [DONE]\n\n"
    ).replace(b"\n", ending)
    server.will_answer(body, split=1)
    assert (await reply(model)).text == "größer 😀"


async def test_a_character_split_between_chunks_is_put_together(server, model):
    body = json.dumps(server.delta("stop", content="äöü😀"), ensure_ascii=False).encode()
    server.will_answer(b"data: " + body + b"\n\ndata: [DONE]\n\n", split=1)
    assert (await reply(model)).text == "äöü😀"


async def test_gzip_is_unpacked(server, model):
    server.will_stream(server.delta(content="packed"), server.delta("stop"), gzipped=True)
    assert (await reply(model)).text == "packed"


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "TEXT/EVENT-STREAM; charset=utf-8"])
async def test_a_stream_by_another_content_type_is_read(server, model, content_type):
    server.will_stream(server.delta("stop", content="fine"), content_type=content_type)
    assert (await reply(model)).text == "fine"


async def test_a_server_that_does_not_stream_is_understood(server, model):
    message = {"role": "assistant", "content": "whole", "tool_calls": [{"id": "a", "function": {"name": "f"}}]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 3}}
    server.will_answer(json.dumps(body).encode(), content_type="application/json")
    got = await reply(model)
    assert got == AssistantMessage((Text("whole"), ToolCall("a", "f", "")), "tool_use", Usage(3), "openai:m")


async def test_odd_chunks_are_tolerated(server, model):
    server.will_stream(
        {"choices": []},
        {},
        {"choices": None},
        {"choices": [{"index": 0, "delta": None, "finish_reason": None}]},
        {"choices": [{"delta": {"role": "assistant", "content": None, "tool_calls": None}, "finish_reason": ""}]},
        {"choices": [None, {"delta": {"content": "still", "tool_calls": [None, {"function": None}][:1]}}]},
        server.delta(content=[{"type": "text", "text": " here"}]),
        server.delta("stop"),
    )
    assert (await reply(model)).content == (Text("still here"),)


async def test_of_several_choices_the_first_counts(server, model):
    server.will_stream(
        server.delta(content="A"),
        server.delta(index=1, content="B"),
        server.delta("length", index=1),
        server.delta("stop", content="a"),
    )
    got = await reply(model)
    assert (got.text, got.stop_reason) == ("Aa", "stop")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_becomes_thinking(server, model, field):
    server.will_stream(server.delta(**{field: "hm"}), server.delta(**{field: "m"}), server.delta("stop", content="So."))
    assert (await reply(model)).content == (Thinking("hmm"), Text("So."))


async def test_reasoning_sent_under_both_names_is_read_once(server, model):
    server.will_stream(server.delta(reasoning="hm", reasoning_content="hm"), server.delta("stop", content="So."))
    assert (await reply(model)).content == (Thinking("hm"), Text("So."))


async def test_an_image_in_the_reply_leaves_a_note(server, model):
    server.will_stream(server.delta("stop", content="Look: ", images=[{"image_url": {"url": "data:..."}}]))
    assert (await reply(model)).text == "Look: [The model sent an image here, which is not kept.]"


async def test_calls_are_assembled_from_deltas(server, model):
    server.will_stream(
        server.delta(content="I look."),
        call_delta(server, 0, "a", "list_files", ""),
        call_delta(server, 0, arguments='{"pa'),
        call_delta(server, 0, arguments='th": "."}'),
        server.delta("tool_calls"),
    )
    got = await reply(model)
    assert got.content == (Text("I look."), ToolCall("a", "list_files", '{"path": "."}'))
    assert got.stop_reason == "tool_use"


async def test_parallel_calls_may_be_interleaved(server, model):
    server.will_stream(
        call_delta(server, 0, "a", "f", '{"n":'),
        call_delta(server, 1, "b", "g", '{"m":'),
        call_delta(server, 0, arguments=" 1}"),
        call_delta(server, 1, arguments=" 2}"),
        server.delta("tool_calls"),
    )
    assert (await reply(model)).tool_calls == (ToolCall("a", "f", '{"n": 1}'), ToolCall("b", "g", '{"m": 2}'))


@pytest.mark.parametrize("index", [None, 0])
async def test_calls_with_missing_or_shared_index_are_not_merged(server, model, index):
    server.will_stream(
        call_delta(server, index, "a", "f", '{"n":'),
        call_delta(server, index, arguments=" 1}"),
        call_delta(server, index, "b", "f", '{"n":'),
        call_delta(server, index, arguments=" 2}"),
        server.delta("tool_calls"),
    )
    assert (await reply(model)).tool_calls == (ToolCall("a", "f", '{"n": 1}'), ToolCall("b", "f", '{"n": 2}'))


async def test_calls_without_any_id_are_kept_apart(server, model):
    calls = [{"function": {"name": "f", "arguments": '{"n": 1}'}}, {"function": {"name": "f", "arguments": '{"n": 2}'}}]
    server.will_stream(server.delta(tool_calls=calls), server.delta("tool_calls"))
    assert [call.arguments for call in (await reply(model)).tool_calls] == ['{"n": 1}', '{"n": 2}']


async def test_arguments_as_an_object_become_text(server, model):
    server.will_stream(call_delta(server, 0, "a", "f", {"n": 1}), server.delta("tool_calls"))
    assert (await reply(model)).tool_calls == (ToolCall("a", "f", '{"n": 1}'),)


async def test_the_older_function_call_is_understood(server, model):
    server.will_stream(
        server.delta(function_call={"name": "f", "arguments": '{"n"'}),
        server.delta(function_call={"arguments": ": 1}"}),
        server.delta("function_call"),
    )
    got = await reply(model)
    assert (got.tool_calls, got.stop_reason) == ((ToolCall("", "f", '{"n": 1}'),), "tool_use")


@pytest.mark.parametrize(
    ("finish", "stop_reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "content_filter"),
        ("insufficient_system_resource", "insufficient_system_resource"),
    ],
)
async def test_finish_reasons_are_mapped_and_unknown_ones_kept(server, model, finish, stop_reason):
    server.will_stream(server.delta(finish, content="x"))
    assert (await reply(model)).stop_reason == stop_reason


async def test_calls_are_kept_whatever_the_stop_reason_says(server, model):
    server.will_stream(call_delta(server, 0, "a", "f", "{}"), server.delta("stop"))
    got = await reply(model)
    assert (len(got.tool_calls), got.stop_reason) == (1, "stop")


async def test_a_refusal_keeps_its_words_and_says_what_it_is(server, model):
    server.will_stream(server.delta(refusal="I can't "), server.delta(refusal="do that."), server.delta("stop"))
    got = await reply(model)
    assert (got.text, got.stop_reason) == ("I can't do that.", "refusal")


async def test_the_last_usage_counts_and_none_is_added_up(server, model):
    details = {"prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2}}
    server.will_stream(
        {**server.delta(content="a"), "usage": {"prompt_tokens": 10, "completion_tokens": 1}},
        {**server.delta("stop", content="b"), "usage": {"prompt_tokens": 10, "completion_tokens": 2}},
        {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, **details}},
    )
    assert (await reply(model)).usage == Usage(10, 2, 6, 2)


async def test_no_usage_and_odd_usage_do_no_harm(server, model):
    server.will_stream({**server.delta("stop", content="a"), "usage": None})
    server.will_stream(
        {**server.delta("stop", content="a"), "usage": {"prompt_tokens": None, "completion_tokens": "9"}}
    )
    assert (await reply(model)).usage == (await reply(model)).usage == Usage()


async def test_the_tools_own_names_come_back(server, model):
    @attrs.frozen
    class Spec:
        name: str
        description: str = ""
        parameters: dict = attrs.field(factory=lambda: {"type": "object", "properties": {}})

    server.will_stream(call_delta(server, 0, "a", "files_read", "{}"), server.delta("tool_calls"))
    got = await reply(model, attrs.evolve(ASKED, tools=(Spec("files.read"),)))
    assert server.requests[0]["tools"][0]["function"]["name"] == "files_read"
    assert got.tool_calls[0].name == "files.read"


# How a stream ends.


async def test_a_finish_reason_is_an_end_even_without_done(server, model):
    server.will_answer(server.event(server.delta("stop", content="all")))
    assert (await reply(model)).text == "all"


async def test_done_is_an_end_even_without_a_finish_reason(server, model):
    server.will_stream(server.delta(content="all"))
    server.will_stream(call_delta(server, 0, "a", "f", "{}"))
    assert [(await reply(model)).stop_reason, (await reply(model)).stop_reason] == ["stop", "tool_use"]


async def test_a_stream_without_its_end_is_a_retryable_protocol_failure(server, model):
    draft = Draft()
    server.will_answer(server.event(server.delta(content="half a rep")))
    got = await failure(model, draft=draft)
    assert (got.kind, got.retryable) == ("protocol", True)
    assert draft.finish("error").text == "half a rep"


async def test_an_empty_stream_is_no_reply(server, model):
    server.will_answer()
    assert (await failure(model)).kind == "protocol"


async def test_a_stream_cut_in_mid_json_is_a_retryable_protocol_failure(server, model):
    whole = server.event(server.delta(content="never seen"))
    server.will_answer(server.event(server.delta(content="seen")), whole[:-30])
    server.will_answer(server.event(server.delta(content="seen")), whole[:-30] + b"\n\n")
    server.will_answer(server.event(server.delta(content="seen")), whole[:-30], server.cut)
    for _ in range(3):
        draft = Draft()
        got = await failure(model, draft=draft)
        assert (got.kind, got.retryable) == ("protocol", True)
        assert draft.finish("error").text == "seen"


async def test_a_connection_that_breaks_after_the_finish_reason_loses_only_the_usage(server, model):
    server.will_answer(server.event(server.delta("stop", content="whole")), b'data: {"usage": {"prom', server.cut)
    got = await reply(model)
    assert (got.text, got.usage) == ("whole", Usage())


async def test_an_error_in_the_middle_of_a_stream_is_a_failure(server, model):
    draft = Draft()
    server.will_answer(
        server.event(server.delta(content="so far")),
        server.event({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}),
        server.event(server.delta("stop")),
    )
    got = await failure(model, draft=draft)
    assert (got.kind, got.message, got.retryable) == ("rate_limited", "Rate limit reached", True)
    assert draft.finish("error").text == "so far"


async def test_a_finish_reason_of_error_is_a_failure(server, model):
    server.will_stream(server.delta("error", content="so far"))
    got = await failure(model)
    assert (got.kind, got.retryable) == ("overloaded", True)


async def test_a_server_that_goes_on_after_done_does_not_hold_the_reply(server, model):
    server.will_answer(server.event(server.delta("stop", content="done")), b"data: [DONE]\n\n", trio.sleep_forever)
    assert (await reply(model)).text == "done"
    with trio.fail_after(1):
        await server.hung_up.wait()


async def test_the_connection_is_used_again(server, model):
    for _ in range(3):
        server.will_stream(server.delta("stop", content="x"))
        await reply(model)
    assert server.connections == 1


async def test_two_models_of_one_run_share_the_connection_but_not_the_key(server):
    for key in ("one", "two"):
        server.will_stream(server.delta("stop", content="x"), headers={"set-cookie": f"who={key}; Path=/"})
        await reply(OpenAIModel("m", base_url=server.url, api_key=key))
    assert server.connections == 1
    assert [headers["authorization"] for headers in server.headers] == ["Bearer one", "Bearer two"]
    assert "cookie" not in server.headers[1]


# Cancellation.


async def test_cancelling_in_mid_stream_closes_the_connection_and_keeps_what_came(server, model):
    seen = trio.Event()
    draft = Draft(lambda kind, text, block: seen.set())
    server.will_answer(server.event(server.delta(content="half")), trio.sleep_forever)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reply, model, ASKED, draft)
        await seen.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(1):
        await server.hung_up.wait()
    assert draft.finish("aborted").text == "half"


async def test_cancelling_before_the_first_byte_closes_the_connection(server, model):
    arrived = trio.Event()

    async def hang() -> None:
        arrived.set()
        await trio.sleep_forever()

    server.will_answer(hang)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reply, model)
        await arrived.wait()
        nursery.cancel_scope.cancel()
    with trio.fail_after(1):
        await server.hung_up.wait()


async def test_a_listener_that_raises_leaves_nothing_open(server, model):
    def listener(kind: str, text: str, block: int) -> None:
        raise RuntimeError("listener")

    server.will_answer(server.event(server.delta(content="half")) * 3, trio.sleep_forever)
    with pytest.raises(RuntimeError, match="listener"):
        await reply(model, draft=Draft(listener))
    with trio.fail_after(1):
        await server.hung_up.wait()
    gc.collect()  # an async generator that was left behind would warn now, and warnings are errors


def test_a_model_serves_one_trio_run_after_another(wire_server):
    serving = wire_server()
    models: list[OpenAIModel] = []

    async def main() -> str:
        async with trio.open_nursery() as nursery:
            await serving.start(nursery)
            if not models:
                models.append(OpenAIModel("m", base_url=serving.url, api_key="k"))
            serving.will_stream(serving.delta("stop", content="here"))
            text = (await reply(models[0])).text
            nursery.cancel_scope.cancel()
        return text

    assert [trio.run(main), trio.run(main)] == ["here", "here"]
    assert serving.connections == 2
    gc.collect()
