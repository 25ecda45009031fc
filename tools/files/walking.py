"""What is in a workspace, level by level, within bounds."""

from __future__ import annotations

import itertools
import stat
from collections import deque
from collections.abc import Iterator

import attrs

from edgewise.tools.errors import ToolError
from edgewise.tools.files.confine import Opened, Root

MOST_IN_DIRECTORY = 10_000
_MOST_WALKED = 3_000

_NEVER_LISTED = frozenset({".git", ".hg", ".svn"})
_NEVER_OPENED = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


@attrs.frozen
class Entry:
    """One name in a directory. ``path`` is relative to the root; ``target`` is where a symbolic link points."""

    path: str
    mode: int
    size: int
    target: str | None = None

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_closed(self) -> bool:
        """Whether to name this directory only, unless asked for it: hidden ones, and those that tools fill."""
        name = self.path.rpartition("/")[2]
        return name.startswith(".") or name in _NEVER_OPENED


def entries_of(opened: Opened) -> list[Entry]:
    """What is in a directory, sorted by name; version control's own directories are left out."""
    prefix = "" if opened.path == "." else f"{opened.path}/"
    found: list[Entry] = []
    for entry in itertools.islice(opened.entries(), MOST_IN_DIRECTORY):
        if entry.name in _NEVER_LISTED:
            continue
        try:
            info = entry.stat(follow_symlinks=False)
            target = opened.target_of(entry.name) if stat.S_ISLNK(info.st_mode) else None
        except OSError:
            continue  # gone in the meantime
        found.append(Entry(prefix + entry.name, info.st_mode, info.st_size, target))
    return sorted(found, key=lambda entry: entry.path)


def walk(root: Root) -> Iterator[Entry]:
    """Everything below the root, the shallow first, up to some thousands of entries."""
    waiting, seen = deque(["."]), 0
    while waiting and seen < _MOST_WALKED:
        try:
            with root.open(waiting.popleft()) as opened:
                entries = entries_of(opened) if opened.is_directory else []
        except ToolError:
            continue
        for entry in entries:
            seen += 1
            yield entry
            if entry.is_directory and not entry.is_closed:
                waiting.append(entry.path)
