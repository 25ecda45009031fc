"""``list_files``: what is in the workspace, one path per line."""

from __future__ import annotations

import os
import stat
from typing import Annotated, Any

from edgewise.tools.errors import ToolError
from edgewise.tools.files.confine import NotThere, Root, kind_words
from edgewise.tools.files.naming import shown_path, shown_size
from edgewise.tools.files.nearest import with_suggestions
from edgewise.tools.files.walking import MOST_IN_DIRECTORY, Entry, entries_of
from edgewise.tools.functions import FunctionTool, tool

MOST_LINES = 500


def list_files(root: str | os.PathLike[str] | Root = ".") -> FunctionTool[..., Any]:
    """The tool that lists the files of the directory ``root``.

    Directories are opened level by level as long as all of their names fit into 500 lines; the rest are named with a
    slash. Hidden ones and such as ``node_modules`` are named only, version control's are left out.
    """
    from msgspec import Meta

    space = root if isinstance(root, Root) else Root(root)

    @tool(replay="safe")
    def list_files(
        path: Annotated[str, "The directory to list; the whole workspace when left out."] = ".",
        depth: Annotated[int, Meta(ge=1, le=20, description="How many levels of directories to open.")] = 3,
    ) -> str:
        """List the files of the workspace with their sizes, one path per line. Directories end in a slash."""
        try:
            return _listing(space, path or ".", depth)
        except NotThere as missing:
            raise with_suggestions(space, missing, directories=True) from None

    return list_files


def _listing(root: Root, path: str, depth: int) -> str:
    with root.open(path) as opened:
        if not opened.is_directory:
            raise ToolError(
                f"{shown_path(opened.path)} is a file, not a directory. Use read_file to see what is in it."
            )
        start = opened.path
        level = entries_of(opened)
    if not level:
        return "The workspace is empty." if start == "." else f"{shown_path(start)}/ is empty."
    more = f"{len(level) - MOST_LINES:,} more" if len(level) > MOST_LINES else ""
    bound = "at least " if len(level) >= MOST_IN_DIRECTORY else ""
    lines = {entry.path: _line(entry) for entry in level[:MOST_LINES]}
    for _ in range(depth - 1):
        level = _open_level(root, level, lines)
    # Sorted by components: a directory's files stand together.
    text = [lines[path] for path in sorted(lines, key=lambda path: path.split("/"))]
    if more:
        text.append(f"... and {bound}{more}.")
    return "\n".join(text)


def _open_level(root: Root, level: list[Entry], lines: dict[str, str]) -> list[Entry]:
    """Put the names in the directories of ``level`` in their places, where they fit; give those names."""
    below: list[Entry] = []
    for entry in level:
        if not entry.is_directory or entry.is_closed or entry.path not in lines:
            continue
        try:
            with root.open(entry.path) as opened:
                inside = entries_of(opened) if opened.is_directory else []
        except ToolError:
            continue
        if not inside:
            lines[entry.path] += " (empty)"
        elif len(lines) - 1 + len(inside) > MOST_LINES:
            bound = "at least " if len(inside) >= MOST_IN_DIRECTORY else ""
            lines[entry.path] += f" ({bound}{len(inside):,} entries)"
        else:
            del lines[entry.path]
            lines.update({found.path: _line(found) for found in inside})
            below += inside
    return below


def _line(entry: Entry) -> str:
    if entry.is_directory:
        return shown_path(f"{entry.path}/")
    if entry.target is not None:
        return f"{shown_path(entry.path)} -> {shown_path(entry.target)}"
    if stat.S_ISREG(entry.mode):
        return f"{shown_path(entry.path)} ({shown_size(entry.size)})"
    return f"{shown_path(entry.path)} ({kind_words(entry.mode)})"
