"""A streamed reply, assembled from deltas in whatever way servers cut and label them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise import Text, Thinking, ToolCall, Usage
from edgewise.statemachine.drafts import Draft

Deltas = list[tuple[int | None, str, str, str]]
"""Deltas of calls: index, id, name, a piece of the arguments."""


def _calls(deltas: Deltas) -> list[tuple[str, str, str]]:
    draft = Draft()
    for delta in deltas:
        draft.call(*delta)
    return [(call.id, call.name, call.arguments) for call in draft.finish().tool_calls]


TWO = [("a", "read", '{"path": "x"}'), ("b", "write", '{"path": "y"}')]


@pytest.mark.parametrize(
    "deltas",
    [
        [(0, "a", "read", ""), (0, "", "", '{"path"'), (0, "", "", ': "x"}'), (1, "b", "write", '{"path": "y"}')],
        [(0, "a", "read", '{"path"'), (1, "b", "write", '{"path": '), (0, "", "", ': "x"}'), (1, "", "", '"y"}')],
        [
            (None, "a", "read", '{"path"'),
            (None, "b", "write", '{"path": '),
            (None, "a", "", ': "x"}'),
            (None, "b", "", '"y"}'),
        ],
        [(None, "a", "read", '{"path"'), (None, "", "", ': "x"}'), (None, "b", "write", '{"path": "y"}')],
        [(0, "a", "read", '{"path": "x"}'), (0, "b", "write", '{"path": "y"}')],
        [(0, "a", "read", '{"path"'), (0, "", "", ': "x"}'), (0, "b", "write", '{"path"'), (0, "", "", ': "y"}')],
        [(0, "a", "read", '{"path"'), (0, "a", "read", ': "x"}'), (1, "b", "write", '{"path": "y"}')],
        [(7, "a", "read", '{"path": "x"}'), (3, "b", "write", '{"path": "y"}')],
        [(None, "a", "read", '{"path": "x"}'), (None, "b", "write", '{"path": "y"}')],
    ],
    ids=[
        "by index",
        "by index, interleaved",
        "by id, interleaved",
        "by arrival",
        "all at index 0",
        "all at index 0, in pieces",
        "id and name in each delta",
        "odd indexes",
        "whole, without indexes",
    ],
)
def test_deltas_of_two_calls_are_told_apart(deltas: Deltas) -> None:
    assert _calls(deltas) == TWO


def test_calls_without_ids_are_told_apart_by_index() -> None:
    deltas: Deltas = [(0, "", "read", '{"a"'), (1, "", "read", '{"b"'), (0, "", "", ": 1}"), (1, "", "", ": 2}")]
    assert _calls(deltas) == [("", "read", '{"a": 1}'), ("", "read", '{"b": 2}')]


def test_calls_without_ids_and_indexes_are_told_apart_by_their_names() -> None:
    assert _calls([(None, "", "read", '{"a": 1}'), (None, "", "write", '{"b": 2}')]) == [
        ("", "read", '{"a": 1}'),
        ("", "write", '{"b": 2}'),
    ]
    # The same tool twice: a name after whole arguments begins the next call.
    assert _calls([(None, "", "read", '{"a": 1}'), (None, "", "read", '{"b": 2}')]) == [
        ("", "read", '{"a": 1}'),
        ("", "read", '{"b": 2}'),
    ]


def test_calls_that_share_their_id_stay_two() -> None:
    assert _calls([(0, "x", "read", '{"a": 1}'), (1, "x", "read", '{"b": 2}')]) == [
        ("x", "read", '{"a": 1}'),
        ("x", "read", '{"b": 2}'),
    ]
    assert _calls([(0, "x", "read", '{"a": 1}'), (0, "x", "read", '{"b": 2}')]) == [
        ("x", "read", '{"a": 1}'),
        ("x", "read", '{"b": 2}'),
    ]


def test_a_last_delta_that_only_repeats_id_and_name_makes_no_second_call() -> None:
    assert _calls([(0, "a", "read", '{"a": 1}'), (0, "a", "read", "")]) == [("a", "read", '{"a": 1}')]
    assert _calls([(None, "a", "read", '{"a": 1}'), (None, "a", "read", "")]) == [("a", "read", '{"a": 1}')]


def test_a_name_or_an_id_that_comes_late_belongs_to_the_call_that_lacks_it() -> None:
    assert _calls([(0, "a", "", ""), (0, "", "read", "{"), (0, "", "", "}")]) == [("a", "read", "{}")]
    assert _calls([(0, "", "read", "{"), (0, "a", "", "}")]) == [("a", "read", "{}")]


def test_the_arguments_are_kept_as_they_were_written() -> None:
    assert _calls([(0, "a", "read", "not json"), (0, "", "", " at all")]) == [("a", "read", "not json at all")]
    assert _calls([(0, "a", "read", "")]) == [("a", "read", "")]


indexed = st.lists(
    st.tuples(st.text(max_size=3), st.sampled_from(["read", "write"]), st.dictionaries(st.text(max_size=2), st.text())),
    min_size=1,
    max_size=4,
)


@given(indexed, st.data())
def test_any_interleaving_of_indexed_deltas_assembles_the_same_calls(
    wanted: list[tuple[str, str, dict[str, str]]], data: st.DataObject
) -> None:
    """Ids may be empty or double; each call's first delta has its id and name, as on every server."""
    texts = [json.dumps(arguments) for _, _, arguments in wanted]
    streams: list[list[tuple[str, str, str]]] = []
    for (id, name, _), text in zip(wanted, texts, strict=True):
        cut = data.draw(st.lists(st.integers(0, len(text)), max_size=3).map(sorted))
        pieces = [text[a:b] for a, b in zip([0, *cut], [*cut, len(text)], strict=True)]
        streams.append([(id, name, pieces[0]), *(("", "", piece) for piece in pieces[1:])])
    order = data.draw(st.permutations([n for n, stream in enumerate(streams) for _ in stream]))
    left, first = [list(stream) for stream in streams], list(dict.fromkeys(order))
    made = _calls([(n, *left[n].pop(0)) for n in order])
    assert made == [(wanted[n][0], wanted[n][1], texts[n]) for n in first]


# ---- words, thinking, usage


def test_blocks_follow_one_another_in_the_order_of_arrival() -> None:
    draft = Draft(model="m")
    draft.thinking("hm, ")
    draft.thinking("well", signature="sig")
    draft.text("Let me ")
    draft.text("look.")
    draft.call(0, "a", "read", "{}")
    draft.text("And")
    message = draft.finish("tool_use")
    assert message.content == (
        Thinking("hm, well", "sig"),
        Text("Let me look."),
        ToolCall("a", "read", "{}"),
        Text("And"),
    )
    assert (message.stop_reason, message.model) == ("tool_use", "m")


def test_a_signature_closes_a_thought() -> None:
    draft = Draft()
    draft.thinking("one", "s1")
    draft.thinking("two")
    draft.thinking("", "s2")
    assert draft.finish().content == (Thinking("one", "s1"), Thinking("two", "s2"))


def test_a_signature_without_words_is_kept_since_its_provider_wants_it_back() -> None:
    draft = Draft()
    draft.thinking("", "encrypted")
    assert draft.finish().content == (Thinking("", "encrypted"),)


def test_empty_deltas_make_no_blocks() -> None:
    draft = Draft()
    assert draft.empty
    draft.text("")
    draft.thinking("")
    assert draft.finish().content == ()


def test_the_last_usage_counts_and_none_is_added_up() -> None:
    draft = Draft()
    draft.usage = Usage(10, 1)
    draft.usage = Usage(10, 5)
    assert draft.finish().usage == Usage(10, 5)


def test_a_draft_can_be_finished_at_any_moment() -> None:
    draft = Draft()
    draft.text("half an ans")
    assert draft.finish("aborted").text == "half an ans"
    draft.text("wer")
    assert draft.finish().text == "half an answer"


def test_a_listener_hears_each_piece_with_its_block() -> None:
    heard: list[Any] = []
    draft = Draft(lambda *delta: heard.append(delta))
    draft.text("a")
    draft.text("")
    draft.call(0, "x", "read", '{"p"')
    draft.call(1, "y", "read", "{")
    draft.call(0, arguments=": 1}")
    draft.listen(lambda *delta: heard.append(("late", *delta)))
    draft.thinking("b")
    assert heard == [
        ("text", "a", 0),
        ("arguments", '{"p"', 1),
        ("arguments", "{", 2),
        ("arguments", ": 1}", 1),
        ("late", "thinking", "b", 3),
    ]
