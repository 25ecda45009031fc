"""Ctrl-C: the first one aborts the run, which lets its tools clean up; the second one ends the process at once."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

import trio

from edgewise.adapters.cli.exits import ABORTED

_SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class Interrupts:
    """Listens to SIGINT and SIGTERM while its block lasts.

    The handlers run between two instructions of the main thread, so they are heard even where the trio loop is busy.
    """

    def __init__(self, last_words: str) -> None:
        self._last_words = f"\n{last_words}\n".encode()
        self._old: dict[signal.Signals, Any] = {}
        self._heard = ""
        self._token: trio.lowlevel.TrioToken | None = None
        self._abort: Callable[[str], None] | None = None

    def __enter__(self) -> Interrupts:
        for number in _SIGNALS:
            self._old[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._token = None
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def attach(self, abort: Callable[[str], None]) -> None:
        """From now on, in the running trio loop, the first signal calls ``abort``; at once if it has come already."""
        self._abort = abort
        self._token = trio.lowlevel.current_trio_token()
        if self._heard:
            abort(self._heard)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._heard:
            # What was recorded is in the session's file; nothing that is left to do here needs doing.
            try:
                if select.select([], [2], [], 0)[1]:
                    os.write(2, self._last_words)
            finally:
                os._exit(ABORTED)
        self._heard = _SIGNALS[signal.Signals(number)]
        if self._token is not None and self._abort is not None:
            self._token.run_sync_soon(self._abort, self._heard)
