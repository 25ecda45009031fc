"""A directory that no path leaves.

A path is opened one component at a time, each relative to the descriptor of the directory before it and never through a
symbolic link (``O_NOFOLLOW``). A link is read and its target walked in the same way from the root on; ``..`` goes up
only as far as the root. So what was checked is what is opened: there is no moment between the two in which another
process could swap a directory for a link. Where the system can't open relative to a descriptor (Windows), the path is
resolved, compared with the root, opened, and compared again; that leaves such a moment, though a short one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from types import TracebackType

from edgewise.statemachine.errors import MisuseError
from edgewise.tools.errors import ToolError
from edgewise.tools.files.naming import shown_path

_MOST_TURNS = 100
"""Links followed and levels gone up in one path; more is a cycle, or mischief."""


def _flags(*names: str) -> int:
    flags = 0
    for name in names:
        flags |= getattr(os, name, 0)
    return flags


_RELATIVE = {os.open, os.stat, os.readlink} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_READ = _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_BINARY")
# To pass through a directory one need not be allowed to list it.
_PASS = _flags("O_PATH", "O_NOFOLLOW", "O_DIRECTORY")


class NotThere(ToolError):
    """No file has this path. ``parent`` is the deepest directory of it that exists, ``name`` what is missing there."""

    def __init__(self, path: str, parent: str, name: str) -> None:
        self.path, self.parent, self.name = path, parent, name
        super().__init__(f"File not found: {shown_path(path)}")


class Opened:
    """An open file or directory; a context manager that closes it. ``path`` is relative to the root, links resolved."""

    def __init__(self, path: str, descriptor: int | None, info: os.stat_result, real: str) -> None:
        self.path = path
        self.info = info
        self._descriptor = descriptor
        self._real = real

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)

    @property
    def descriptor(self) -> int:
        if self._descriptor is None:
            raise ToolError(f"{shown_path(self.path)} can't be read.")
        return self._descriptor

    def entries(self) -> Iterator[os.DirEntry[str]]:
        """What is in this directory, in no order."""
        with os.scandir(self._real if self._descriptor is None else self._descriptor) as found:
            yield from found

    def target_of(self, link: str) -> str:
        """Where the symbolic link ``link`` of this directory points."""
        if self._descriptor is None:
            return os.readlink(os.path.join(self._real, link))
        return os.readlink(link, dir_fd=self._descriptor)

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class Root:
    """The directory ``path``, from which files are opened. Raises MisuseError when there is no such directory."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        given = os.path.abspath(os.fspath(path))
        self.path = os.path.realpath(given)
        if not os.path.isdir(self.path):
            raise MisuseError(f"no directory to work in: {given}")
        self._spellings = [_parts(spelling) for spelling in dict.fromkeys((self.path, given))]

    def open(self, path: str) -> Opened:
        """Open the file or directory ``path``, relative to the root or absolute inside it.

        Raises NotThere, or a ToolError with a message for the model: the path leads outside, to a pipe or a device, or
        to what may not be read.
        """
        if "\0" in path:
            raise ToolError("A path can't hold a NUL character.")
        try:
            steps = self._below(path)
            for _ in range(_MOST_TURNS):
                if steps is None:
                    raise ToolError(_OUTSIDE.format(shown_path(path)))
                found = self._descend(path, steps) if _RELATIVE else self._resolve(path, steps)
                if isinstance(found, Opened):
                    return found
                steps = found
        except UnicodeEncodeError:
            raise NotThere(path, ".", path) from None
        except PermissionError:
            raise ToolError(f"Permission denied: {shown_path(path)}") from None
        except OSError as error:
            raise ToolError(f"{shown_path(path)} can't be opened: {error.strerror or error}") from None
        raise ToolError(f"{shown_path(path)} leads through too many links.")

    def _below(self, path: str) -> list[str] | None:
        """The components of ``path`` below the root; None when it is absolute and elsewhere."""
        steps = _parts(path)
        if not os.path.isabs(path):
            return steps
        for spelling in self._spellings:
            if steps[: len(spelling)] == spelling:
                return steps[len(spelling) :]
        return None

    def _descend(self, path: str, steps: list[str]) -> Opened | list[str] | None:
        """Go down from the root. At a link or ``..``, give the steps that lead on in its place; None leads outside."""
        descriptor = os.open(self.path, _READ | _flags("O_DIRECTORY"))
        try:
            for i, name in enumerate(steps):
                before, after = steps[:i], steps[i + 1 :]
                if name == "..":
                    os.close(descriptor)
                    return [*before[:-1], *after] if before else None
                try:
                    info = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except FileNotFoundError:
                    raise NotThere(path, "/".join(before) or ".", name) from None
                if stat.S_ISLNK(info.st_mode):
                    target = os.readlink(name, dir_fd=descriptor)
                    below = self._below(target)
                    os.close(descriptor)
                    if below is None or os.path.isabs(target):
                        return None if below is None else [*below, *after]
                    return [*before, *below, *after]
                _refuse_odd("/".join([*before, name]), info, last=not after)
                inner = os.open(name, _PASS if after else _READ, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            info = os.fstat(descriptor)
            _refuse_odd("/".join(steps), info, last=True)
            return Opened("/".join(steps) or ".", descriptor, info, self.path)
        except BaseException:
            os.close(descriptor)
            raise

    def _resolve(self, path: str, steps: list[str]) -> Opened | None:
        """The same by resolving and comparing, for systems without descriptors of directories."""
        if any(":" in step for step in steps) and os.name == "nt":
            raise ToolError(f"{shown_path(path)} is no plain file name.")
        real = os.path.realpath(os.path.join(self.path, *steps))
        if not self._holds(real):
            return None
        inside = os.path.relpath(real, self.path).replace(os.sep, "/")
        try:
            info = os.lstat(real)
        except FileNotFoundError:
            parent, _, name = inside.rpartition("/")
            while parent and not os.path.isdir(os.path.join(self.path, parent)):
                parent, _, name = parent.rpartition("/")
            raise NotThere(path, parent or ".", name) from None
        except NotADirectoryError:
            raise ToolError(f"{shown_path(path)} leads through a file that is not a directory.") from None
        _refuse_odd(inside, info, last=True)
        if stat.S_ISDIR(info.st_mode):
            return Opened(inside, None, info, real)
        descriptor = os.open(real, _READ)
        opened = os.fstat(descriptor)
        if os.path.realpath(real) != real or not os.path.samestat(opened, info):
            os.close(descriptor)
            raise ToolError(f"{shown_path(path)} changed while it was opened; try again.")
        return Opened(inside, descriptor, opened, real)

    def _holds(self, real: str) -> bool:
        try:
            return os.path.commonpath([real, self.path]) == self.path
        except ValueError:  # another drive
            return False


_OUTSIDE = '{} is outside the workspace. Give a path relative to its root, as list_files shows them; "." is the root.'


def _parts(path: str) -> list[str]:
    separators = r"[\\/]" if os.sep == "\\" else "/"
    return [part for part in re.split(separators, path) if part not in ("", ".")]


def _refuse_odd(path: str, info: os.stat_result, last: bool) -> None:
    if stat.S_ISDIR(info.st_mode) or (last and stat.S_ISREG(info.st_mode)):
        return
    if stat.S_ISREG(info.st_mode):
        raise ToolError(f"{shown_path(path)} is a file, not a directory.")
    raise ToolError(f"{shown_path(path)} is {kind_words(info.st_mode)}, not a file or directory.")


def kind_words(mode: int) -> str:
    """What kind of thing a file's mode says it is."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFREG: "a file",
        stat.S_IFLNK: "a link",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something special")
