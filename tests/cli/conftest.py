"""What the command's tests stand on: a Chat Completions server with canned replies, and the command as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
import structlog

from edgewise.adapters.cli import main


@attrs.define(eq=False)
class Reply:
    """One streamed reply: ``pieces`` of text, then ``calls``. With ``hold`` it stops in between until it is let go."""

    pieces: tuple[str, ...] = ()
    calls: tuple[tuple[str, str], ...] = ()
    status: int = 200
    error: str = ""
    hold: bool = False
    let_go: threading.Event = attrs.field(factory=threading.Event)
    gone: threading.Event = attrs.field(factory=threading.Event)
    """Set once the client has hung up, or the reply is over."""


class Canned:
    """Gives its replies in turn, and keeps the requests."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def says(self, *pieces: str, hold: bool = False) -> Reply:
        return self._add(Reply(pieces, hold=hold))

    def calls(self, *wanted: tuple[str, str], text: str = "") -> Reply:
        return self._add(Reply((text,) if text else (), wanted))

    def fails(self, status: int, error: str) -> Reply:
        return self._add(Reply(status=status, error=error))

    def _add(self, reply: Reply) -> Reply:
        self.replies.append(reply)
        return reply

    def close(self) -> None:
        for reply in self.replies:
            reply.let_go.set()
        self.http.shutdown()
        self.http.server_close()


def _handler(canned: Canned) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            canned.requests.append(json.loads(body))
            reply = canned.replies[len(canned.requests) - 1]
            try:
                self._answer(reply)
            except (BrokenPipeError, ConnectionResetError):
                pass
            reply.gone.set()

        def _answer(self, reply: Reply) -> None:
            self.send_response(reply.status)
            streams = reply.status == 200
            self.send_header("content-type", "text/event-stream" if streams else "application/json")
            self.send_header("connection", "close")
            self.end_headers()
            if not streams:
                self.wfile.write(json.dumps({"error": {"message": reply.error, "type": "test"}}).encode())
                return
            for piece in reply.pieces:
                self._chunk({"content": piece})
            while reply.hold and not reply.let_go.wait(0.05):
                self.wfile.write(b": still there\n\n")
            for index, (name, arguments) in enumerate(reply.calls):
                function = {"name": name, "arguments": arguments}
                self._chunk({"tool_calls": [{"index": index, "id": f"call_{index}", "function": function}]})
            self._chunk({}, "tool_calls" if reply.calls else "stop")
            self.wfile.write(b"data: [DONE]\n\n")

        def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
            chunk: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            if finish:
                chunk["usage"] = {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    """A server with canned replies, to which ``--model openai:test`` goes. The default model of these tests."""
    canned = Canned()
    monkeypatch.setenv("OPENAI_BASE_URL", canned.url)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("EDGEWISE_MODEL", "openai:test")
    monkeypatch.setenv("NO_COLOR", "1")
    yield canned
    canned.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A small workspace."""
    root = tmp_path / "files"
    (root / "src").mkdir(parents=True)
    (root / "README.md").write_text("# Hello\n\nSome words.\n")
    (root / "src" / "index.ts").write_text("export {};\n")
    return root


@attrs.frozen
class Said:
    """What the command did."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """Its output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def edgewise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Said]]:
    """Runs the command in this process, in a wide terminal."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*argv: object) -> Said:
        capsys.readouterr()
        code = main([str(arg) for arg in argv])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    yield run
    structlog.reset_defaults()


_MAIN = "import sys; from edgewise.adapters.cli import main; sys.exit(main())"


@pytest.fixture
def command() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command as a process of its own; what is left of it in the end is killed."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*argv: object, program: Path | None = None, **options: Any) -> subprocess.Popen[bytes]:
        begin = [str(program)] if program else ["-c", _MAIN]
        process = subprocess.Popen(
            [sys.executable, *begin, *map(str, argv)],
            stdin=subprocess.DEVNULL,
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            **options,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
