"""A model behind the Chat Completions wire: OpenAI's own, or any server that speaks it.

The official SDK makes the request (authentication, base URL, Azure's paths, a user's own client and proxy) and raises
for what comes back with an error status. Its ``post`` is used, not its typed ``create``, which spends 125 ms of CPU on
a history of 1,000 messages where writing them as JSON takes 1 ms. The stream we read ourselves: the SDK's does not tell
whether ``[DONE]`` was read, so that a stream which was cut would pass for a whole reply, and it leaves async generators
to the garbage collector, which trio warns of.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, cast

import httpx2
import openai
import trio

from edgewise.adapters.models.openai.failures import failure_of, transport_errors, web_page
from edgewise.adapters.models.openai.reading import Reading
from edgewise.adapters.models.projection import ChatProjection, wire_tools
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import Failure, FailureKind, MisuseError, ModelError
from edgewise.statemachine.messages import AssistantMessage
from edgewise.statemachine.ports import ModelRequest, ToolSpec

_REST_AFTER_DONE = 0.1
"""Seconds that the end of a response may take after ``[DONE]``, so that its connection can be used again."""

_SDK_OPTIONS = ("extra_headers", "extra_query", "timeout")
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")


class OpenAIModel:
    """A model of OpenAI, or of any server with a Chat Completions endpoint.

    ``client`` is a configured ``openai.AsyncOpenAI`` of yours (Azure, a proxy, keys from a vault), which stays yours to
    close. Without it, ``base_url`` (or OPENAI_BASE_URL) and ``api_key`` (or OPENAI_API_KEY) say where to go; a server
    at a URL of its own may need no key. ``timeout``: how many seconds each piece of a reply may take. ``images`` says
    whether the model sees; if not, notes stand for pictures. ``provider`` is what its name and failures begin with.

    All other options go into the body of each request as they are (``temperature=0``, ``reasoning_effort="low"``, a
    server's own); ``extra_headers``, ``extra_query`` and ``extra_body`` mean what they mean to the SDK. The options of
    a request come over them, and None takes one out; ``stream_options=None`` helps where a server refuses that.

    Raises MisuseError for options that contradict each other.
    """

    def __init__(
        self,
        model: str,
        *,
        client: openai.AsyncOpenAI | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        images: bool = True,
        provider: str = "openai",
        **options: Any,
    ) -> None:
        if not model:
            raise MisuseError('an OpenAI model needs a name, as in model("openai:gpt-5-mini")')
        if client is not None and not isinstance(client, openai.AsyncOpenAI):
            raise MisuseError(f"client must be an openai.AsyncOpenAI (or AsyncAzureOpenAI), not {client!r}")
        if client is not None and (base_url or api_key):
            raise MisuseError("give either a client, which knows its base_url and api_key, or those two, not both")
        base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        if client is None and base_url and not base_url.startswith(("http://", "https://")):
            raise MisuseError(
                f"base_url {base_url!r} must begin with http:// or https://, as in http://127.0.0.1:11434/v1"
            )
        self.name = f"{provider}:{model}"
        self._model = model
        self._provider = provider
        self._client = client
        self._base_url = base_url
        self._api_key = api_key
        self._options = options if timeout is None else {"timeout": timeout, **options}
        self._projection = ChatProjection(images)
        self._stream_options: Mapping[str, Any] | None = {"include_usage": True}
        self._own: tuple[httpx2.AsyncClient, openai.AsyncOpenAI] | None = None
        self._tools: tuple[tuple[ToolSpec, ...], tuple[list[dict[str, Any]], dict[str, str]]] = ((), ([], {}))

    def __repr__(self) -> str:
        return f"<OpenAIModel {self.name}>"

    async def reply(self, request: ModelRequest, draft: Draft) -> AssistantMessage:
        """Answer ``request``, filling ``draft`` as the reply streams in. Raises ModelError; retries nothing."""
        draft.model = self.name
        tools, names = self._wire_tools(request.tools)
        reading = Reading(draft, names, self._provider)
        try:
            async with aclosing(await self._post(request, tools)) as response:
                await self._read(response, reading)
        except openai.OpenAIError as error:
            raise ModelError(self._failure(error)) from error
        return reading.finish()

    async def _post(self, request: ModelRequest, tools: list[dict[str, Any]]) -> httpx2.Response:
        given = {"stream_options": self._stream_options, **self._options, **request.options}
        headers, query, timeout = (given.pop(name, None) for name in _SDK_OPTIONS)
        given |= given.pop("extra_body", None) or {}
        if tools:
            given["tools"] = tools
        else:
            for name in _ONLY_WITH_TOOLS:
                given.pop(name, None)
        body = {
            **{name: value for name, value in given.items() if value is not None},
            "model": self._model,
            "messages": self._projection.messages(request.messages, request.instructions),
            "stream": True,
        }
        options: dict[str, Any] = {"max_retries": 0, "headers": headers, "params": query, "timeout": timeout}
        try:
            response = await self._sdk().post(
                "/chat/completions",
                cast_to=httpx2.Response,
                body=body,
                options=cast(Any, {name: value for name, value in options.items() if value is not None}),
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )
        except (TypeError, ValueError) as error:
            # The SDK's words for a client without a key, and json's for options that it cannot write.
            kind: FailureKind = "auth" if "authentication method" in str(error) else "invalid_request"
            problem = f"the request cannot be made: {error}"
            raise ModelError(Failure(kind, problem, provider=self._provider)) from error
        return cast(httpx2.Response, response)

    async def _read(self, response: httpx2.Response, reading: Reading) -> None:
        kind = response.headers.get("content-type", "").lower()
        try:
            if "json" in kind:  # a server that does not stream
                reading.chunk(await response.aread())
            elif "html" in kind:
                await response.aread()
                raise ModelError(web_page(response.text, self._provider))
            else:
                await self._read_events(response, reading)
        except transport_errors() as error:
            # After the reply has said that it ended, only its usage can be missing.
            if not reading.complete:
                raise ModelError(failure_of(error, self._provider)) from error

    async def _read_events(self, response: httpx2.Response, reading: Reading) -> None:
        response.headers["content-type"] = "text/event-stream"  # or EventSource refuses what some servers call it
        events = aiter(httpx2.EventSource(response, max_event_size=None))
        try:
            async for event in events:
                reading.event(event.data)
                if reading.done:
                    break
        finally:
            await _wind_up(events, _REST_AFTER_DONE if reading.done else 0.0)

    def _failure(self, error: Exception) -> Failure:
        failure = failure_of(error, self._provider)
        refused = isinstance(error, openai.APIStatusError) and "stream_options" in error.response.text
        if refused and failure.kind == "invalid_request" and self._stream_options:
            # Retries are the machine's: the next attempt goes without.
            self._stream_options = None
            return Failure(
                "invalid_request",
                f"the server refuses stream_options, which are left out from now on: {failure.message}",
                retryable=True,
                retry_after=0.0,
                request_id=failure.request_id,
                provider=self._provider,
            )
        return failure

    def _wire_tools(self, tools: tuple[ToolSpec, ...]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        if self._tools[0] is not tools:
            self._tools = (tools, wire_tools(tools))
        return self._tools[1]

    def _sdk(self) -> openai.AsyncOpenAI:
        if self._client is not None:
            return self._client
        http = _http()
        own = self._own
        if own is None or own[0] is not http:
            own = self._own = (http, self._make_client(http))
        return own[1]

    def _make_client(self, http: httpx2.AsyncClient) -> openai.AsyncOpenAI:
        key = self._api_key or os.environ.get("OPENAI_API_KEY")
        if not key and not self._base_url and not os.environ.get("OPENAI_ADMIN_KEY"):
            message = (
                "no API key: set OPENAI_API_KEY, or pass api_key=...; for a server of your own, "
                'base_url="http://..." or OPENAI_BASE_URL, which needs none'
            )
            raise ModelError(Failure("auth", message, provider=self._provider))
        # The SDK wants a key of some kind, also where the server does not.
        return openai.AsyncOpenAI(base_url=self._base_url, api_key=key or "none", http_client=http, max_retries=0)


_HTTP: trio.lowlevel.RunVar[httpx2.AsyncClient] = trio.lowlevel.RunVar("edgewise.openai.http")


def _http() -> httpx2.AsyncClient:
    """The HTTP client of this trio run: one connection pool for all models, closed when the run ends.

    Models are values without an end of their own, so that nobody would close a client of theirs. Connections are told
    apart by origin and each request carries its own key; cookies, which would mix them, are not kept.
    """
    try:
        return _HTTP.get()
    except LookupError:
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        http = openai.DefaultAsyncHttpxClient(cookies=no_cookies, verify=_tls())
        _HTTP.set(http)
        trio.lowlevel.spawn_system_task(_close_at_the_end, http)
        return http


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes 40 ms, so once a process."""
    return httpx2.create_ssl_context()


async def _close_at_the_end(http: httpx2.AsyncClient) -> None:
    try:
        await trio.sleep_forever()
    finally:
        # An exception in a system task would crash the program, and there is nobody left to tell.
        with trio.move_on_after(1, shield=True), suppress(Exception):
            await http.aclose()


async def _wind_up(events: AsyncIterator[object], seconds: float) -> None:
    """Bring the generators beneath ``events`` to their end: by reading on for a moment, then by a cancelled read.

    To close the outermost would leave those below it to the garbage collector. A read that is cancelled goes through
    all of them, and closes the connection.
    """
    with trio.move_on_after(seconds), suppress(*transport_errors()):
        async for _ in events:
            pass
