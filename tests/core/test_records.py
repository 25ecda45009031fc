"""A journal tells its session again, or says which record it cannot follow."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from edgewise import (
    JournalCorrupt,
    MemoryJournal,
    Policy,
    Record,
    State,
    Text,
    ToolCall,
    ToolResult,
    fold,
    recover,
    replay,
    start,
)
from edgewise.statemachine.machine import INTERRUPTED
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.records import JOURNAL_VERSION, RunResumed, RunStarted, SessionOpened
from edgewise.statemachine.signals import (
    AbortRequested,
    CallSettled,
    CallStarted,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.table import TABLE_VERSION
from edgewise.statemachine.verdicts import Continue

HI, MORE = user_message("hi"), user_message("and more")
ASKED = ModelReplied(AssistantMessage((ToolCall("a", "look"),)))
SETTLED = CallSettled(0, ToolResult("a", "look", (Text("ok"),)))
ANSWER = ModelReplied(AssistantMessage((Text("hello"),)))
GO_ON = TurnJudged(Continue())
RUN: list[Signal] = [ASKED, CallStarted(0), SETTLED, GO_ON, ANSWER, GO_ON]


def _journal(*entries: tuple[str, Any]) -> list[Record]:
    """Records of what happened, each with its run, behind the opening of the session."""
    all_of_them = [("", SessionOpened("s1")), *entries]
    return [Record(n, run, n / 2, what) for n, (run, what) in enumerate(all_of_them, 1)]


def _run(name: str, *signals: Signal, begun: RunStarted | None = None) -> list[tuple[str, Any]]:
    return [(name, begun or RunStarted((HI,))), *((name, signal) for signal in signals)]


# ---- telling it again


def test_a_finished_run_is_told_again() -> None:
    records = _journal(*_run("r1", *RUN))
    found = recover(records)
    assert (found.session, found.run, found.seq, found.runs) == ("s1", "r1", len(records), 1)
    assert found.snapshot == replay(records) == fold(start(inputs=[HI])[0], RUN)
    assert found.snapshot.state is State.DONE and not found.interrupted


def test_a_run_that_its_process_left_open_is_told_as_far_as_it_went() -> None:
    found = recover(_journal(*_run("r1", ASKED, CallStarted(0))))
    assert found.interrupted and found.snapshot is not None
    assert found.snapshot.batch.slots[0].status == "running"


def test_a_run_that_another_process_took_up_is_one_run() -> None:
    found = recover(_journal(*_run("r1", *RUN[:2]), ("r1", RunResumed()), *(("r1", signal) for signal in RUN[2:])))
    assert found.snapshot == fold(start(inputs=[HI])[0], RUN) and found.runs == 1


def test_runs_follow_one_another_on_one_history() -> None:
    second = _run("r2", ANSWER, GO_ON, begun=RunStarted((MORE,)))
    found = recover(_journal(*_run("r1", *RUN), *second))
    assert (found.run, found.runs) == ("r2", 2)
    assert found.snapshot is not None
    assert [m.text for m in found.snapshot.history] == ["hi", "", "ok", "hello", "and more", "hello"]


def test_what_came_from_outside_the_journal_is_in_the_history() -> None:
    begun = RunStarted((MORE,), (HI, AssistantMessage((Text("hello"),))), Policy(max_parallel=2))
    found = recover(_journal(*_run("r1", ANSWER, begun=begun)))
    assert found.snapshot is not None and found.snapshot.policy == Policy(max_parallel=2)
    assert [m.text for m in found.snapshot.history] == ["hi", "hello", "and more", "hello"]


def test_a_run_that_began_with_calls_known_as_started_is_told_so() -> None:
    begun = RunStarted((), (HI, ASKED.message), started=(0,))
    found = recover(_journal(*_run("r1", begun=begun)))
    assert found.snapshot is not None and found.snapshot.history[-1].text == INTERRUPTED


def test_an_empty_journal_is_a_session_that_has_yet_to_begin() -> None:
    found = recover([])
    assert (found.session, found.run, found.snapshot, found.seq, found.runs) == ("", "", None, 0, 0)
    assert not found.interrupted


# ---- what cannot be told


def _without(records: list[Record], n: int) -> list[Record]:
    return [record for record in records if record.seq != n]


WHOLE = _journal(*_run("r1", *RUN))


@pytest.mark.parametrize(
    ("records", "wrong"),
    [
        (_without(WHOLE, 4), "record 5 follows record 3: something is missing or doubled"),
        (_without(WHOLE, 1), "record 2 follows record 0: something is missing or doubled"),
        ([*WHOLE[:3], WHOLE[2]], "record 3 follows record 3: something is missing or doubled"),
        (
            _journal(("r1", ANSWER)),
            "record 2: ModelReplied of run r1, which has not started",
        ),
        (_journal(("r1", RunResumed())), "record 2: RunResumed of run r1, which has not started"),
        (
            _journal(*_run("r1", ASKED), ("r2", SETTLED)),
            "record 4: CallSettled of run r2, which has not started",
        ),
        (
            _journal(*_run("r1", ASKED), *_run("r2")),
            "record 4: run r2 starts while r1 is executing_tools",
        ),
        (
            _journal(*_run("r1", ANSWER, SETTLED)),
            "record 4: CallSettled is not legal in state between_turns; legal there: TurnJudged",
        ),
        (
            _journal(*_run("r1", ASKED, SETTLED, SETTLED)),
            "record 5: CallSettled is not legal in state between_turns",
        ),
        (
            _journal(*_run("r1", *RUN, AbortRequested())),
            "record 9: AbortRequested is not legal in state done; legal there: nothing, since it is final",
        ),
        (_journal(*_run("r1", begun=RunStarted())), "record 2: a run needs something to say"),
        (_journal(("", SessionOpened("s2"))), "record 2: SessionOpened; a journal opens with SessionOpened, once"),
        (
            [attrs.evolve(WHOLE[1], seq=1)],
            "record 1: RunStarted; a journal opens with SessionOpened, once",
        ),
    ],
    ids=[
        "a gap",
        "no beginning",
        "doubled",
        "a signal before its run",
        "resumed before it began",
        "of another run",
        "two runs at once",
        "an illegal signal",
        "a call settled twice",
        "after the end",
        "nothing to say",
        "opened twice",
        "never opened",
    ],
)
def test_a_journal_that_contradicts_itself_is_refused_naming_the_record(records: list[Record], wrong: str) -> None:
    with pytest.raises(JournalCorrupt) as caught:
        recover(records)
    assert wrong in str(caught.value)


@pytest.mark.parametrize("versions", [(JOURNAL_VERSION + 1, TABLE_VERSION), (JOURNAL_VERSION, TABLE_VERSION + 1)])
def test_a_journal_of_another_version_says_who_can_read_it(versions: tuple[int, int]) -> None:
    with pytest.raises(JournalCorrupt) as caught:
        recover([Record(1, "", 0.0, SessionOpened("s1", *versions))])
    assert f"session s1 was written by journal version {versions[0]} and table version {versions[1]}" in str(
        caught.value
    )
    assert f"this Edgewise reads {JOURNAL_VERSION} and {TABLE_VERSION}" in str(caught.value)
    assert "Open it with the release that wrote it" in str(caught.value)


def test_a_journal_without_a_run_has_nothing_to_replay() -> None:
    with pytest.raises(JournalCorrupt, match="this journal holds no run"):
        replay(_journal())


# ---- in memory


def test_a_journal_in_memory_gives_back_what_it_was_given() -> None:
    journal = MemoryJournal()
    assert list(journal.records()) == []
    records = _journal(*_run("r1", *RUN), *_run("r2", ANSWER, begun=RunStarted((MORE,))))
    for n, record in enumerate(records):
        assert journal.append(record) is None
        assert list(journal.records()) == records[: n + 1]
    journal.close()
    assert recover(journal.records()).run == "r2"
