"""What a journal holds: records of what happened, from which every run can be told again.

A session's journal opens with SessionOpened; each run begins with RunStarted, followed by its signals in the order in
which the machine took them. Nothing else is needed: the machine is a pure function, so folding the signals gives the
same snapshots and effects.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias, overload

import attrs

from edgewise.statemachine.errors import IllegalSignal, JournalCorrupt, MisuseError
from edgewise.statemachine.history import History
from edgewise.statemachine.machine import advance, start
from edgewise.statemachine.messages import Message, UserMessage
from edgewise.statemachine.signals import Signal
from edgewise.statemachine.snapshot import DEFAULT_POLICY, Policy, Snapshot
from edgewise.statemachine.table import TABLE_VERSION

JOURNAL_VERSION = 1


@attrs.frozen
class SessionOpened:
    """The first record: whose journal this is and by which rules it was written."""

    session: str
    journal_version: int = JOURNAL_VERSION
    table_version: int = TABLE_VERSION


@attrs.frozen
class RunStarted:
    """A run began with ``inputs``; ``history`` is what came from outside the journal, if anything did."""

    inputs: tuple[UserMessage, ...] = ()
    history: tuple[Message, ...] = ()
    policy: Policy = DEFAULT_POLICY
    started: tuple[int, ...] = ()


@attrs.frozen
class RunResumed:
    """Another process took the run up where its last signal left it."""


Happening: TypeAlias = SessionOpened | RunStarted | RunResumed | Signal


@attrs.frozen(weakref_slot=False)
class Record:
    """One thing that happened: its place in the journal, its run, and when (seconds since the epoch)."""

    seq: int
    run: str
    at: float
    what: Happening


@attrs.frozen
class Recovered:
    """What a journal tells of its session: ``snapshot`` is its last run's, None when there was none."""

    session: str = ""
    run: str = ""
    snapshot: Snapshot | None = None
    seq: int = 0
    runs: int = 0

    @property
    def interrupted(self) -> bool:
        """Whether the last run never reached a final state."""
        return self.snapshot is not None and not self.snapshot.state.final


def recover(records: Iterable[Record]) -> Recovered:
    """Tell the session again from its records.

    Raises JournalCorrupt, naming the record, when they contradict the table.
    """
    session, run, seq, runs = "", "", 0, 0
    snapshot: Snapshot | None = None
    for record in records:
        what = record.what
        if record.seq != seq + 1:
            raise JournalCorrupt(f"record {record.seq} follows record {seq}: something is missing or doubled")
        seq = record.seq
        if (seq == 1) != isinstance(what, SessionOpened):
            raise JournalCorrupt(f"record {seq}: {type(what).__name__}; a journal opens with SessionOpened, once")
        if isinstance(what, SessionOpened):
            _check_versions(what)
            session = what.session
        elif isinstance(what, RunStarted):
            if snapshot is not None and not snapshot.state.final:
                raise JournalCorrupt(f"record {seq}: run {record.run} starts while {run} is {snapshot.state}")
            past: History = snapshot.history if snapshot is not None else History()
            if what.history:
                past = past.extended(what.history)
            run, runs = record.run, runs + 1
            try:
                snapshot, _ = start(past, what.inputs, what.policy, what.started)
            except MisuseError as error:
                raise JournalCorrupt(f"record {seq}: {error}") from error
        elif snapshot is None or record.run != run:
            raise JournalCorrupt(f"record {seq}: {type(what).__name__} of run {record.run}, which has not started")
        elif not isinstance(what, RunResumed):
            try:
                snapshot = advance(snapshot, what).snapshot
            except IllegalSignal as error:
                raise JournalCorrupt(f"record {seq}: {error}") from error
    return Recovered(session, run, snapshot, seq, runs)


def _check_versions(opened: SessionOpened) -> None:
    if opened.journal_version != JOURNAL_VERSION or opened.table_version != TABLE_VERSION:
        raise JournalCorrupt(
            f"session {opened.session} was written by journal version {opened.journal_version} and table version "
            f"{opened.table_version}; this Edgewise reads {JOURNAL_VERSION} and {TABLE_VERSION}. "
            "Open it with the release that wrote it, or start a new session from its exported messages"
        )


def replay(records: Iterable[Record]) -> Snapshot:
    """The snapshot that a journal's signals lead to: the same, however often it is told.

    Raises JournalCorrupt when the records contradict the table, or hold no run.
    """
    recovered = recover(records)
    if recovered.snapshot is None:
        raise JournalCorrupt("this journal holds no run")
    return recovered.snapshot


class NoJournal:
    """Stands where a journal would, for runs whose journal nobody could ask for."""

    __slots__ = ()

    def append(self, record: Record) -> None:
        pass

    def records(self) -> Sequence[Record]:
        return ()

    def close(self) -> None:
        pass


NO_JOURNAL = NoJournal()


class MemoryJournal:
    """A journal that lasts as long as the process. It keeps columns, not records: less for the memory to hold."""

    __slots__ = ("_at", "_runs", "_what")

    def __init__(self) -> None:
        self._what: list[Happening] = []
        self._at = array("d")
        self._runs: list[tuple[int, str]] = []
        """Where each run begins: the sequence number of its first record, and its name."""

    def append(self, record: Record) -> None:
        runs = self._runs
        if not runs or runs[-1][1] != record.run:
            runs.append((record.seq, record.run))
        self._at.append(record.at)
        self._what.append(record.what)

    def records(self) -> Sequence[Record]:
        return _Records(self._what, self._at, self._runs)

    def close(self) -> None:
        pass


class _Records(Sequence[Record]):
    """The records of a memory journal, each made when it is looked at."""

    def __init__(self, what: list[Happening], at: array[float], runs: list[tuple[int, str]]) -> None:
        self._what, self._at, self._runs = what, at, runs

    def __len__(self) -> int:
        return len(self._what)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        run = self._runs[bisect_right(self._runs, number + 1, key=lambda run: run[0]) - 1][1]
        return Record(number + 1, run, self._at[number], self._what[number])
