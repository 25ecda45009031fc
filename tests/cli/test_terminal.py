"""In a terminal: colours unless they are not wanted, words as they come, calls where they belong."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

MAIN = "import sys; from edgewise.adapters.cli import main; sys.exit(main())"


class Terminal:
    """A process whose stdin, stdout and stderr are one pseudo-terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.seen = b""

    def read_until(self, word: str) -> str:
        until = time.monotonic() + 20
        while word.encode() not in self.seen:
            assert self._read(until - time.monotonic()), f"{word!r} never came; seen: {self.text!r}"
        return self.text

    def read_all(self) -> str:
        while self._read(20):
            pass
        self.process.wait(20)
        return self.text

    @property
    def text(self) -> str:
        return self.seen.decode().replace("\r\n", "\n")

    def _read(self, patience: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, patience))[0]:
            return False
        try:
            piece = os.read(self._master, 4096)
        except OSError:  # the other side was closed
            return False
        self.seen += piece
        return bool(piece)


@pytest.fixture
def terminal() -> Callable[..., Any]:
    @contextmanager
    def start(*argv: object, **environment: str) -> Iterator[Terminal]:
        master, slave = pty.openpty()
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "CI")}
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *map(str, argv)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": "xterm-256color", **environment},
        )
        os.close(slave)
        try:
            yield Terminal(process, master)
        finally:
            process.kill()
            process.wait()
            os.close(master)

    return start


def test_words_come_as_they_are_said_and_lines_do_not_run_into_each_other(
    server: Any, files: Path, terminal: Any
) -> None:
    server.calls(("list_files", "{}"), text="Let me look.")
    held = server.says("There are ", "two", hold=True)
    with terminal("run", "List", "-w", files, "-v", NO_COLOR="1") as shown:
        shown.read_until("There are two")
        assert shown.process.poll() is None
        held.let_go.set()
        text = shown.read_all()
    assert shown.process.returncode == 0
    assert not re.search(r"\x1b\[[34]\d", text), "there are colours"
    text = re.sub(r"\x1b\[\d*m", "", text)
    places = [
        text.index(word)
        for word in (
            "\nLet me look.\nedge",
            "ModelReplied [has calls]",
            "\n→ list_files({})\n",
            "CallSettled c0",
            "\n← list_files:\n    README.md",
            "\nThere are two\nedge",
            "\ndone: 2 turns",
        )
    ]
    assert places == sorted(places)


def test_colours_are_used_in_a_terminal(server: Any, files: Path, terminal: Any) -> None:
    server.calls(("list_files", "{}"))
    server.says("Two.")
    with terminal("run", "List", "-w", files) as shown:
        text = shown.read_all()
    assert "\x1b[36m→ list_files({})\x1b[0m" in text


def test_ctrl_c_typed_at_the_terminal_aborts(server: Any, files: Path, terminal: Any) -> None:
    server.says("Once ", hold=True)
    with terminal("run", "Tell", "-w", files, NO_COLOR="1") as shown:
        shown.read_until("Once")
        os.kill(shown.process.pid, 2)
        text = shown.read_all()
        assert shown.process.returncode == 4
    assert re.search(r"Once \n(\x1b\[\d*m)*aborting", text) and "Traceback" not in text
