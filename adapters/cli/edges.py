"""Sets up structlog for the command: one line for each edge, for people or for machines.

Lines are not written at once but kept until their edge is shown, so that they stand between the words and the calls
that they belong to; the screen writes them in one place with all else.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, TypeAlias

import structlog
from structlog.dev import Column, ConsoleRenderer, KeyValueColumnFormatter

from edgewise.adapters.cli.words import one_line

Form: TypeAlias = Literal["console", "json"]
Fields: TypeAlias = MutableMapping[str, Any]


class EdgeLines:
    """The lines that were logged and not yet shown. To structlog it is a logger."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque()

    def take(self, seq: float = math.inf) -> list[str]:
        """The lines up to the edge with the number ``seq``; they are not given again."""
        taken = []
        while self._lines and self._lines[0][0] <= seq:
            taken.append(self._lines.popleft()[1])
        return taken

    def info(self, line: str, seq: float) -> None:
        self._lines.append((seq, line))

    debug = warning = error = critical = exception = info


def configure(edges: bool, form: Form) -> EdgeLines:
    """Make structlog keep lines here: all of them, or without ``edges`` just the warnings."""
    lines = EdgeLines()
    processors: list[Any] = [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level]
    if form == "json":
        processors += [structlog.processors.TimeStamper(fmt="iso"), _numbered(structlog.processors.JSONRenderer())]
    else:
        processors += [_numbered(_for_people)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger("info" if edges else "warning"),
        logger_factory=lambda *names: lines,
        cache_logger_on_first_use=False,
    )
    return lines


def _numbered(render: Callable[[Any, str, Fields], Any]) -> Callable[[Any, str, Fields], Any]:
    def numbered(logger: Any, method: str, fields: Fields) -> Any:
        seq = fields.get("seq", 0)
        return (str(render(logger, method, fields)), seq), {}

    return numbered


def _value(key: str, width: int = 0, prefix: str = "") -> Column:
    return Column(key, KeyValueColumnFormatter(None, "", "", str, width, prefix))


_people = ConsoleRenderer(
    columns=[
        _value("event"),
        _value("seq", 3),
        _value("turn", prefix="t"),
        _value("edge", 33),
        _value("signal"),
        _value("orders", prefix="⇒ "),
        _value("after"),
        Column("", KeyValueColumnFormatter("", "", "", lambda value: one_line(str(value)))),
    ],
    sort_keys=False,
    exception_formatter=structlog.dev.plain_traceback,
)


def _for_people(logger: Any, method: str, fields: Fields) -> Any:
    """An edge in as few words as tell all of it. Fields that were bound by others follow as they are."""
    fields.pop("run", None)
    level = fields.pop("level")
    if fields["event"] != "edge":
        fields["event"] = f"{level}: {fields['event']}"
        return _people(logger, method, fields)
    signal, guard, effects = fields.pop("signal"), fields.pop("guard"), fields.pop("effects")
    calls = "".join(f" c{slot}" for slot in fields.pop("slots", ()))
    shown = {
        "event": "edge",
        "seq": fields.pop("seq"),
        "turn": fields.pop("turn"),
        "edge": f"{fields.pop('source')} → {fields.pop('target')}",
        "signal": f"{signal}{calls}{f' [{guard}]' if guard else ''}",
        "after": f"({fields.pop('seconds'):.3f}s)",
        "tokens": f"{fields.pop('input_tokens')}+{fields.pop('output_tokens')}",
        **fields,
    }
    if effects:
        shown["orders"] = ", ".join(effects)
    if not signal.startswith("Model"):
        del shown["tokens"]  # no more than at the edge before
    return _people(logger, method, shown)
