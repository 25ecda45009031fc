"""The JSONL journal: what was written is there, whole, in order, whatever happened to process, disk or file."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from edgewise import (
    Agent,
    JournalCorrupt,
    JournalError,
    MemoryJournal,
    Record,
    SessionBusy,
    Text,
    ToolResult,
    UserMessage,
    recover,
    replay,
)
from edgewise.adapters.models.scripted import ScriptedModel, calls, says
from edgewise.adapters.stores import JsonlJournal, read_jsonl
from edgewise.statemachine.records import RunStarted, SessionOpened
from edgewise.statemachine.signals import CallSettled
from edgewise.tools import tool


@tool
async def look() -> str:
    """Look."""
    await trio.lowlevel.checkpoint()
    return "looked"


def _agent(*script: Any) -> Agent:
    return Agent(ScriptedModel(script or [calls("look", "look"), says("ok")]), [look])


def _record(seq: int = 1, size: int = 10) -> Record:
    return Record(seq, "s-1", 1.5, CallSettled(0, ToolResult("id", "look", (Text("x" * size),))))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


@pytest.fixture
def whole(path: Path) -> bytes:
    """The bytes of a journal with a whole run."""
    with JsonlJournal.open(path) as journal:
        trio.run(_agent().session(journal).run, "go")
    return path.read_bytes()


async def test_a_file_tells_the_same_run_as_memory(path: Path) -> None:
    memory = MemoryJournal()
    with JsonlJournal.open(path) as journal:
        outcome = await _agent().session(journal).run("go")
        assert replay(journal.records()) == outcome.snapshot
    await _agent().session(memory).run("go")
    assert replay(read_jsonl(path)) == replay(memory.records()) == outcome.snapshot


async def test_each_record_is_in_the_file_before_anything_is_done_about_it(path: Path) -> None:
    @tool
    async def peek() -> str:
        """Look at the journal."""
        return read_jsonl(path)[-1].what.__class__.__name__

    with JsonlJournal.open(path) as journal:
        agent = Agent(ScriptedModel([calls("peek"), says("ok")]), [peek])
        outcome = await agent.session(journal).run("go")
    assert [m.text for m in outcome.messages if isinstance(m, ToolResult)] == ["CallStarted"]


async def test_a_conversation_goes_on_in_its_file(path: Path) -> None:
    with JsonlJournal.open(path) as journal:
        await _agent().session(journal).run("one")
    with JsonlJournal.open(path) as journal:
        assert not journal.torn
        session = _agent(says("again")).session(journal)
        outcome = await session.run("two")
    assert [m.text for m in outcome.messages if isinstance(m, UserMessage)] == ["one", "two"]
    assert recover(read_jsonl(path)).runs == 2


def test_the_file_is_for_its_owner_only(path: Path) -> None:
    JsonlJournal.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    JsonlJournal.open(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_odd_texts_survive(path: Path) -> None:
    odd = 'line\nbreak\r\u2028 nul\0 "quotes" \ud800 lone \U0001f600'
    record = Record(1, "s-1", 0.1, RunStarted((UserMessage((Text(odd),)),)))
    with JsonlJournal.open(path) as journal:
        journal.append(record)
        assert journal.records() == [record]
    assert read_jsonl(path) == [record]
    assert path.read_bytes().count(b"\n") == 1


def test_records_can_be_read_while_it_is_open_and_after_it_was_closed(path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(path.parent)
    journal = JsonlJournal.open(path.name)
    journal.append(_record(1))
    assert [r.seq for r in journal.records()] == [1]
    journal.append(_record(2))
    assert [r.seq for r in journal.records()] == [1, 2]
    journal.close()
    journal.close()
    monkeypatch.chdir("/")
    assert [r.seq for r in journal.records()] == [1, 2]
    with pytest.raises(JournalError, match="was closed; open it again"):
        journal.append(_record(3))


# ---- torn and corrupt


def test_a_line_torn_at_any_byte_is_cut_off_and_the_others_are_kept(path: Path, whole: bytes) -> None:
    lines = whole.splitlines(keepends=True)
    kept, last = b"".join(lines[:-1]), lines[-1]
    for cut in range(1, len(last)):
        path.write_bytes(kept + last[:cut])
        assert len(read_jsonl(path)) == len(lines) - 1
        with JsonlJournal.open(path) as journal:
            assert journal.torn
            assert len(journal.records()) == len(lines) - 1
        assert path.read_bytes() == kept


@pytest.mark.parametrize("tail", [b'{"v": 1, "type": "Rec\n', b"\0\0\0\0\0\0", b"\0\0\0\n", b"\xff\xfe\n"])
def test_a_last_line_that_is_no_json_is_cut_off(path: Path, whole: bytes, tail: bytes) -> None:
    path.write_bytes(whole + tail)
    with JsonlJournal.open(path) as journal:
        assert journal.torn
    assert path.read_bytes() == whole
    with JsonlJournal.open(path) as journal:
        assert not journal.torn


@pytest.mark.parametrize("first", [b'{"v": 1, "type": "Record", "seq": 1, "ru', b'{"v"', b"\0\0\0"])
def test_a_first_line_that_was_torn_leaves_an_empty_session(path: Path, first: bytes) -> None:
    path.write_bytes(first)
    with JsonlJournal.open(path) as journal:
        assert journal.torn
        assert journal.records() == []
    assert path.read_bytes() == b""


@pytest.fixture
def torn(path: Path, whole: bytes) -> Path:
    path.write_bytes(whole[:-5])
    return path


async def test_a_run_goes_on_after_a_torn_line(torn: Path) -> None:
    path = torn
    with JsonlJournal.open(path) as journal:
        session = _agent(says("more")).session(journal)
        assert session.interrupted
        async with session.resume() as run:
            assert (await run.outcome()).state == "done"
    assert replay(read_jsonl(path)).state == "done"


@pytest.mark.parametrize(
    "text",
    ["buy milk", "buy milk\n", "{}\n", '{"v": 1, "type": "Usage"}\n', '{"v": 99, "type": "Record"}\n', "[1]"],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(JournalCorrupt, match=r"session\.jsonl.*(line 1|first line)"):
        JsonlJournal.open(path)
    with pytest.raises(JournalCorrupt):
        read_jsonl(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"garbage", "line 3 is no JSON: Expecting value, column 1"),
        (b"", "line 3 is no JSON"),
        (b'{"v": 1, "type": "Record", "seq": 3}', "line 3 is no record: not a valid Record"),
        (b'{"v": 2, "type": "Record"}', "line 3 is no record: format version 2"),
        (b"\xff", "line 3 is no record: .*utf-8"),
    ],
)
def test_a_bad_line_elsewhere_is_named(path: Path, whole: bytes, line: bytes, why: str) -> None:
    lines = whole.split(b"\n")
    bad = b"\n".join([*lines[:2], line, *lines[2:]])
    path.write_bytes(bad)
    with pytest.raises(JournalCorrupt, match=rf"session\.jsonl, {why}"):
        JsonlJournal.open(path)
    assert path.read_bytes() == bad


def test_a_last_line_that_a_newer_release_wrote_is_not_cut_off(path: Path, whole: bytes) -> None:
    newer = whole + b'{"v": 2, "type": "Record"}\n'
    path.write_bytes(newer)
    with pytest.raises(JournalCorrupt, match="format version 2"):
        JsonlJournal.open(path)
    assert path.read_bytes() == newer


# ---- one writer


def test_a_second_writer_is_refused_and_readers_are_not(path: Path) -> None:
    with JsonlJournal.open(path) as journal:
        journal.append(_record())
        with pytest.raises(SessionBusy, match=r"session\.jsonl is in use by another process"):
            JsonlJournal.open(path)
        assert read_jsonl(path) == [_record()]
        journal.append(_record(2))
    JsonlJournal.open(path).close()


def test_the_lock_goes_with_its_process(path: Path) -> None:
    code = (
        "import sys, time; from edgewise.adapters.stores import JsonlJournal\n"
        f"journal = JsonlJournal.open({str(path)!r}); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(SessionBusy):
            JsonlJournal.open(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    JsonlJournal.open(path).close()


# ---- what the world does wrong


@contextmanager
def _files_at_most(size: int) -> Iterator[None]:
    """A real limit of the system's: writes beyond it come out short, then fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_a_full_disk_took_of_a_line_is_taken_back(path: Path) -> None:
    with JsonlJournal.open(path) as journal:
        journal.append(_record(1))
        before = path.read_bytes()
        with _files_at_most(len(before) + 50), pytest.raises(JournalError, match="resumed from there"):
            journal.append(_record(2))
        assert path.read_bytes() == before
        journal.append(_record(2))
    assert [r.seq for r in read_jsonl(path)] == [1, 2]


async def test_a_run_whose_journal_is_full_stops_and_can_be_resumed(path: Path) -> None:
    done: list[str] = []

    @tool
    async def write() -> str:
        """Do something that counts."""
        done.append("written")
        return "y" * 4000

    agent = Agent(ScriptedModel(lambda request: calls("write") if len(request.messages) < 2 else says("ok")), [write])
    with JsonlJournal.open(path) as journal:
        session = agent.session(journal)
        with _files_at_most(3000), pytest.raises(JournalError, match=r"session\.jsonl can't be written"):
            await session.run("go")
    assert done == ["written"]
    with JsonlJournal.open(path) as journal:
        assert not journal.torn
        session = agent.session(journal)
        async with session.resume() as run:
            outcome = await run.outcome()
    assert done == ["written"]
    assert outcome.state == "done"
    assert "Interrupted" in next(m.text for m in outcome.messages if isinstance(m, ToolResult))


def _as_directory(path: Path) -> None:
    path.mkdir()


def _as_pipe(path: Path) -> None:
    os.mkfifo(path)


def _in_no_directory(path: Path) -> None:
    path.symlink_to(path.parent / "missing" / "session.jsonl")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_as_directory, "Is a directory. Give a file"),
        (_as_pipe, "is no regular file"),
        (_in_no_directory, "No such file or directory. Make its directory first"),
    ],
)
def test_what_cannot_be_a_session_file_is_refused_with_what_to_do(
    path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(path)
    with pytest.raises(JournalError, match=why):
        JsonlJournal.open(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_may_not_be_written_is_refused(path: Path) -> None:
    path.touch(0o400)
    with pytest.raises(JournalError, match="Permission denied"):
        JsonlJournal.open(path)


def test_a_missing_file_cannot_be_read(path: Path) -> None:
    with pytest.raises(JournalError, match=r"session\.jsonl can't be read: No such file"):
        read_jsonl(path)


# ---- on the disk


async def test_with_sync_each_record_is_forced_to_the_disk_outside_of_the_loop(path: Path, monkeypatch: Any) -> None:
    forced: list[tuple[int, bool]] = []
    main = threading.current_thread()
    force = os.fdatasync

    def counted(descriptor: int) -> None:
        forced.append((os.fstat(descriptor).st_size, threading.current_thread() is main))
        force(descriptor)

    monkeypatch.setattr(os, "fdatasync", counted)
    with JsonlJournal.open(path, sync=True) as journal:
        outcome = await _agent().session(journal).run("go")
    assert replay(read_jsonl(path)) == outcome.snapshot
    assert forced == [(end, False) for end in _ends(path)]


def _ends(path: Path) -> list[int]:
    """Where the lines of a file end."""
    return list(itertools.accumulate(len(line) for line in path.read_bytes().splitlines(keepends=True)))


async def test_a_disk_that_fails_to_sync_stops_the_run_for_good(path: Path, monkeypatch: Any) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with JsonlJournal.open(path, sync=True) as journal:
        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(JournalError, match="Input/output error"):
            await _agent().session(journal).run("go")
        monkeypatch.undo()
        with pytest.raises(JournalError, match="Input/output error"):
            journal.append(_record())


def test_without_sync_append_gives_nothing_to_wait_for(path: Path) -> None:
    with JsonlJournal.open(path) as journal:
        assert journal.append(Record(1, "", 0.0, SessionOpened("s"))) is None
