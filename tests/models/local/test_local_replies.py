"""The embedded model at work: protocol facts, since what half a billion parameters say is another matter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import jsonschema_rs
import pytest
import trio

from edgewise.adapters.models.local import LocalModel, local
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import ModelError
from edgewise.statemachine.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, user_message
from edgewise.statemachine.ports import ModelRequest

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("one_thread")]


@attrs.frozen
class Spec:
    name: str
    description: str
    parameters: Mapping[str, Any]


PATH = {"type": "string"}
LIST = Spec("list_files", "List the files in the workspace.", {"type": "object", "properties": {"path": PATH}})
READ = Spec("read_file", "Read a file.", {"type": "object", "properties": {"path": PATH}, "required": ["path"]})
SET = Spec(
    "set_light",
    "Set the light of a room.",
    {
        "type": "object",
        "properties": {
            "room": {"enum": ["kitchen", "hall"]},
            "level": {"type": "integer", "minimum": 0},
            "colours": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        },
        "required": ["room", "level", "colours"],
        "additionalProperties": False,
    },
)


LISTED = ToolCall("a", "list_files", "{}")


def asks(messages: Sequence[Message] | str, *tools: Spec, id: str = "t0.model", **options: Any) -> ModelRequest:
    said = [user_message(messages)] if isinstance(messages, str) else messages
    instructions = "You answer about the files of this workspace."
    return ModelRequest(said, instructions, tools, options, id)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model(local_weights: Path) -> LocalModel:
    return local(context=2048)


async def reply(model: LocalModel, request: ModelRequest) -> AssistantMessage:
    return await model.reply(request, Draft())


async def test_it_lists_the_files_and_names_them(model: LocalModel) -> None:
    history: list[Message] = [user_message("List the files in the workspace")]
    first = await reply(model, asks(history, LIST, READ))
    assert [call.name for call in first.tool_calls] == ["list_files"]
    assert (first.stop_reason, first.model) == ("tool_use", "local:qwen2.5-coder-0.5b")
    assert first.usage.input_tokens > 100 and first.usage.output_tokens > 5
    call = first.tool_calls[0]
    history += [first, ToolResult(call.id, call.name, (Text("README.md\nsrc/index.ts"),))]
    second = await reply(model, asks(history, LIST, READ, id="t1.model"))
    assert second.tool_calls == () and second.stop_reason == "stop"
    assert "README.md" in second.text and "src/index.ts" in second.text
    assert second.usage.cache_read_tokens > 100  # the beginning of the prompt was not read again


async def test_what_streams_is_what_is_returned(model: LocalModel) -> None:
    for prompt, kind in (("Read the file README.md", "arguments"), ("Hello!", "text")):
        heard: list[tuple[str, str]] = []
        draft = Draft(lambda kind, text, _, heard=heard: heard.append((kind, text)))  # type: ignore[misc]
        message = await model.reply(asks(prompt, LIST, READ), draft)
        whole = "".join(text for _, text in heard)
        assert {kind for kind, _ in heard} == {kind}
        assert whole == (message.text if kind == "text" else message.tool_calls[0].arguments)
        assert len(heard) > 1
        assert draft.finish(message.stop_reason) == message


async def test_the_same_request_gives_the_same_reply_and_another_gives_another_id(model: LocalModel) -> None:
    request = asks("List the files in the workspace", LIST, READ)
    one, two = await reply(model, request), await reply(model, request)
    assert one.tool_calls == two.tool_calls
    other = await reply(model, asks(request.messages, LIST, READ, id="t7.model"))
    longer = await reply(model, asks([user_message("Hello"), *request.messages], LIST, READ))
    ids = {message.tool_calls[0].id for message in (one, other, longer) if message.tool_calls}
    assert len(ids) >= 2 and "" not in ids


async def test_arguments_fit_the_schema(model: LocalModel) -> None:
    message = await reply(model, asks("Set the light in the kitchen to 40, red and blue.", SET))
    (call,) = message.tool_calls
    jsonschema_rs.validate(SET.parameters, json.loads(call.arguments))


async def test_a_call_is_not_made_twice(model: LocalModel) -> None:
    history: list[Message] = [user_message("Read the file README.md. Read it again and again.")]
    made = set()
    for turn in range(4):
        message = await reply(model, asks(history, READ, id=f"t{turn}.model"))
        history.append(message)
        for call in message.tool_calls:
            assert (call.name, call.arguments) not in made
            made.add((call.name, call.arguments))
            history.append(ToolResult(call.id, call.name, (Text("Read it again."),)))
        if not message.tool_calls:
            break
    assert made


async def test_without_tools_it_speaks_plainly(model: LocalModel) -> None:
    message = await reply(model, asks("Say hello."))
    assert message.text and message.tool_calls == () and message.stop_reason == "stop"


async def test_after_calls_and_without_tools_it_answers(model: LocalModel) -> None:
    call = AssistantMessage((LISTED,))
    result = ToolResult("a", "list_files", (Text("README.md"),))
    message = await reply(model, asks([user_message("List the files"), call, result]))
    assert message.text and not message.text.startswith("{") and message.tool_calls == ()


async def test_a_reply_that_grows_too_long_is_cut(model: LocalModel) -> None:
    message = await reply(model, asks("Tell a long story.", max_tokens=8))
    assert message.stop_reason == "length" and message.usage.output_tokens == 8


async def test_a_conversation_that_is_too_long_is_an_overflow(model: LocalModel) -> None:
    for length in (1950, 30_000):  # with no room for a reply, and beyond the context altogether
        with pytest.raises(ModelError) as caught:
            await reply(model, asks("a " * length))
        assert caught.value.failure.kind == "context_overflow" and not caught.value.failure.retryable


async def test_cancelling_a_reply_keeps_what_was_said(model: LocalModel) -> None:
    speaking = trio.Event()
    draft = Draft(lambda kind, text, number: speaking.set() if len(draft.finish().text) > 20 else None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.reply, asks("Count from 1 to 1000, a line for each.", max_tokens=2000), draft)
        await speaking.wait()
        begun = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - begun < 1
    partial = draft.finish("aborted")
    assert len(partial.text) > 20
    with trio.fail_after(15):  # the rest of these numbers would take a minute
        assert (await reply(model, asks("Say hello."))).text
    assert draft.finish("aborted") == partial  # nothing was left running that writes on


async def test_cancelling_while_the_prompt_is_read_does_not_wait_for_it(model: LocalModel) -> None:
    begun = trio.current_time()
    with trio.move_on_after(0.3):
        await reply(model, asks("Tell me about this: " + "one two three " * 400))
        raise AssertionError("it was to be cancelled")
    assert trio.current_time() - begun < 1.3
    assert (await reply(model, asks("Say hello."))).text


async def test_one_speaks_at_a_time_and_waiting_can_be_cancelled(model: LocalModel) -> None:
    speaking = trio.Event()
    draft, second, third = Draft(lambda *delta: speaking.set()), Draft(), Draft()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(model.reply, asks("Tell a very long story.", max_tokens=60), draft)
        await speaking.wait()
        with trio.move_on_after(0.05) as waiting:
            await model.reply(asks("Say hello."), second)
        nursery.start_soon(local(context=2048).reply, asks("Say hello."), third)
    assert waiting.cancelled_caught and second.empty
    assert draft.finish().text and third.finish().text


async def test_a_listener_that_raises_fails_the_reply_and_nothing_else(model: LocalModel) -> None:
    def listener(*delta: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await model.reply(asks("Say hello."), Draft(listener))
    assert (await reply(model, asks("Say hello."))).text


async def test_options_that_it_does_not_have_are_named(model: LocalModel) -> None:
    with pytest.raises(ModelError, match="no option 'top_k'; there are: temperature, seed, max_tokens"):
        await reply(model, asks("Say hello.", top_k=3))


async def test_a_file_that_is_missing_or_no_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"there is no model file .*none\.gguf"):
        await reply(local(str(tmp_path / "none.gguf")), asks("Hi"))
    for content, why in ((b"hello", "is not a GGUF file"), (b"GGUF" + bytes(100), "llama.cpp cannot load")):
        (tmp_path / "some.gguf").write_bytes(content)
        with pytest.raises(ModelError, match=why):
            await reply(local(str(tmp_path / "some.gguf")), asks("Hi"))
    monkeypatch.setenv("EDGEWISE_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"edgewise model pull qwen2\.5-coder-0\.5b") as caught:
        await reply(local(pull=False), asks("Hi"))
    assert caught.value.failure.kind == "not_found"


CUT_SHORT = """
import trio
from edgewise.adapters.models.local import local
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.messages import user_message
from edgewise.statemachine.ports import ModelRequest

async def main():
    with trio.move_on_after(2):
        await local(context=2048).reply(ModelRequest([user_message("one two three " * 400)]), Draft())

trio.run(main)
print("left")
"""


def test_a_program_that_ends_in_the_middle_of_a_reply_ends_quietly(local_weights: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CUT_SHORT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")
