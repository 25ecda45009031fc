"""A real OpenAI-compatible HTTP server with a real model, for tests: llama.cpp's own, in a process of its own.

Run as a program it serves until its standard input closes: ``python openai_compatible_server.py MODEL.gguf LOG``. In
front of llama.cpp's server (on a socket that only this program knows) stands a small relay that writes every request
body to LOG, a JSON line each, so that tests can read from the server's side what a client sent.

The chat template beside this file shows the model the fence that it writes for a call anyway; with it, llama.cpp makes
real ``tool_calls`` of the fence. After a tool's result the template says no more of tools, so the model answers.
"""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("fence.jinja")
START_WITHIN = 60.0
"""Seconds to load a model on a busy machine."""


class ServerUnderTest:
    """A running server. ``base_url`` ends in ``/v1``; ``model`` is the name to ask for; any API key will do."""

    def __init__(self, base_url: str, log: Path) -> None:
        self.base_url = base_url
        self.model = "qwen2.5-coder-0.5b"
        self._log = log

    def requests(self) -> list[dict[str, Any]]:
        """The bodies of all chat completion requests so far, as the server got them."""
        return [json.loads(line) for line in self._log.read_text(encoding="utf-8").splitlines()]


@contextmanager
def openai_server(weights: Path, threads: int = 1, context: int = 4096) -> Iterator[ServerUnderTest]:
    """Start a server with the model in ``weights``, on a free loopback port, and end it afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory, "requests.jsonl")
        log.touch()
        command = [sys.executable, __file__, str(weights), str(log), str(threads), str(context)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            too_late = threading.Timer(START_WITHIN, process.kill)
            too_late.start()
            try:
                ready = process.stdout.readline()
                too_late.cancel()
                if not ready:
                    raise RuntimeError(f"the server did not start within {START_WITHIN:.0f} s")
                yield ServerUnderTest(json.loads(ready)["base_url"], log)
            finally:
                too_late.cancel()
                process.stdin.close()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def _relay(upstream: str, log: Path) -> type[BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Relay(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self, body: bytes | None) -> None:
            connection = _UnixConnection(upstream)
            try:
                headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while piece := answer.read1(65536):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client went away; so does the connection to the model
            finally:
                connection.close()

        def do_GET(self) -> None:
            self._pass(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with lock, log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(json.loads(body)) + "\n")
            self._pass(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Relay


def main(weights: str, log: str, threads: str = "1", context: str = "4096") -> None:
    import xllamacpp

    with tempfile.TemporaryDirectory() as directory:
        params = xllamacpp.CommonParams()
        params.model.path = weights
        params.n_ctx = int(context)
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = 128
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
        params.chat_template = TEMPLATE.read_text(encoding="utf-8")
        params.hostnames = [f"{directory}/llama.sock"]
        params.verbosity = -1
        params.warmup = False
        engine = xllamacpp.Server(params)
        relay = ThreadingHTTPServer(("127.0.0.1", 0), _relay(f"{directory}/llama.sock", Path(log)))
        relay.daemon_threads = True
        threading.Thread(target=relay.serve_forever, daemon=True).start()
        print(json.dumps({"base_url": f"http://127.0.0.1:{relay.server_address[1]}/v1"}), flush=True)  # noqa: T201
        sys.stdin.read()
        relay.shutdown()
        relay.server_close()
        del engine


if __name__ == "__main__":
    main(*sys.argv[1:])
