"""The table as Markdown: a Mermaid state diagram and a list of all rows."""

from __future__ import annotations

from collections.abc import Sequence

from edgewise.statemachine.snapshot import State
from edgewise.statemachine.table import INITIAL, ROWS, Row


def mermaid(rows: Sequence[Row] = ROWS) -> str:
    """A Mermaid ``stateDiagram-v2``: one arrow for each pair of states, labelled with the signals along it."""
    ways: dict[tuple[State, State], list[str]] = {}
    for row in rows:
        if row.target is not None:
            label = row.signal.__name__ + (f" [{row.label}]" if row.label else "")
            ways.setdefault((row.source, row.target), []).append(label.replace(";", ","))
    lines = ["stateDiagram-v2", f"    [*] --> {INITIAL}"]
    lines += [f"    {source} --> {target}: {'<br/>'.join(labels)}" for (source, target), labels in ways.items()]
    lines += [f"    {state} --> [*]" for state in State if state.final]
    return "\n".join(lines) + "\n"


def row_table(rows: Sequence[Row] = ROWS) -> str:
    """A Markdown table of ``rows``, internal ones included."""
    lines = ["| source | signal | guard | target |", "|---|---|---|---|"]
    for row in rows:
        target = row.target or "*(internal)*"
        lines.append(f"| {row.source} | {row.signal.__name__} | {row.label or '–'} | {target} |")
    return "\n".join(lines) + "\n"


def machine_page() -> str:
    """The page ``diagrams/machine.md``."""
    return (
        "# The machine\n\n"
        "Made from `statemachine/table.py` by `make generated`; do not edit.\n\n"
        f"```mermaid\n{mermaid()}```\n\n"
        "## All rows\n\nWithin a state and signal the first row whose guard holds fires. "
        f"What is not a row is refused.\n\n{row_table()}"
    )
