"""What can go wrong between us and a Chat Completions server, as one typed failure.

Two roads lead here: exceptions of the SDK and of the HTTP library beneath it (:func:`failure_of`), and error objects
that arrive in the middle of a stream, after a status of 200 (:func:`failure_in_stream`). Servers agree on little: the
message may be text or an object, the code a number or a word, and only OpenAI's own has a code for an overlong prompt.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import attrs
import httpx2
import openai

from edgewise.statemachine.errors import Failure, FailureKind

_LONGEST_MESSAGE = 2000

# The request was longer than the model's context. Each line is the wording of at least one server.
_OVERFLOW = re.compile(
    r"""
    context_length_exceeded | exceed_context_size | context.size.has.been.exceeded
    | maximum.(context|prompt|model).length | context.(length|window).(is.)?exceed
    | exceed\w*.(the.)?(model\S*.)?(maximum.|available.)?(context|token).(length|window|size|limit)
    | greater.than.the.context.length | (prompt|input|request).is.too.long
    | input.token.count.{0,40}exceeds | reduce.the.length.of.(the.|your.)?(messages|prompt|input)
    | tokens?.{0,30}must.be.<=
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CONTENT_FILTER = re.compile(r"content_filter|content_policy|ResponsibleAIPolicy", re.IGNORECASE)
_QUOTA = re.compile(r"insufficient_quota|billing_hard_limit|exceeded_current_quota|insufficient.balance", re.IGNORECASE)

_BY_STATUS: dict[int, tuple[FailureKind, bool]] = {
    400: ("invalid_request", False),
    401: ("auth", False),
    402: ("permission", False),
    403: ("permission", False),
    404: ("not_found", False),
    408: ("timeout", True),
    409: ("overloaded", True),
    410: ("not_found", False),
    413: ("context_overflow", False),
    425: ("overloaded", True),
    429: ("rate_limited", True),
    501: ("invalid_request", False),
    504: ("timeout", True),
}

# The words that error objects use for what a status says elsewhere, most telling first.
_BY_WORD: tuple[tuple[str, int], ...] = (
    ("rate_limit", 429),
    ("insufficient_quota", 429),
    ("too_many_requests", 429),
    ("overloaded", 529),
    ("unavailable", 503),
    ("timeout", 408),
    ("api_key", 401),
    ("authentication", 401),
    ("permission", 403),
    ("not_found", 404),
    ("invalid_request", 400),
    ("badrequest", 400),
)

_HINTS: dict[FailureKind, str] = {
    "auth": "check the API key",
    "not_found": "check the model's name and the base URL",
}


def failure_of(error: Exception, provider: str) -> Failure:
    """Translate an exception of the SDK, or of the HTTP library while a reply streamed in."""
    if isinstance(error, openai.APIStatusError):
        headers = error.response.headers
        failure = _classified(error.status_code, error.body, provider)
        return attrs.evolve(
            failure,
            # OpenAI's servers may say outright whether it is worth another try.
            retryable={"true": True, "false": False}.get(headers.get("x-should-retry", ""), failure.retryable),
            retry_after=retry_after(headers),
            request_id=error.request_id or headers.get("request-id"),
        )
    if isinstance(error, openai.APITimeoutError) or _is_http(error, "TimeoutException"):
        return Failure("timeout", _reason(error), True, provider=provider)
    cause = error.__cause__
    for problem in (error, cause):
        if _is_http(problem, "UnsupportedProtocol", "LocalProtocolError", "InvalidURL"):
            return Failure("invalid_request", f"the request cannot be sent: {problem}", provider=provider)
        if _is_http(problem, "RemoteProtocolError", "DecodingError"):
            return Failure("protocol", f"the connection broke off: {problem}", True, provider=provider)
    if isinstance(error, openai.APIConnectionError) or _is_http(error, "RequestError"):
        return Failure("network", _reason(error), True, provider=provider)
    if isinstance(error, openai.APIError):
        return Failure("protocol", _reason(error), True, provider=provider)
    return Failure("invalid_request", _reason(error), provider=provider)


def failure_in_stream(error: object, provider: str) -> Failure:
    """Translate the error object of an event; what names no reason is taken for trouble at the server."""
    code = error.get("code", error.get("status")) if isinstance(error, Mapping) else None
    if isinstance(code, int | str) and str(code).isdecimal():
        status = int(code)
    else:
        words = _words(error).lower()
        status = next((status for word, status in _BY_WORD if word in words), 500)
    return _classified(status, error, provider)


def _classified(status: int, body: object, provider: str) -> Failure:
    words = _words(body)
    said = _message(body) or f"HTTP status {status}"
    kind, retryable = _BY_STATUS.get(status, ("overloaded", True) if status >= 500 else ("invalid_request", False))
    if status not in (401, 403, 404, 429) and _OVERFLOW.search(words):
        kind, retryable = "context_overflow", False
    elif _CONTENT_FILTER.search(words) and kind == "invalid_request":
        kind = "content_filter"
    elif _QUOTA.search(words):
        retryable = False
    hint = f" ({_HINTS[kind]})" if kind in _HINTS else ""
    return Failure(kind, said + hint, retryable, provider=provider)


def _words(body: object) -> str:
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)


def _message(body: object) -> str:
    """What ``body`` says to a person: the innermost message of an error object, the title of a web page."""
    while isinstance(body, Mapping):
        inner: Any = next((body[key] for key in ("message", "detail", "error", "title") if body.get(key)), None)
        if inner is None:
            break
        body = inner
    text = _words(body).strip() if body else ""
    if text[:1] == "<":
        title = re.search(r"<title[^>]*>(.*?)</title", text, re.IGNORECASE | re.DOTALL)
        about = f", titled {' '.join(title[1].split())!r}" if title and title[1].strip() else ""
        return f"the server answered with a web page instead of JSON{about}"
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"


def web_page(text: str, provider: str) -> Failure:
    """A page for people where a reply was due: most likely another server than the one that was meant."""
    return Failure("protocol", f"{_message(text)} (check the base URL)", provider=provider)


def cut_off(why: str, provider: str) -> Failure:
    """A stream that did not come to its end; nothing of it may be taken for the reply."""
    return Failure("protocol", f"the reply broke off: {why}", True, provider=provider)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the server asks us to wait, whether it says so in milliseconds, in seconds or by a date.

    >>> retry_after({"retry-after-ms": "1500", "retry-after": "9"}), retry_after({"retry-after": "soon"})
    (1.5, None)
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    until = _date(headers.get("retry-after", ""))
    if until is None:
        return None
    # By the server's own clock where it tells it, since ours may be off.
    now = _date(headers.get("date", ""))
    return max(0.0, until - (time.time() if now is None else now))


def _date(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return _utc(moment).timestamp()


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _reason(error: Exception) -> str:
    """The SDK says only "Connection error."; the reason is in the cause."""
    cause = error.__cause__
    reasons = [str(error), str(cause) or type(cause).__name__ if cause else ""]
    return " ".join(filter(None, reasons)) or type(error).__name__


def transport_errors() -> tuple[type[Exception], ...]:
    """What reading a reply may raise; a configured client may still stand on the older httpx."""
    older = sys.modules.get("httpx")
    return (httpx2.RequestError, httpx2.InvalidURL) if older is None else (httpx2.RequestError, older.RequestError)


def _is_http(error: object, *names: str) -> bool:
    modules = [httpx2, *filter(None, [sys.modules.get("httpx")])]
    return any(isinstance(error, getattr(module, name)) for module in modules for name in names)
