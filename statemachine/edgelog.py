"""The edge log: one structured line for each row taken.

The user's structlog configuration decides where lines go and how they look; ours is set by the command line alone.
Where structlog is not configured, lines go to the standard library's logger ``edgewise``, and so nowhere until
somebody asks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import structlog

from edgewise.statemachine.events import Edge
from edgewise.statemachine.messages import Usage

LOGGER = "edgewise"


class EdgeLog:
    """Writes a run's edges."""

    __slots__ = ("_log", "_run_id", "enabled")

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._log = _logger().bind(run=run_id) if _heard() else None
        asks = getattr(self._log, "is_enabled_for", None)
        self.enabled: bool = self._log is not None and (asks is None or asks(logging.INFO))
        """Whether a line would go anywhere, by the configuration in force when the run began."""
        if not self.enabled:
            self._log = None  # a bound logger is half a dozen objects, and there may be thousands of runs

    def edge(self, edge: Edge, usage: Usage) -> None:
        """Write the line of ``edge``; ``usage`` is the run's so far."""
        if self._log is None:
            return
        line: dict[str, Any] = {
            "seq": edge.seq,
            "turn": edge.turn,
            "source": edge.source.value,
            "signal": edge.signal,
            "guard": edge.guard,
            "target": edge.target.value,
            "slots": edge.slots,
            "effects": edge.effects,
            "seconds": round(edge.seconds, 6),
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
        }
        try:
            self._log.info("edge", **line)
        except Exception:
            # A processor or a sink of the user's that raises must not end a run; say so once, elsewhere.
            self.enabled = False
            logging.getLogger(LOGGER).exception("the edge log of run %s failed and is left off", edge.run_id)

    def warn(self, event: str, **fields: Any) -> None:
        """Write a line about something that is not an edge, and that somebody should know."""
        if _heard():
            (self._log or _logger().bind(run=self._run_id)).warning(event, **fields)


def _heard() -> bool:
    return structlog.is_configured() or logging.getLogger(LOGGER).isEnabledFor(logging.INFO)


def _logger() -> Any:
    if structlog.is_configured():
        return structlog.get_logger(LOGGER)
    processors: Sequence[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.filter_by_level,
        structlog.stdlib.render_to_log_kwargs,
    ]
    return structlog.wrap_logger(
        logging.getLogger(LOGGER), processors=processors, wrapper_class=structlog.stdlib.BoundLogger
    )
