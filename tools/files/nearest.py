"""Which files may have been meant by a path that leads to none."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from edgewise.tools.errors import ToolError
from edgewise.tools.files.confine import NotThere, Root
from edgewise.tools.files.naming import shown_path
from edgewise.tools.files.walking import walk

_MOST = 3


def with_suggestions(root: Root, missing: NotThere, directories: bool = False) -> ToolError:
    """The error of ``missing`` with the nearest names: in the same directory, then of the same name elsewhere."""
    kind = "Directory" if directories else "File"
    said = f"{kind} not found: {shown_path(missing.path)}."
    found = nearest(root, missing, directories)
    if not found:
        return ToolError(f"{said} Use list_files to see what is there.")
    *others, last = map(shown_path, found)
    names = f"{', '.join(others)} or {last}" if others else last
    return ToolError(f"{said} Did you mean {names}?")


def nearest(root: Root, missing: NotThere, directories: bool = False) -> list[str]:
    """At most three paths of files (or directories) that ``missing`` may have meant, the likeliest first."""
    wanted = "/".join(part for part in missing.path.replace("\\", "/").split("/") if part not in ("", "."))
    name = wanted.rpartition("/")[2]
    prefix = "" if missing.parent == "." else f"{missing.parent}/"
    paths = [entry.path for entry in walk(root) if entry.is_directory == directories]
    beside = [path for path in paths if path.startswith(prefix) and "/" not in path[len(prefix) :]]
    # The missing name is that of the file only when it is the path's last part.
    ending = name == missing.name
    found = [
        *(_close(name, beside, by_name=True) if ending else []),
        *(path for path in paths if path.rpartition("/")[2].casefold() == name.casefold()),
        *_close(wanted, paths, by_name=False),
        *_close(name, paths, by_name=True),
    ]
    return list(dict.fromkeys(found))[:_MOST]


def _close(wanted: str, paths: Iterable[str], by_name: bool) -> list[str]:
    keys: dict[str, list[str]] = {}
    for path in paths:
        key = path.rpartition("/")[2] if by_name else path
        keys.setdefault(key.casefold(), []).append(path)
    close = difflib.get_close_matches(wanted.casefold(), keys, n=_MOST, cutoff=0.6 if by_name else 0.75)
    return [path for key in close for path in keys[key]]
