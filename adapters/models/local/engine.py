"""llama.cpp in this process: one engine for each file, in a thread of its own, one generation at a time.

An engine's thread is the one worker of an executor, so requests queue, and waiting ones can be taken back. llama.cpp is
stopped through the callback that it makes for each token and for each piece of the prompt: while it writes that is some
forty milliseconds after the wish, while it reads a prompt perhaps half a second on a slow core. Nobody waits for that:
after a tenth of a second the thread is left to wind down, and the next request waits its turn.

Its server always listens somewhere. Here that is a socket in a private directory which is removed at once.
"""

from __future__ import annotations

import atexit
import importlib
import os
import secrets
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import trio

from edgewise.statemachine.errors import Failure, FailureKind, MisuseError, ModelError

GRACE = 0.1
"""Seconds that a cancelled request waits for llama.cpp to stop."""
PROMPT_BATCH = 64
"""Tokens read between two looks at whether to stop. Smaller is slower, larger is deafer."""
THREADS_VARIABLE = "EDGEWISE_LOCAL_THREADS"
_CHUNK = 1 << 23


@attrs.frozen
class Generated:
    """What a generation came to. ``finish`` is ``stop`` or ``length``."""

    finish: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int


class Engine:
    """A loaded model, or one that will be loaded by the first request. Get one by :func:`engine`."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        self.path = path
        self.context = context
        self._threads = threads
        self._server: Any = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"edgewise-{path.stem}")

    async def generate(self, body: dict[str, Any], on_text: Callable[[str], None]) -> Generated:
        """Run a chat completion; ``on_text`` gets each piece of text, in the task's own thread.

        Raises ModelError. When cancelled, the generation is stopped; what it wrote until then has gone to ``on_text``.
        """
        token = trio.lowlevel.current_trio_token()
        finished = trio.Event()
        stop = threading.Event()
        broken: list[Exception] = []

        def take(piece: str) -> None:
            try:
                if not closed:
                    on_text(piece)
            except Exception as error:  # it must not end the event loop
                broken.append(error)
                stop.set()

        def tell(function: Callable[..., object], *args: object) -> None:
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(function, *args)

        closed = False
        future: Future[Generated | None] = self._worker.submit(
            self._generate, body, lambda piece: tell(take, piece), stop.is_set
        )
        future.add_done_callback(lambda _: tell(finished.set))
        try:
            await finished.wait()
        except BaseException:
            stop.set()
            if not future.cancel():
                with trio.move_on_after(GRACE, shield=True):
                    await finished.wait()
            raise
        finally:
            closed = True
        if broken:
            raise broken[0]
        generated = future.result()
        if generated is None:
            raise CancelledError("the engine was closed")
        return generated

    def close(self) -> None:
        """Free the model, after what is at work."""
        self._worker.shutdown(cancel_futures=True)
        self._server = None

    # What follows runs in the worker thread.

    def _generate(
        self, body: dict[str, Any], on_text: Callable[[str], None], stopped: Callable[[], bool]
    ) -> Generated | None:
        server = self._server
        if server is None and not stopped():
            server = self._server = self._load(stopped)
        if server is None or stopped():
            return None
        reading = _Reading(on_text, stopped, self.context)
        body = {**body, "stream": True, "return_progress": True, "stream_options": {"include_usage": True}}
        try:
            server.handle_chat_completions(body, reading)
        except (RuntimeError, ValueError) as error:
            raise _failed("invalid_request", f"llama.cpp refused the request: {error}") from error
        return reading.result()

    def _load(self, stopped: Callable[[], bool]) -> Any:
        try:
            with self.path.open("rb") as file:
                if file.read(4) != b"GGUF":
                    raise _failed("invalid_request", f"{self.path} is not a GGUF file")
                # llama.cpp holds the interpreter while it loads: let it find the file in memory.
                while not stopped() and file.read(_CHUNK):
                    pass
        except OSError as error:
            raise _failed("not_found", f"the model's file cannot be read: {error}") from error
        if stopped():
            return None
        xllamacpp: Any = importlib.import_module("xllamacpp")  # it has no types
        params = xllamacpp.CommonParams()
        params.model.path = os.fspath(self.path)
        params.n_ctx = self.context
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = PROMPT_BATCH
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.cache_ram_mib = 256
        params.warmup = False
        params.verbosity = -1
        params.ui = False
        params.endpoint_slots = False
        params.api_keys = [secrets.token_hex()]
        with tempfile.TemporaryDirectory(prefix="edgewise-") as private:
            if sys.platform != "win32":
                params.hostnames = [f"{private}/llama.sock"]
            try:
                return xllamacpp.Server(params)
            except RuntimeError as error:
                raise _failed("invalid_request", f"llama.cpp cannot load {self.path}: {error}") from error


class _Reading:
    """The callback of one generation: hands on text, keeps the figures, and says whether to stop."""

    def __init__(self, on_text: Callable[[str], None], stopped: Callable[[], bool], context: int) -> None:
        self._on_text = on_text
        self._stopped = stopped
        self._context = context
        self._failure: ModelError | None = None
        self._finish = ""
        self._usage: dict[str, Any] = {}

    def __call__(self, chunk: dict[str, Any]) -> bool:
        try:
            return self._take(chunk) or self._stopped()
        except Exception as error:  # llama.cpp would swallow it
            self._failure = _failed("internal", f"cannot read {chunk!r}: {error!r}")
            return True

    def _take(self, chunk: dict[str, Any]) -> bool:
        if error := chunk.get("error"):
            overflow = error.get("type") == "exceed_context_size_error"
            self._failure = _failed("context_overflow" if overflow else "invalid_request", str(error.get("message")))
            return True
        tokens = chunk.get("prompt_progress", {}).get("total", 0)
        if tokens > self._context - min(256, self._context // 8):
            self._failure = _failed(
                "context_overflow", f"{tokens} tokens leave no room for a reply in a context of {self._context}"
            )
            return True
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", ()):
            self._finish = choice.get("finish_reason") or self._finish
            if text := choice.get("delta", {}).get("content"):
                self._on_text(text)
        return False

    def result(self) -> Generated | None:
        if self._failure is not None:
            raise self._failure
        if not self._finish:
            if self._stopped():
                return None
            raise _failed("protocol", "llama.cpp ended without a finish reason", True)
        cached = (self._usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return Generated(
            "length" if self._finish == "length" else "stop",
            self._usage.get("prompt_tokens", 0),
            cached,
            self._usage.get("completion_tokens", 0),
        )


def _failed(kind: FailureKind, message: str, retryable: bool = False) -> ModelError:
    return ModelError(Failure(kind, message, retryable, provider="local"))


_engines: dict[tuple[Path, int, int], Engine] = {}
_guard = threading.Lock()


def engine(path: Path, threads: int | None = None, context: int = 8192) -> Engine:
    """The engine of ``path`` in this process; the same one for everybody who asks with the same figures."""
    key = (path.resolve(), threads or default_threads(), context)
    with _guard:
        known = _engines.get(key)
        if known is None:
            known = _engines[key] = Engine(*key)
        return known


def close_engines() -> None:
    """Free all loaded models. Requests that still wait are given up."""
    with _guard:
        engines = list(_engines.values())
        _engines.clear()
    for known in engines:
        known.close()


atexit.register(close_engines)


def default_threads() -> int:
    """``$EDGEWISE_LOCAL_THREADS``, else the cores that this process may use, at most 8."""
    chosen = os.environ.get(THREADS_VARIABLE)
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            raise MisuseError(f"{THREADS_VARIABLE} is {chosen!r}; it should be a number of threads, such as 2")
        return int(chosen)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8)
