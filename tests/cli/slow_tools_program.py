"""The command with slow tools in place of the workspace's: one that cleans up when cancelled, one that won't hear."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import trio

from edgewise.adapters.cli import main, running
from edgewise.tools import tool


def tools(root: str) -> list[Any]:
    traces = Path(root) / "traces"

    @tool
    async def wait() -> str:
        """Take long, and clean up when told to stop."""
        with traces.open("a") as file:
            file.write("began\n")
        try:
            await trio.sleep_forever()
        finally:
            with traces.open("a") as file:
                file.write("cleaned up\n")
        return ""

    @tool
    async def be_deaf() -> str:
        """Take long, and hear nothing."""
        with traces.open("a") as file:
            file.write("began\n")
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
        return ""

    return [wait, be_deaf]


if __name__ == "__main__":
    running.workspace = tools  # type: ignore[assignment]
    sys.exit(main())
