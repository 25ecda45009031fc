"""What counts as a reply, and how long to wait before a request is sent again."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewise import Backoff, Failure, Text, Thinking, ToolCall
from edgewise.statemachine.messages import AssistantContent, AssistantMessage
from edgewise.statemachine.replies import judge_reply
from edgewise.statemachine.signals import ModelFailed, ModelReplied

CALL = ToolCall("a", "read")


def _judged(*content: AssistantContent, stop: str = "stop") -> ModelReplied | ModelFailed:
    return judge_reply(AssistantMessage(content, stop))


def _failure(*content: AssistantContent, stop: str = "stop") -> Failure:
    judged = _judged(*content, stop=stop)
    assert isinstance(judged, ModelFailed)
    assert judged.partial == AssistantMessage(content, stop)  # nothing of it is lost
    return judged.failure


@pytest.mark.parametrize("stop", ["stop", "end_turn", "tool_use", "length", "refusal", "content_filter", "", "weird"])
def test_a_reply_with_calls_is_taken_whatever_its_stop_reason_says(stop: str) -> None:
    assert isinstance(_judged(Text("look: "), CALL, stop=stop), ModelReplied)


@pytest.mark.parametrize("stop", ["stop", "end_turn", "length", "", "weird"])
def test_words_are_a_reply(stop: str) -> None:
    assert isinstance(_judged(Thinking("hm"), Text("hello"), stop=stop), ModelReplied)


def test_a_tool_call_that_is_announced_and_not_there_is_tried_again() -> None:
    failure = _failure(Text("let me look"), stop="tool_use")
    assert (failure.kind, failure.retryable) == ("protocol", True)
    assert "announced a tool call (stop reason tool_use) and sent none" in failure.message


@pytest.mark.parametrize("content", [(), (Text(""),), (Text(" \n"),), (Thinking("hm"),)], ids=str)
def test_an_empty_reply_is_visible_as_one_and_tried_again(content: tuple[AssistantContent, ...]) -> None:
    failure = _failure(*content)
    assert (failure.kind, failure.retryable) == ("empty_reply", True)
    assert "empty (stop reason stop)" in failure.message


def test_an_empty_reply_that_used_up_its_room_would_do_so_again() -> None:
    failure = _failure(Thinking("hm " * 1000), stop="length")
    assert (failure.kind, failure.retryable) == ("empty_reply", False)


@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
def test_a_refusal_is_final_and_says_what_was_said(stop: str) -> None:
    failure = _failure(Text("I can't help with that."), stop=stop)
    assert (failure.kind, failure.retryable) == ("content_filter", False)
    assert failure.message == f"the model declined to answer ({stop}): I can't help with that."
    assert _failure(stop=stop).message == f"the model declined to answer ({stop})"


# ---- waiting

RETRYABLE = Failure("overloaded", "busy", retryable=True)


@given(attempt=st.integers(1, 10**6), seed=st.integers())
def test_the_wait_doubles_with_jitter_and_has_a_ceiling(attempt: int, seed: int) -> None:
    backoff = Backoff(first=0.5, longest=8.0)
    ceiling = min(8.0, 0.5 * 2 ** min(attempt - 1, 10))
    assert ceiling / 2 <= backoff.delay(RETRYABLE, attempt, Random(seed)) <= ceiling


@given(seconds=st.floats(0, 60))
def test_what_the_provider_asks_for_is_honoured_to_the_letter(seconds: float) -> None:
    asked = Failure("rate_limited", "slow down", True, retry_after=seconds)
    backoff = Backoff(longest=60.0)
    assert backoff.bounded(asked) is asked
    assert backoff.delay(asked, 1, Random(1)) == seconds


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_wait_that_makes_no_sense_is_none(seconds: float) -> None:
    asked = Failure("rate_limited", "slow down", True, retry_after=seconds)
    assert Backoff().delay(Backoff().bounded(asked), 1, Random(1)) == 0.0


@pytest.mark.parametrize("seconds", [61.0, 86_400.0, float("inf")])
def test_a_provider_that_asks_for_too_long_a_wait_ends_the_attempts(seconds: float) -> None:
    asked = Failure("rate_limited", "slow down", True, retry_after=seconds)
    bounded = Backoff(longest=60.0).bounded(asked)
    assert not bounded.retryable and bounded.kind == "rate_limited" and bounded.retry_after == seconds
    assert bounded.message == f"slow down (it asks to wait {seconds:g} s; this run waits 60 s at most)"


def test_a_final_failure_is_left_as_it_is() -> None:
    final = Failure("auth", "no key", retry_after=1e9)
    assert Backoff().bounded(final) is final
