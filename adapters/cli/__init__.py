"""The command ``edgewise``: runs agents in a terminal, resumes them, fetches models."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_EXTRA = ("typer", "rich", "click")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with ``argv`` (without it, the program's own) and give its exit code."""
    try:
        from edgewise.adapters.cli.app import run_app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        sys.stderr.write(f'the command needs the package {package}: pip install "edgewise[cli]"\n')
        return 2
    return run_app(argv)
