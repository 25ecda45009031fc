"""The history is a sequence that is shared, never copied, and never changes under anybody's hands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from edgewise import Message, fold, start
from edgewise.statemachine import history as module
from edgewise.statemachine.history import History
from edgewise.statemachine.messages import AssistantMessage, Text, ToolCall, ToolResult, user_message
from edgewise.statemachine.signals import CallSettled, ModelReplied, Signal, TurnJudged
from edgewise.statemachine.verdicts import Continue

A, B, C, D = (user_message(text) for text in "abcd")


def test_extending_the_newest_shares_every_message_and_copies_none() -> None:
    one = History([A, B])
    two = one.extended([C])
    assert list(two) == [A, B, C] and list(one) == [A, B]
    assert two.lineage is one.lineage
    assert all(x is y for x, y in zip(two, [A, B, C], strict=True))


def test_a_fork_leaves_both_branches_as_they_are() -> None:
    trunk = History([A])
    left = trunk.extended([B])
    right = trunk.extended([C, D])
    assert [list(h) for h in (trunk, left, right)] == [[A], [A, B], [A, C, D]]
    assert left.lineage is trunk.lineage  # who comes first gets the list
    assert right.lineage is not trunk.lineage
    assert right[0] is trunk[0]


def test_a_shorter_view_shares_and_forks_when_extended() -> None:
    whole = History([A, B, C])
    short = whole.without_last(2)
    assert list(short) == [A] and short.lineage is whole.lineage
    other = short.extended([D])
    assert (list(other), list(whole)) == ([A, D], [A, B, C])
    assert list(whole.without_last(0)) == [A, B, C]
    assert list(whole.without_last(9)) == []


def test_the_list_that_it_was_made_of_may_change_afterwards() -> None:
    messages: list[Message] = [A]
    history = History(messages)
    messages.append(B)
    assert list(history) == [A]


def test_a_run_never_copies_its_history(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    class Counted(module._Log):
        def __init__(self, *args: object) -> None:
            nonlocal made
            made += 1
            super().__init__(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_Log", Counted)
    call = AssistantMessage((ToolCall("", "tool"),))
    turn: list[Signal] = [
        ModelReplied(call),
        CallSettled(0, ToolResult("", "tool", (Text("ok"),))),
        TurnJudged(Continue()),
    ]
    snapshot, _ = start(inputs=[A])
    begun = made
    snapshot = fold(snapshot, turn * 200)
    assert len(snapshot.history) == 401 and made == begun


def test_it_reads_like_any_sequence() -> None:
    history = History([A, B, C, D]).without_last(1)
    assert isinstance(history, Sequence)
    assert (history[0], history[-1], history[-3]) == (A, C, A)
    assert list(history[1:]) == [B, C] and list(history[::-1]) == [C, B, A] and list(history[5:]) == []
    assert list(reversed(history)) == [C, B, A]
    assert B in history and D not in history
    assert history.index(B) == 1 and history.count(A) == 1
    assert bool(history) and not History()
    assert repr(History([A])) == f"History([{A!r}])"


@pytest.mark.parametrize("index", [3, -4, 100])
def test_an_index_outside_is_refused_although_others_see_further(index: int) -> None:
    whole = History([A, B, C, D])
    with pytest.raises(IndexError, match=rf"message {index if index > 0 else index + 3} of a history of 3"):
        whole.without_last(1)[index]


def test_histories_are_equal_when_their_messages_are() -> None:
    assert History([A, B]) == History([A]).extended([B])
    assert History([A, B]) != History([A]) and History([A]) != History([B])
    assert History([A, B]).without_last(1) == History([A, C]).without_last(1)
    assert hash(History([A])) == hash(History([A, B]).without_last(1))
    assert History([A]) != [A]
    assert len({History([A]), History([A]), History([B])}) == 2


@given(st.lists(st.sampled_from([A, B, C]), max_size=6), st.slices(6))
def test_slices_are_those_of_a_list(messages: list[Message], part: slice) -> None:
    assert list(History([*messages, D]).without_last(1)[part]) == messages[part]


class Forest(RuleBasedStateMachine):
    """Histories that grow out of one another at will, beside plain lists that are copied."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[History, list[Message]]] = [(History(), [])]

    @rule(data=st.data(), more=st.lists(st.sampled_from([A, B, C, D]), max_size=3))
    def extend(self, data: st.DataObject, more: list[Message]) -> None:
        history, copy = data.draw(st.sampled_from(self.pairs))
        self.pairs.append((history.extended(more), copy + more))

    @rule(data=st.data(), count=st.integers(0, 3))
    def shorten(self, data: st.DataObject, count: int) -> None:
        history, copy = data.draw(st.sampled_from(self.pairs))
        self.pairs.append((history.without_last(count), copy[: max(0, len(copy) - count)]))

    def teardown(self) -> None:
        for history, copy in self.pairs:
            assert list(history) == copy and len(history) == len(copy)


TestForest = Forest.TestCase
TestForest.settings = settings(max_examples=50, stateful_step_count=20)
