"""The questions that rows ask before they fire: pure functions of snapshot and signal, named by their docstrings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from edgewise.statemachine.messages import AssistantMessage, ToolCall
from edgewise.statemachine.signals import (
    CallDecided,
    CallHeld,
    CallReturned,
    CallSettled,
    CallStarted,
    ModelFailed,
    ModelReplied,
    TurnJudged,
)
from edgewise.statemachine.snapshot import Snapshot
from edgewise.statemachine.verdicts import Continue, Finish, Limit

Guard: TypeAlias = Callable[[Snapshot, Any], bool]


def guard_label(guard: Guard) -> str:
    """The words for a guard in logs and diagrams: its docstring."""
    return (guard.__doc__ or guard.__name__).strip()


def has_calls(message: AssistantMessage) -> bool:
    for block in message.content:  # noqa: SIM110  (any() would cost a generator)
        if type(block) is ToolCall:
            return True
    return False


def _mark(s: Snapshot, index: int) -> str:
    """The letter of a call's state, see Batch; empty when there is no such call."""
    marks = s.batch.marks
    return marks[index] if 0 <= index < len(marks) else ""


# ---- the model's reply


def closing_word(s: Snapshot, signal: ModelReplied | ModelFailed) -> bool:
    """closing word"""
    return s.closing


def calls_cut_off(s: Snapshot, signal: ModelReplied) -> bool:
    """has calls, cut off by the output limit"""
    return signal.message.stop_reason == "length" and has_calls(signal.message)


def calls_made(s: Snapshot, signal: ModelReplied) -> bool:
    """has calls"""
    return has_calls(signal.message)


def no_calls(s: Snapshot, signal: ModelReplied) -> bool:
    """no calls"""
    return not has_calls(signal.message)


def can_compact(s: Snapshot, signal: ModelFailed) -> bool:
    """context overflow, not yet compacted"""
    return signal.failure.kind == "context_overflow" and signal.can_compact and not s.compacted


def may_retry(s: Snapshot, signal: ModelFailed) -> bool:
    """retryable, attempts left"""
    return signal.failure.retryable and s.attempt < s.policy.model_attempts


# ---- the life of a call


def about_to_run(s: Snapshot, signal: CallStarted) -> bool:
    """about to run"""
    # A running call starts once more when a crash interrupted it and its tool is safe to replay.
    if _mark(s, signal.slot) not in ("s", "r"):
        return False
    if not signal.others:
        return True
    together = {signal.slot, *signal.others}
    return len(together) == len(signal.others) + 1 and all(_mark(s, index) == "s" for index in together)


def _at_work(s: Snapshot) -> int:
    """How many calls are open and not held."""
    marks = s.batch.marks
    return len(marks) - marks.count("d") - marks.count("h")


def held_others_open(s: Snapshot, signal: CallHeld) -> bool:
    """others are at work"""
    return _mark(s, signal.slot) == "s" and _at_work(s) > 1


def held_alone(s: Snapshot, signal: CallHeld) -> bool:
    """only held calls are left"""
    return _mark(s, signal.slot) == "s" and _at_work(s) == 1


def is_running(s: Snapshot, signal: CallReturned) -> bool:
    """is running"""
    return _mark(s, signal.slot) == "r"


def approved(s: Snapshot, signal: CallDecided) -> bool:
    """approved"""
    return signal.approved and _mark(s, signal.slot) == "h"


def refused_last(s: Snapshot, signal: CallDecided) -> bool:
    """refused, all settled"""
    return not signal.approved and _mark(s, signal.slot) == "h" and s.batch.open == 1


def refused_others_open(s: Snapshot, signal: CallDecided) -> bool:
    """refused, others open"""
    return not signal.approved and _mark(s, signal.slot) == "h" and s.batch.open > 1


def _can_settle(s: Snapshot, index: int) -> bool:
    return _mark(s, index) in ("s", "r", "t")


def stops_others_run(s: Snapshot, signal: CallSettled) -> bool:
    """stops the run, others are running"""
    return signal.stop is not None and _can_settle(s, signal.slot) and _others_run(s, signal.slot)


def stops(s: Snapshot, signal: CallSettled) -> bool:
    """stops the run"""
    return signal.stop is not None and _can_settle(s, signal.slot)


def all_settled(s: Snapshot, signal: CallSettled) -> bool:
    """all settled"""
    return signal.stop is None and s.batch.open == 1 and _can_settle(s, signal.slot)


def only_held_left(s: Snapshot, signal: CallSettled) -> bool:
    """only held calls are left"""
    return signal.stop is None and _can_settle(s, signal.slot) and _at_work(s) == 1 and s.batch.held > 0


def others_open(s: Snapshot, signal: CallSettled) -> bool:
    """others are at work"""
    marks, slot = s.batch.marks, signal.slot  # asked for each of a hundred calls, so in one go
    at_work = len(marks) - marks.count("d") - marks.count("h")
    return at_work > 1 and signal.stop is None and 0 <= slot < len(marks) and marks[slot] in "srt"


# ---- stopping


def calls_running(s: Snapshot, signal: Any) -> bool:
    """calls are running"""
    return _others_run(s, None)


def _others_run(s: Snapshot, index: int | None) -> bool:
    own = index is not None and _mark(s, index) == "r"
    return s.batch.marks.count("r") > own


def others_run(s: Snapshot, signal: CallSettled) -> bool:
    """others are running"""
    return _can_settle(s, signal.slot) and _others_run(s, signal.slot)


def last_after_fault(s: Snapshot, signal: CallSettled) -> bool:
    """the last, after a fault"""
    return _can_settle(s, signal.slot) and s.ending is not None and s.ending.is_fault


def last(s: Snapshot, signal: CallSettled) -> bool:
    """the last"""
    return _can_settle(s, signal.slot)


def request_under_way(s: Snapshot, signal: ModelReplied | ModelFailed) -> bool:
    """the request was cancelled"""
    return s.batch.open == 0


# ---- the verdict on a turn


def goes_on(s: Snapshot, signal: TurnJudged) -> bool:
    """go on; calls were made or input is queued"""
    return type(signal.verdict) is Continue and (s.turn_calls > 0 or bool(s.steering) or bool(s.follow_ups))


def nothing_left(s: Snapshot, signal: TurnJudged) -> bool:
    """go on; nothing is left"""
    return type(signal.verdict) is Continue and s.turn_calls == 0 and not s.steering and not s.follow_ups


def finish(s: Snapshot, signal: TurnJudged) -> bool:
    """finish"""
    return type(signal.verdict) is Finish


def limit_with_word(s: Snapshot, signal: TurnJudged) -> bool:
    """limit, one word to close asked for"""
    return type(signal.verdict) is Limit and signal.verdict.wrap_up


def limit(s: Snapshot, signal: TurnJudged) -> bool:
    """limit"""
    return type(signal.verdict) is Limit
