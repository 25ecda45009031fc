"""Writes the committed pictures, or with ``--check`` says which of them are stale."""

from __future__ import annotations

import sys
from pathlib import Path

from edgewise.diagrams.markdown import machine_page


def main(arguments: list[str]) -> int:
    """Give the exit code: 0 when all is written or current, 1 when something is stale."""
    pages = {Path(__file__).resolve().parent / "machine.md": machine_page()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text("utf-8") != text]
    if arguments == ["--check"]:
        for path in stale:
            sys.stderr.write(f"{path.parent.name}/{path.name} is stale; run `make generated`\n")
        return 1 if stale else 0
    for path in stale:
        path.write_text(pages[path], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
