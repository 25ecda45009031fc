"""Histories as Chat Completions messages: always valid, stable, and each message computed once."""

from __future__ import annotations

import gc
import json
import re
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam
from pydantic import TypeAdapter

from edgewise.adapters.models.projection import NO_OUTPUT, NO_RESULT, ChatProjection, wire_name, wire_tools
from edgewise.statemachine.errors import ModelError
from edgewise.statemachine.history import History
from edgewise.statemachine.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    error_result,
    user_message,
)

PICTURE = Image("aGk=", "image/png")
MESSAGES: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
TOOLS: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionToolUnionParam])


def project(*messages: Message, instructions: str = "", images: bool = True) -> list[dict[str, Any]]:
    return ChatProjection(images).messages(list(messages), instructions)


def asks(*calls: ToolCall, text: str = "", stop_reason: str = "tool_use") -> AssistantMessage:
    return AssistantMessage((*([Text(text)] if text else []), *calls), stop_reason)


def result(call: ToolCall, text: str = "ok") -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),))


A, B, C = (ToolCall(id, "f", "{}") for id in "abc")


def test_the_checkpoint_of_an_agent_looks_as_the_wire_wants_it():
    listing = ToolCall("call_1", "list_files", '{"path": "."}')
    assert project(
        user_message("List the files."),
        asks(listing, text="I look."),
        result(listing, "README.md"),
        AssistantMessage((Text("There is a README.md."),)),
        instructions="Be brief.",
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "List the files."},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "list_files", "arguments": '{"path": "."}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "README.md"},
        {"role": "assistant", "content": "There is a README.md."},
    ]


@pytest.mark.parametrize("blank", ["", "  \n\t "])
def test_what_says_nothing_is_left_out(blank):
    said = UserMessage((Text("a"), Text(blank), Text("b")))
    wire = project(
        UserMessage((Text(blank),)),
        said,
        AssistantMessage((Text(blank),), "aborted"),
        AssistantMessage((Thinking("hm", "sig"),)),
        AssistantMessage(()),
        instructions=blank,
    )
    assert wire == [{"role": "user", "content": "a\nb"}]
    assert project(asks(A, text=blank), result(A))[0]["content"] is None


def test_a_partial_reply_keeps_its_words_and_its_calls_are_answered():
    half = asks(ToolCall("a", "f", '{"path": "sr'), text="I was about to", stop_reason="aborted")
    wire = project(user_message("x"), half, user_message("go on"))
    assert wire[1]["content"] == "I was about to"
    assert wire[1]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert wire[2:] == [
        {"role": "tool", "tool_call_id": "a", "content": NO_RESULT},
        {"role": "user", "content": "go on"},
    ]


def test_results_without_a_call_are_dropped():
    wire = project(result(A), user_message("x"), asks(A), result(A), result(B), user_message("y"), result(A))
    assert [message["role"] for message in wire] == ["user", "assistant", "tool", "user"]


def test_results_are_paired_by_position_whatever_their_ids_say():
    twins = [ToolCall("", "f", "{}"), ToolCall("", "g", "{}"), ToolCall("", "f", "{}")]
    wire = project(asks(*twins), *(ToolResult("", "?", (Text(text),)) for text in "123"))
    assert [message["content"] for message in wire[1:]] == ["1", "2", "3"]
    assert [message["tool_call_id"] for message in wire[1:]] == [call["id"] for call in wire[0]["tool_calls"]]
    swapped = project(asks(A, B), ToolResult("b", "f", (Text("1"),)), ToolResult("a", "f", (Text("2"),)))
    assert [(message["tool_call_id"], message["content"]) for message in swapped[1:]] == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    ("given_results", "contents"),
    [
        ([], [NO_RESULT] * 3),
        ([result(A, "a")], ["a", NO_RESULT, NO_RESULT]),
        ([result(C, "c")], [NO_RESULT, NO_RESULT, "c"]),
        ([result(A, "a"), result(C, "c")], ["a", NO_RESULT, "c"]),
        ([ToolResult("", "f", (Text("?"),))], ["?", NO_RESULT, NO_RESULT]),
    ],
)
def test_when_results_are_missing_ids_say_which(given_results, contents):
    wire = project(asks(A, B, C), *given_results, user_message("next"))
    assert [message["content"] for message in wire[1:4]] == contents
    assert wire[4] == {"role": "user", "content": "next"}


def test_a_failed_call_says_so_once():
    assert project(asks(A), error_result(A, "No such file."))[1]["content"] == "Error: No such file."
    assert project(asks(A), error_result(A, "error: no such file"))[1]["content"] == "error: no such file"
    assert project(asks(A), error_result(A, " "))[1]["content"] == "Error: the tool failed and said nothing"


def test_an_empty_result_says_that_it_is_empty():
    assert project(asks(A), ToolResult("a", "f", ()))[1]["content"] == NO_OUTPUT


def test_pictures_of_a_user_go_along():
    wire = project(UserMessage((Text("What is this?"), PICTURE)))
    assert wire[0]["content"] == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]


def test_pictures_in_results_follow_all_results_of_the_turn():
    wire = project(asks(A, B), ToolResult("a", "f", (Text("seen"), PICTURE)), result(B), user_message("next"))
    assert [message["role"] for message in wire] == ["assistant", "tool", "tool", "user", "user"]
    assert wire[1]["content"].startswith("seen\n[1 image(s)")
    assert [part["type"] for part in wire[3]["content"]] == ["text", "image_url"]
    assert "(a)" in wire[3]["content"][0]["text"]


def test_a_blind_model_gets_notes_for_pictures():
    wire = project(UserMessage((PICTURE,)), asks(A), ToolResult("a", "f", (PICTURE,)), images=False)
    note = "[an image (image/png) that this model cannot see]"
    assert [message["content"] for message in wire] == [note, None, note]


@pytest.mark.parametrize(
    "arguments", ["", "null", '{"a": ', "[1]", '"{\\"a\\": 1}"', "{'a': 1}", '{"a": NaN}', "\ud800"]
)
def test_arguments_on_the_wire_are_always_the_json_of_an_object(arguments):
    wire = project(asks(ToolCall("a", "f", arguments)))
    sent = wire[0]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent, parse_constant=pytest.fail), dict)


def test_ids_are_unique_legal_and_kept_where_they_can_be():
    first = asks(
        ToolCall("a", "f"), ToolCall("a", "f"), ToolCall("", "f"), ToolCall("x" * 41, "f"), ToolCall("é|1", "f")
    )
    again = asks(ToolCall("a", "f"), ToolCall("call_0_1", "f"), ToolCall("toolu_01-A", "f"))
    ids = [
        [call["id"] for call in message["tool_calls"]] for message in project(first, again) if "tool_calls" in message
    ]
    assert ids == [["a", "call_0_1", "call_0_2", "call_0_3", "call_0_4"], ["call_1_0", "call_1_1", "toolu_01-A"]]


def test_an_id_that_looks_like_one_of_ours_is_told_apart():
    wire = project(asks(ToolCall("call_1_0", "f")), asks(ToolCall("", "f")))
    assert [message["tool_calls"][0]["id"] for message in wire if "tool_calls" in message] == ["call_1_0", "call_1_0_1"]


def test_names_are_made_legal():
    assert [wire_name(name) for name in ("read_file", "files.read", "a b/ü", "", "x" * 70, "\ud800")] == [
        "read_file",
        "files_read",
        "a_b__",
        "unnamed",
        "x" * 64,
        "_",
    ]


@attrs.frozen
class Spec:
    name: str
    description: str = ""
    parameters: Any = attrs.field(factory=lambda: {"type": "object", "properties": {}})


def test_tools_are_offered_as_the_sdk_types_them_and_their_names_come_back():
    wire, names = wire_tools(
        [
            Spec("files.read", "Reads\ud800."),
            Spec("files_read"),
            Spec("x" * 70, parameters={"type": "object", "properties": {"\udfff": {"enum": ("a", "b")}}}),
        ]
    )
    exhaust(TOOLS.validate_python(wire))
    json.dumps(wire, ensure_ascii=False).encode()
    assert names == {"files_read": "files.read", "files_read_2": "files_read", "x" * 64: "x" * 70}


def test_a_schema_that_is_no_json_names_the_tool():
    with pytest.raises(ModelError, match="'broken'"):
        wire_tools([Spec("broken", parameters={"default": object()})])


# For every history.

anything = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(
    ["", " ", "a", "Error", "\ud83d"]
)
ids = st.sampled_from(["", "a", "b", "call_0_0", "call_1_0", "x" * 41, "é"]) | anything
texts = st.builds(Text, anything)
pictures = st.builds(Image, st.just("aGk="), st.sampled_from(["image/png", "\ud800"]))
calls = st.builds(
    ToolCall, ids, st.sampled_from(["f", "g.h", ""]) | anything, st.sampled_from(["{}", "", "[", '{"a":1}']) | anything
)
users = st.builds(UserMessage, st.lists(texts | pictures, max_size=3).map(tuple))
replies = st.builds(
    AssistantMessage,
    st.lists(texts | calls | st.builds(Thinking, anything), max_size=4).map(tuple),
    st.sampled_from(["stop", "tool_use", "length", "aborted", "error"]),
)
results = st.builds(ToolResult, ids, anything, st.lists(texts | pictures, max_size=2).map(tuple), st.booleans())
histories = st.lists(users | replies | results, max_size=12)


@st.composite
def machine_histories(draw: st.DrawFn) -> list[list[Message]]:
    """Batches as the machine makes them: each reply with exactly its results."""
    batches: list[list[Message]] = []
    for message in draw(st.lists(users | replies, max_size=8)):
        batch: list[Message] = [message]
        if isinstance(message, AssistantMessage):
            batch += [attrs.evolve(draw(results), call_id=call.id, name=call.name) for call in message.tool_calls]
        batches.append(batch)
    return batches


def exhaust(value: object) -> None:
    """The SDK's types hold iterables, which pydantic checks only while they are read."""
    if isinstance(value, dict):
        for item in value.values():
            exhaust(item)
    elif isinstance(value, list | Iterator) or type(value).__name__ == "ValidatorIterator":
        for item in value:  # type: ignore[attr-defined]
            exhaust(item)


def check(wire: Sequence[dict[str, Any]]) -> None:
    """What a server refuses must not be there."""
    json.dumps(wire, ensure_ascii=False, allow_nan=False).encode()
    exhaust(MESSAGES.validate_python(list(wire), strict=True))
    seen: set[str] = set()
    due: list[str] = []
    for message in wire:
        if message["role"] == "tool":
            assert message["tool_call_id"] == due.pop(0)
            assert message["content"].strip()
            continue
        assert not due
        asked = message.get("tool_calls", [])
        assert asked or message["content"]
        for call in asked:
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", call["id"])
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            assert call["id"] not in seen
            seen.add(call["id"])
            due.append(call["id"])
    assert not due


@given(histories, st.booleans(), anything)
def test_any_history_projects_to_a_valid_request(history, images, instructions):
    check(project(*history, images=images, instructions=instructions))


@given(histories, st.data())
def test_a_history_that_grew_by_any_steps_projects_as_if_it_were_new(history, data):
    projection = ChatProjection()
    grown = History()
    while len(grown) < len(history):
        step = data.draw(st.integers(1, 4))
        grown = grown.extended(history[len(grown) : len(grown) + step])
        assert projection.messages(grown) == project(*grown)


@given(histories, st.data())
def test_forks_and_shorter_histories_project_as_if_they_were_new(history, data):
    projection = ChatProjection()
    whole = History(history)
    projection.messages(whole)
    shorter = whole.without_last(data.draw(st.integers(0, len(history))))
    assert projection.messages(shorter) == project(*shorter)
    fork = shorter.extended(data.draw(histories))
    for one in (fork, whole, shorter):
        assert projection.messages(one) == project(*one)


@given(machine_histories())
def test_a_turn_more_changes_no_earlier_byte(batches):
    projection = ChatProjection()
    grown = History()
    before: list[dict[str, Any]] = []
    for batch in batches:
        grown = grown.extended(batch)
        now = projection.messages(grown, "Be brief.")
        assert json.dumps(now[: len(before)]) == json.dumps(before)
        assert all(one is other for one, other in zip(before[1:], now[1:], strict=False))
        before = now


def test_only_what_is_new_is_computed():
    class Counted(History):
        __slots__ = ("read",)

        def __getitem__(self, index):
            if isinstance(index, slice):
                self.read = range(*index.indices(len(self)))
            return super().__getitem__(index)

        def __iter__(self):
            raise AssertionError("a projection must not walk the whole history")

    def counted(history: History) -> Counted:
        same = Counted.__new__(Counted)
        same._shared, same._length = history._shared, history._length
        return same

    projection = ChatProjection()
    history = History([user_message("x"), asks(A), result(A)] * 500)
    projection.messages(history)
    longer = counted(history.extended([asks(B), result(B)]))
    projection.messages(longer)
    assert longer.read == range(1500, 1502)


def test_a_history_cut_in_the_middle_of_a_turn_still_gets_unique_ids():
    projection = ChatProjection()
    history = History([asks(A), result(A), asks(A), result(A), user_message("x")])
    whole = projection.messages(history)
    assert projection.messages(history.without_last(2)) == [*whole[:3], {**whole[3], "content": NO_RESULT}]


def test_what_was_computed_goes_with_its_history():
    projection = ChatProjection()
    history = History([user_message("x")])
    projection.messages(history)
    gone = weakref.ref(history.lineage)
    del history
    gc.collect()
    assert gone() is None
