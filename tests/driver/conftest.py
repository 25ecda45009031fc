"""Shared by the driver's tests: a judge of histories, and a run that is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from edgewise import AssistantMessage, Message, Outcome, ToolCall, ToolResult
from edgewise.statemachine.records import recover
from edgewise.statemachine.session import Session


@pytest.fixture
def valid() -> Callable[[Iterable[Message]], None]:
    """Asserts that each call has its one result, in order, right behind its message."""

    def judge(messages: Iterable[Message]) -> None:
        waiting: list[ToolCall] = []
        for number, message in enumerate(messages):
            if isinstance(message, ToolResult):
                assert waiting, f"message {number} answers no call"
                call = waiting.pop(0)
                assert (message.call_id, message.name) == (call.id, call.name), f"message {number} is out of order"
            else:
                assert not waiting, f"message {number} stands where results of {waiting} should"
                waiting = list(message.tool_calls) if isinstance(message, AssistantMessage) else []
        assert not waiting, f"calls without a result: {waiting}"

    return judge


@pytest.fixture
def told_again() -> Callable[[Session, Outcome], None]:
    """Asserts that a session's journal tells the same run that was seen."""

    def judge(session: Session, outcome: Outcome) -> None:
        assert recover(session.journal.records()).snapshot == outcome.snapshot

    return judge
