"""kill -9 at twenty moments of a journaled run; another process takes the journal up and brings the run to its end.

The killed processes are real, and so is the signal. The moments come from a seeded generator, one in each twentieth of
the run, so that they are spread over all of it on a slow machine too: a run is as far as its journal and its tools'
ledger have grown, and is killed a random while after that. Every fourth one is killed again while it resumes.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from typing import cast

import attrs
import pytest

from edgewise import AssistantMessage, Message, Record, Snapshot, State, ToolResult, UserMessage, recover, replay
from edgewise.adapters.stores import read_jsonl
from edgewise.statemachine.codec import from_json
from edgewise.statemachine.invariants import check_history, check_step
from edgewise.statemachine.machine import INTERRUPTED, advance, start
from edgewise.statemachine.records import RunStarted
from edgewise.statemachine.signals import CallSettled, CallStarted, InputQueued, Signal

pytestmark = pytest.mark.slow

MOMENTS = 20
WHILE = 0.02
"""Seconds within which a kill follows; a reply takes twice that, a call a quarter to a half."""
SAFE = "look"


class Server:
    """The driver, which has imported everything and forks a process for each run."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("crash_driver.py")
        self.process = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, how: str, directory: Path, kill_at: int | None = None, delay: float = 0.0) -> int:
        """Run a process to its end, or kill it ``delay`` s after it wrote ``kill_at`` bytes; gives its wait status."""
        assert self.process.stdin is not None
        paths = [str(directory / name) for name in ("journal", "ledger", "snapshot")]
        self.process.stdin.write(" ".join([how, *paths, "\n"]).encode())
        self.process.stdin.flush()
        pid = 0
        while True:
            word, *rest = self._line()
            if word == "pid":
                pid = int(rest[0])
            elif word == "running" and kill_at is not None:
                while not pid:
                    pid = int(self._line()[1])
                while _size(directory) < kill_at and not self._has_more():
                    time.sleep(0.0005)
                time.sleep(delay)
                with suppress(ProcessLookupError):  # it may have been faster
                    os.kill(pid, SIGKILL)
            elif word == "ended":
                return int(rest[0])

    def _has_more(self, wait: float = 0.0) -> bool:
        return bool(select.select([self.process.stdout], [], [], wait)[0])

    def _line(self) -> list[str]:
        assert self.process.stdout is not None
        assert self._has_more(wait=30), "the driver says nothing any more"
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.process.stdout.fileno(), 1)
        return line.decode().split()


@attrs.frozen
class Crash:
    """What was there when a run was killed, and what was there in the end."""

    name: str
    kills: int
    at_kill: list[Record]
    ledger_at_kill: list[tuple[str, str, str]]
    records: list[Record]
    ledger: list[tuple[str, str, str]]
    live: Snapshot

    @property
    def messages(self) -> list[Message]:
        return list(self.live.history)


def _ledger(directory: Path) -> list[tuple[str, str, str]]:
    path = directory / "ledger"
    lines = path.read_text().splitlines() if path.exists() else []
    return [cast("tuple[str, str, str]", tuple(line.split())) for line in lines]


def _size(directory: Path) -> int:
    """How much a run has written so far."""
    return sum(path.stat().st_size for path in (directory / "journal", directory / "ledger") if path.exists())


def _crash(server: Server, directory: Path, whole: int, moments: list[float], delays: list[float]) -> Crash:
    """Kill a run at each of ``moments``, which are shares of what was left of it, then let it come to its end."""
    directory.mkdir()
    for n, (moment, delay) in enumerate(zip(moments, delays, strict=True)):
        size = _size(directory)
        status = server.run("resume" if n else "begin", directory, size + round(moment * (whole - size)), delay)
        assert status in (SIGKILL, 0), f"{directory.name}: the process ended with {status=}"
        if n == 0:
            at_kill, ledger_at_kill = read_jsonl(directory / "journal"), _ledger(directory)
    assert server.run("resume", directory) == 0
    live = from_json((directory / "snapshot").read_text())
    records = read_jsonl(directory / "journal")
    return Crash(directory.name, len(moments), at_kill, ledger_at_kill, records, _ledger(directory), live)


@pytest.fixture(scope="module")
def crashes(tmp_path_factory: pytest.TempPathFactory) -> list[Crash]:
    chance = random.Random(20)
    root = tmp_path_factory.mktemp("crashes")
    server = Server()
    with server.process as process:
        (root / "whole").mkdir()
        assert server.run("begin", root / "whole") == 0
        whole = _size(root / "whole")
        found = []
        for n in range(MOMENTS):
            moments = [(n + chance.random()) / MOMENTS, *([chance.random()] if n % 4 == 0 else [])]
            delays = [chance.random() * WHILE for _ in moments]
            name = "killed-at-" + "-and-".join(f"{moment * 100:.0f}%" for moment in moments)
            found.append(_crash(server, root / name, whole, moments, delays))
        assert process.stdin is not None
        process.stdin.close()
    return found


def _told(records: list[Record]) -> Iterator[tuple[Record, Snapshot, Signal]]:
    """The signals of a journal of one run, each with the snapshot that it met."""
    snapshot: Snapshot | None = None
    for record in records:
        if isinstance(record.what, RunStarted):
            snapshot, _ = start((), record.what.inputs, record.what.policy)
        elif isinstance(record.what, Signal):
            assert snapshot is not None
            yield record, snapshot, record.what
            snapshot = advance(snapshot, record.what).snapshot


def _keys(records: list[Record], kind: type[CallStarted] | type[CallSettled]) -> Counter[str]:
    """How often each call was started or settled, by the key that its tool knew it by."""
    return Counter(
        f"{record.run}.t{before.turn}.c{slot}"
        for record, before, signal in _told(records)
        if isinstance(signal, kind)
        for slot in (signal.slot, *getattr(signal, "others", ()))
    )


def test_the_moments_are_spread_over_the_run(crashes: list[Crash]) -> None:
    assert len(crashes) == MOMENTS
    midway = [crash for crash in crashes if recover(crash.at_kill).interrupted]
    assert len(midway) >= MOMENTS * 3 // 4, "most kills came after the end"
    points = {(len(crash.at_kill), len(crash.ledger_at_kill)) for crash in crashes}
    states = {replay(crash.at_kill).state for crash in crashes}
    assert len(points) >= MOMENTS // 2, points
    assert {State.AWAITING_MODEL, State.EXECUTING_TOOLS} <= states
    interrupted = [
        m for crash in crashes for m in crash.messages if isinstance(m, ToolResult) and m.text == INTERRUPTED
    ]
    assert interrupted, "no kill came while a call ran"


def test_every_run_comes_to_its_end(crashes: list[Crash]) -> None:
    for crash in crashes:
        assert crash.live.state is State.DONE, crash.name
        last = crash.messages[-1]
        assert isinstance(last, AssistantMessage), crash.name
        assert last.text == "All of it is done.", crash.name


def test_no_message_is_lost(crashes: list[Crash]) -> None:
    for crash in crashes:
        assert crash.records[: len(crash.at_kill)] == crash.at_kill, crash.name
        before = list(replay(crash.at_kill).history)
        assert crash.messages[: len(before)] == before, crash.name
        for _, _, told in _told(crash.at_kill):
            if isinstance(told, CallSettled):
                assert told.result in crash.messages, crash.name


def test_no_recorded_call_runs_twice(crashes: list[Crash]) -> None:
    for crash in crashes:
        starts = Counter(key for what, key, _ in crash.ledger if what == "start")
        tools = {key: name for _, key, name in crash.ledger}
        settled = _keys(crash.at_kill, CallSettled)
        started_after = Counter(key for what, key, _ in crash.ledger[len(crash.ledger_at_kill) :] if what == "start")
        for key, times in starts.items():
            allowed = 1 + crash.kills if tools[key] == SAFE else 1
            assert times <= allowed, f"{crash.name}: {tools[key]} {key} ran {times} times"
        assert not settled.keys() & started_after.keys(), f"{crash.name}: a settled call ran again"


def test_no_call_runs_unrecorded(crashes: list[Crash]) -> None:
    for crash in crashes:
        for ledger, records in ((crash.ledger_at_kill, crash.at_kill), (crash.ledger, crash.records)):
            starts = Counter(key for what, key, _ in ledger if what == "start")
            recorded = _keys(records, CallStarted)
            assert starts <= recorded, f"{crash.name}: {starts - recorded} ran without a record"


def test_a_result_tells_what_happened(crashes: list[Crash]) -> None:
    for crash in crashes:
        ended = {key for what, key, _ in crash.ledger if what == "end"}
        for record, before, told in _told(crash.records):
            if isinstance(told, CallSettled):
                key = f"{record.run}.t{before.turn}.c{told.slot}"
                assert told.result.is_error or key in ended, f"{crash.name}: {key} has a result, and never ended"
                assert not told.result.is_error or told.result.text == INTERRUPTED, f"{crash.name}: {key}"


def test_each_call_has_its_one_result_in_order(crashes: list[Crash]) -> None:
    for crash in crashes:
        assert check_history(crash.messages) == [], crash.name


def test_every_step_keeps_the_rules(crashes: list[Crash]) -> None:
    for crash in crashes:
        for _, before, told in _told(crash.records):
            assert check_step(before, told, advance(before, told)) == [], crash.name


def test_the_journal_tells_the_run_that_was_seen(crashes: list[Crash]) -> None:
    for crash in crashes:
        assert replay(crash.records) == crash.live, crash.name
        assert not recover(crash.records).interrupted, crash.name


def test_every_input_is_stated_once(crashes: list[Crash]) -> None:
    for crash in crashes:
        said = Counter(m.text for m in crash.messages if isinstance(m, UserMessage))
        queued = [s.message.text for _, _, s in _told(crash.at_kill) if isinstance(s, InputQueued)]
        assert said == Counter(["Do all the parts.", *queued]), crash.name
