"""A Chat Completions server on loopback that does what a test tells it, down to the single byte.

Each answer is one HTTP response; the server gives them in turn, and keeps what it was asked and when a client hung up.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import attrs
import h11
import pytest
import trio

Piece: TypeAlias = bytes | Callable[[], Awaitable[object]]
"""Bytes to send, or something to await before the next piece."""


class Cut(Exception):
    """Raised by a piece to break the connection off."""


@attrs.frozen
class Answer:
    """One response. ``split``: at most how many bytes go into one chunk."""

    pieces: Sequence[Piece] = ()
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    content_type: str = "text/event-stream"
    split: int | None = None
    gzipped: bool = False


@attrs.define(eq=False)
class WireServer:
    """What the server was asked (``requests``, the bodies), with which headers, and when clients hung up."""

    port: int = 0
    answers: list[Answer] = attrs.field(factory=list)
    requests: list[dict[str, Any]] = attrs.field(factory=list)
    raw: list[bytes] = attrs.field(factory=list)
    headers: list[dict[str, str]] = attrs.field(factory=list)
    paths: list[str] = attrs.field(factory=list)
    connections: int = 0
    hung_up: trio.Event = attrs.field(factory=trio.Event)

    @staticmethod
    def event(chunk: Mapping[str, Any]) -> bytes:
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    @staticmethod
    def delta(finish: str | None = None, index: int = 0, **fields: Any) -> dict[str, Any]:
        """A chunk with one choice."""
        choice = {"index": index, "delta": fields, "finish_reason": finish}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}

    @staticmethod
    async def cut() -> None:
        """A piece that breaks the connection off."""
        raise Cut

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def will_answer(self, *pieces: Piece, **how: Any) -> None:
        self.answers.append(Answer(pieces, **how))

    def will_stream(self, *chunks: Mapping[str, Any], **how: Any) -> None:
        """Answer with these chunks, then ``[DONE]``."""
        self.will_answer(*map(self.event, chunks), b"data: [DONE]\n\n", **how)

    def will_fail(self, status: int, body: object, **headers: str) -> None:
        """Answer with an error status; a text goes as a web page, all else as JSON."""
        page = isinstance(body, str)
        sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append(Answer([sent], status, named, "text/html" if page else "application/json"))

    async def start(self, nursery: trio.Nursery) -> None:
        """Listen, at the port of last time if there was one."""
        serve = partial(trio.serve_tcp, self.serve, self.port, host="127.0.0.1")
        listeners = await nursery.start(serve)
        self.port = listeners[0].socket.getsockname()[1]

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        connection = h11.Connection(h11.SERVER)
        with suppress(trio.BrokenResourceError):
            async with stream:
                while await self._one_exchange(stream, connection):
                    connection.start_next_cycle()
        self.hung_up.set()

    async def _one_exchange(self, stream: trio.SocketStream, connection: h11.Connection) -> bool:
        body = b""
        while True:
            heard = connection.next_event()
            if heard is h11.NEED_DATA:
                connection.receive_data(await stream.receive_some())
            elif isinstance(heard, h11.Request):
                self.headers.append({name.decode().lower(): value.decode() for name, value in heard.headers})
                self.paths.append(heard.target.decode())
            elif isinstance(heard, h11.Data):
                body += heard.data
            elif isinstance(heard, h11.EndOfMessage):
                break
            else:
                return False
        self.raw.append(body)
        self.requests.append(json.loads(body))
        answer = self.answers.pop(0)
        whole = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, stream, nursery.cancel_scope)
            with suppress(Cut, trio.BrokenResourceError):
                await self._send(stream, connection, answer)
                whole = True
            nursery.cancel_scope.cancel()
        return whole

    async def _watch(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """See the client hang up while an answer is under way."""
        with suppress(trio.BrokenResourceError):
            await stream.receive_some()
        self.hung_up.set()
        scope.cancel()

    async def _send(self, stream: trio.SocketStream, connection: h11.Connection, answer: Answer) -> None:
        headers = {"content-type": answer.content_type, "transfer-encoding": "chunked", **answer.headers}
        pieces = answer.pieces
        if answer.gzipped:
            headers["content-encoding"] = "gzip"
            pieces = [gzip.compress(b"".join(piece for piece in pieces if isinstance(piece, bytes)))]
        await stream.send_all(
            connection.send(h11.Response(status_code=answer.status, headers=list(headers.items()))) or b""
        )
        for piece in pieces:
            if isinstance(piece, bytes):
                size = answer.split or len(piece) or 1
                for start in range(0, len(piece), size):
                    await stream.send_all(connection.send(h11.Data(data=piece[start : start + size])) or b"")
            else:
                await piece()
        await stream.send_all(connection.send(h11.EndOfMessage()) or b"")


@pytest.fixture
def wire_server() -> type[WireServer]:
    """The class, for tests that make their own trio runs."""
    return WireServer


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    serving = WireServer()
    async with trio.open_nursery() as nursery:
        await serving.start(nursery)
        yield serving
        nursery.cancel_scope.cancel()
