"""How paths and sizes are written for a model."""

from __future__ import annotations

import json

from edgewise.statemachine.arguments import mended

_LONGEST = 500


def shown_path(path: str) -> str:
    """``path`` as it is, or quoted when it holds line breaks or other things that can't be seen.

    >>> shown_path("a b.txt"), shown_path("a\\nb.txt")
    ('a b.txt', '"a\\\\nb.txt"')
    """
    if len(path) > _LONGEST:
        path = f"{path[:_LONGEST]}…"
    return path if path.isprintable() else json.dumps(mended(path), ensure_ascii=False)


def shown_size(size: int) -> str:
    """A size in bytes, KB, MB or GB (of 1,000).

    >>> shown_size(1), shown_size(120), shown_size(1234), shown_size(5_600_000)
    ('1 byte', '120 bytes', '1.2 KB', '5.6 MB')
    """
    if size < 1000:
        return "1 byte" if size == 1 else f"{size} bytes"
    value = float(size)
    for unit in ("KB", "MB", "GB"):
        value /= 1000
        if value < 999.95 or unit == "GB":
            break
    return f"{value:,.1f} {unit}"
