"""One file per session, one record a line, as JSON.

A record is one ``write`` of a whole line at the end of the file, made before anything is done about it. A line without
its newline was therefore never acted upon: when the file is opened again it is cut off, which is all the repair that a
journal needs. By default a record survives the death of the process, but not that of the machine; with ``sync=True`` it
is on the disk before the run goes on.

Two writers would spoil a journal, so one that is open holds an advisory lock on its file.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Any

import trio

from edgewise.statemachine.codec import FORMAT_VERSION, from_json, to_json
from edgewise.statemachine.errors import JournalCorrupt, JournalError, SessionBusy
from edgewise.statemachine.records import Record

if sys.platform != "win32":
    import fcntl

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
_BEGINNING = f'{{"v": {FORMAT_VERSION}, "type": "Record"'.encode()
"""How :func:`to_json` begins a line: how the first line of a journal looks, even one that was torn."""


def read_jsonl(path: str | os.PathLike[str]) -> list[Record]:
    """The records of the journal at ``path``, which another process may be writing; a torn last line is left out.

    Raises JournalError when it can't be read, and JournalCorrupt, with the line's number, when it is no journal.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            return _records(name, _whole_lines(name, file.read()))
    except OSError as error:
        raise JournalError(f"the session file {name} can't be read: {error.strerror or error}") from error


class JsonlJournal:
    """A journal in a file. Make one with :meth:`open`; it is a context manager that closes itself.

    A file that holds a conversation already is taken up::

        with JsonlJournal.open("talk.jsonl") as journal:
            outcome = await agent.session(journal).run("And now?")
    """

    def __init__(self, path: str, descriptor: int, records: list[Record], torn: bool, sync: bool) -> None:
        self.path = path
        self.torn = torn
        """Whether the file ended in a line that was cut short, by a crash or a full disk; it was cut off."""
        self._absolute = os.path.abspath(path)
        self._descriptor: int | None = descriptor
        self._read: list[Record] | None = records
        self._sync = sync
        self._broken = ""

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, sync: bool = False) -> JsonlJournal:
        """Open the journal at ``path``; one that is not there is made, for its owner's eyes only.

        With ``sync``, each record is forced to the disk, for machines that lose power: a few milliseconds each.

        Raises SessionBusy when another process has it, JournalCorrupt when it can't be understood, and JournalError
        when it can't be opened or written.
        """
        name = os.fspath(path)
        try:
            is_new = not os.path.exists(name)
            descriptor = os.open(name, _FLAGS, 0o600)
        except OSError as error:
            raise _unusable(name, error) from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise JournalError(f"{name} is no regular file, so no session can be kept in it")
            _lock(name, descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read()
            lines = _whole_lines(name, data)
            records = _records(name, lines)
            size = sum(len(line) + 1 for line in lines)
            if size < len(data):
                os.ftruncate(descriptor, size)
            if sync and is_new:
                _sync_directory(os.path.dirname(os.path.abspath(name)))
        except OSError as error:
            os.close(descriptor)
            raise _unusable(name, error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(name, descriptor, records, size < len(data), sync)

    def append(self, record: Record) -> Awaitable[None] | None:
        """Write ``record``. When this returns it is in the file; with ``sync``, what it returns waits for the disk.

        Raises JournalError when it can't be written; then nothing of it is left in the file.
        """
        descriptor = self._usable()
        line = f"{to_json(record)}\n".encode("ascii")
        self._read = None
        written = 0
        try:
            while written < len(line):
                written += os.write(descriptor, line[written:])
        except OSError as error:
            self._take_back(descriptor, written)
            raise self._unwritten(error) from error
        return self._to_disk(descriptor) if self._sync else None

    def records(self) -> Sequence[Record]:
        """All records, in order. They are read from the file, unless it was just opened."""
        if self._read is not None:
            return self._read
        return read_jsonl(self._absolute)

    def close(self) -> None:
        """Let go of the file and its lock. The records remain readable."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def __enter__(self) -> JsonlJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _usable(self) -> int:
        if self._descriptor is None:
            raise JournalError(f"the journal {self.path} was closed; open it again to write to it")
        if self._broken:
            raise JournalError(self._broken)
        return self._descriptor

    async def _to_disk(self, descriptor: int) -> None:
        try:
            await trio.to_thread.run_sync(_force, descriptor, abandon_on_cancel=True)
        except OSError as error:
            # After a failed sync nobody knows what is on the disk, and a second one would not tell.
            raise self._break(self._unwritten(error)) from error

    def _take_back(self, descriptor: int, written: int) -> None:
        """Cut off what was written of a line, so that the file ends in a whole one."""
        try:
            if written:
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        except OSError as error:
            self._break(self._unwritten(error))

    def _break(self, error: JournalError) -> JournalError:
        self._broken = str(error)
        return error

    def _unwritten(self, error: OSError) -> JournalError:
        return JournalError(
            f"the session file {self.path} can't be written: {error.strerror or error}.{_advice(error)} "
            "All before this is kept, and the run can be resumed from there"
        )


def _whole_lines(name: str, data: bytes) -> list[bytes]:
    """The lines of ``data`` but for a last one that was torn: that has no newline, or is no JSON.

    (JSON that is no record was written whole by somebody, and is not ours to remove.) Raises JournalCorrupt when there
    is nothing but a torn line that does not look like a record, lest a text of somebody's be cut off.
    """
    *lines, rest = data.split(b"\n")
    if lines and not rest and _is_torn(lines[-1]):
        rest = lines.pop()
    if rest.strip(b"\0") and not lines and not rest.startswith(_BEGINNING[: len(rest)]):
        raise JournalCorrupt(f"{name} is no Edgewise session: its first line is no record. Give another file")
    return lines


def _is_torn(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


def _records(name: str, lines: Sequence[bytes]) -> list[Record]:
    records: list[Record] = []
    for number, line in enumerate(lines, 1):
        try:
            record: Any = from_json(line)
            if not isinstance(record, Record):
                raise ValueError(f"expected a Record, not a {type(record).__name__}")
        except json.JSONDecodeError as error:
            raise JournalCorrupt(f"{name}, line {number} is no JSON: {error.msg}, column {error.colno}") from error
        except (ValueError, RecursionError) as error:
            raise JournalCorrupt(f"{name}, line {number} is no record: {error}") from error
        records.append(record)
    return records


def _lock(name: str, descriptor: int) -> None:
    if sys.platform == "win32":
        return  # it has no such locks: there it is up to you that one process has the file
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SessionBusy(
            f"the session file {name} is in use by another process; wait until that is over, or use another file"
        ) from None


def _force(descriptor: int) -> None:
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _sync_directory(directory: str) -> None:
    """A new file is not safe before its name is."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(name: str, error: OSError) -> JournalError:
    return JournalError(f"the session file {name} can't be opened: {error.strerror or error}.{_advice(error)}")


_ADVICE = {
    "ENOSPC": " Make room on that disk.",
    "EDQUOT": " Make room in your quota.",
    "EFBIG": " It is as large as files may be here.",
    "ENOENT": " Make its directory first.",
    "ENOTDIR": " Make its directory first.",
    "EISDIR": " Give a file, as in session.jsonl.",
    "EACCES": " Give a file that you may read and write.",
    "EPERM": " Give a file that you may read and write.",
    "EROFS": " Give a file that you may read and write.",
    "ENOLCK": " Its file system has no locks; keep it on another.",
    "ENOTSUP": " Its file system has no locks; keep it on another.",
    "EOPNOTSUPP": " Its file system has no locks; keep it on another.",
}


def _advice(error: OSError) -> str:
    return _ADVICE.get(errno.errorcode.get(error.errno or 0, ""), "")
