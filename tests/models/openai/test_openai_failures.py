"""What a Chat Completions server and the way to it do wrong, as typed failures. Nothing is retried by the adapter."""

from __future__ import annotations

import socket

import httpx2
import openai
import pytest
import trio

from edgewise.adapters.models.openai import OpenAIModel
from edgewise.adapters.models.openai.failures import failure_in_stream, retry_after
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import Failure, MisuseError, ModelError
from edgewise.statemachine.messages import user_message
from edgewise.statemachine.ports import ModelRequest

ASKED = ModelRequest([user_message("hello")])


@pytest.fixture
def model(server):
    return OpenAIModel("m", base_url=server.url, api_key="k")


async def failure(model: OpenAIModel) -> Failure:
    with pytest.raises(ModelError) as caught, trio.fail_after(10):
        await model.reply(ASKED, Draft())
    return caught.value.failure


def openai_error(message: str, code: str | None = None, type: str = "invalid_request_error") -> dict:
    return {"error": {"message": message, "type": type, "param": None, "code": code}}


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request", False),
        (401, "auth", False),
        (402, "permission", False),
        (403, "permission", False),
        (404, "not_found", False),
        (405, "invalid_request", False),
        (408, "timeout", True),
        (409, "overloaded", True),
        (413, "context_overflow", False),
        (418, "invalid_request", False),
        (422, "invalid_request", False),
        (429, "rate_limited", True),
        (500, "overloaded", True),
        (501, "invalid_request", False),
        (502, "overloaded", True),
        (503, "overloaded", True),
        (504, "timeout", True),
        (529, "overloaded", True),
    ],
)
async def test_a_status_becomes_one_typed_failure(server, model, status, kind, retryable):
    server.will_fail(status, openai_error("It went wrong."), x_request_id="req_1")
    got = await failure(model)
    assert (got.kind, got.retryable, got.request_id, got.provider) == (kind, retryable, "req_1", "openai")
    assert "It went wrong." in got.message
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:30 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
async def test_every_form_of_retry_after_is_read(server, model, status, headers, seconds):
    server.will_fail(status, openai_error("Slow down."), **headers)
    assert (await failure(model)).retry_after == seconds


def test_a_date_is_measured_by_our_clock_when_the_server_tells_no_time(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_445_412_480.0)  # 2015-10-21T07:28:00Z
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:45 GMT"}) == 45.0
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:45 -0000"}) == 45.0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, openai_error("Too long.", "context_length_exceeded")),
        (400, openai_error("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.")),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "request (4476 tokens) exceeds the available context size (4096 tokens)",
                    "type": "exceed_context_size_error",
                }
            },
        ),
        (400, openai_error("the request exceeds the available context size. try increasing the context size")),
        (500, openai_error("Context size has been exceeded.", type="server_error")),
        (
            400,
            {"object": "error", "message": "The prompt is longer than the maximum model length of 2048", "code": 400},
        ),
        (400, {"error": {"message": "the input length exceeds the context length", "type": "api_error"}}),
        (400, openai_error("Requested tokens (5000) exceed context window of 4096")),
        (400, openai_error("Your input exceeds the context window of this model.")),
        (400, openai_error("The number of tokens to keep is greater than the context length.")),
        (400, openai_error("This model's maximum prompt length is 131072 but the request contains 537812 tokens.")),
        (400, openai_error("Please reduce the length of the messages or completion.")),
        (400, openai_error("prompt is too long: 208310 tokens > 200000 maximum")),
        (400, openai_error("The input token count (1196265) exceeds the maximum number of tokens allowed (1048576).")),
        (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097", "type": "x"}),
        (400, openai_error("Invalid request: Your request exceeded model token limit: 262144")),
    ],
)
async def test_an_overlong_request_is_known_by_every_servers_wording(server, model, status, body):
    server.will_fail(status, body)
    got = await failure(model)
    assert (got.kind, got.retryable) == ("context_overflow", False)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens exceeds the model's maximum output limit",
        "Invalid value for 'context': expected a string",
        "The length of the name exceeds 64 characters",
    ],
)
async def test_other_limits_are_not_taken_for_an_overlong_request(server, model, message):
    server.will_fail(400, openai_error(message))
    assert (await failure(model)).kind == "invalid_request"


async def test_an_empty_purse_is_not_worth_a_retry(server, model):
    server.will_fail(429, openai_error("You exceeded your current quota.", "insufficient_quota", "insufficient_quota"))
    got = await failure(model)
    assert (got.kind, got.retryable) == ("rate_limited", False)


async def test_a_server_may_say_outright_whether_to_try_again(server, model):
    server.will_fail(500, openai_error("No use."), x_should_retry="false")
    server.will_fail(400, openai_error("Again, please."), x_should_retry="true")
    assert [(await failure(model)).retryable for _ in range(2)] == [False, True]


async def test_a_prompt_that_was_filtered_says_so(server, model):
    server.will_fail(400, openai_error("The response was filtered.", "content_filter"))
    assert (await failure(model)).kind == "content_filter"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": "plain words"}, "plain words"),
        ({"error": {"message": {"detail": "wrapped twice"}}}, "wrapped twice"),
        ({"detail": [{"loc": ["body"], "msg": "bad"}]}, '[{"loc": ["body"], "msg": "bad"}]'),
        ({"object": "error", "message": "vllm says"}, "vllm says"),
        ({"reason": 7}, '{"reason": 7}'),
        ([], "HTTP status 400"),
        (None, "HTTP status 400"),
    ],
)
async def test_the_servers_words_are_found_in_errors_of_every_shape(server, model, body, message):
    server.will_fail(400, body)
    assert (await failure(model)).message == message


async def test_a_huge_error_is_cut(server, model):
    server.will_fail(400, openai_error("x" * 100_000))
    assert len((await failure(model)).message) == 2001


@pytest.mark.parametrize(("status", "kind"), [(502, "overloaded"), (404, "not_found"), (403, "permission")])
async def test_a_web_page_with_an_error_status_is_summed_up(server, model, status, kind):
    server.will_fail(status, "<html><head><title>502\n Bad Gateway</title></head><body>nginx</body></html>")
    got = await failure(model)
    assert got.kind == kind
    assert "web page instead of JSON, titled '502 Bad Gateway'" in got.message


async def test_a_web_page_instead_of_a_reply_is_a_protocol_failure(server, model):
    server.will_fail(200, "<!doctype html><title>Welcome</title>")
    got = await failure(model)
    assert (got.kind, got.retryable) == ("protocol", False)
    assert "titled 'Welcome'" in got.message
    assert "base URL" in got.message


async def test_json_that_is_broken_is_a_protocol_failure(server, model):
    server.will_answer(b'{"choices": [', content_type="application/json")
    assert (await failure(model)).kind == "protocol"


# The HTTP library itself leaves a generator behind when it cannot unpack.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_broken_gzip_is_a_protocol_failure(server, model):
    server.will_answer(b"no gzip at all", headers={"content-encoding": "gzip"})
    got = await failure(model)
    assert (got.kind, got.retryable) == ("protocol", True)


async def test_a_server_that_hangs_up_without_a_word_is_a_retryable_failure(server, model):
    async def hang_up(stream) -> None:
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, hang_up, 0)
        port = listeners[0].socket.getsockname()[1]
        got = await failure(OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1"))
        nursery.cancel_scope.cancel()
    assert got.kind in ("protocol", "network")
    assert got.retryable


async def test_no_server_at_all_is_a_retryable_network_failure():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    got = await failure(OpenAIModel("m", base_url=f"http://127.0.0.1:{port}/v1", api_key="k"))
    assert (got.kind, got.retryable) == ("network", True)
    assert "attempts to connect" in got.message or "refused" in got.message


async def test_a_server_that_stalls_is_a_retryable_timeout(server):
    slow = OpenAIModel("m", base_url=server.url, api_key="k", timeout=0.05)
    server.will_answer(trio.sleep_forever)
    server.will_answer(server.event(server.delta(content="half")), trio.sleep_forever)
    for _ in range(2):
        got = await failure(slow)
        assert (got.kind, got.retryable) == ("timeout", True)


async def test_a_missing_key_says_what_to_do(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    got = await failure(OpenAIModel("gpt-5-mini"))
    assert (got.kind, got.retryable) == ("auth", False)
    assert "OPENAI_API_KEY" in got.message


async def test_a_client_without_a_key_is_an_auth_failure(server):
    async with openai.AsyncOpenAI(api_key="", base_url=server.url, _enforce_credentials=False) as client:
        assert (await failure(OpenAIModel("m", client=client))).kind == "auth"


async def test_options_that_json_cannot_hold_are_an_invalid_request(server):
    for value in (object(), float("nan"), "\ud83d"):
        got = await failure(OpenAIModel("m", base_url=server.url, api_key="k", user=value))
        assert (got.kind, got.retryable) == ("invalid_request", False)


@pytest.mark.parametrize(
    "refusal",
    [
        (400, openai_error("Unknown parameter: 'stream_options.include_usage'.", "unknown_parameter")),
        (422, {"message": {"detail": [{"type": "extra_forbidden", "loc": ["body", "stream_options"]}]}}),
    ],
)
async def test_a_server_that_refuses_stream_options_is_asked_without_them_next_time(server, model, refusal):
    server.will_fail(*refusal)
    got = await failure(model)
    assert (got.kind, got.retryable, got.retry_after) == ("invalid_request", True, 0.0)
    server.will_stream(server.delta("stop", content="fine"))
    assert (await model.reply(ASKED, Draft())).text == "fine"
    assert ["stream_options" in request for request in server.requests] == [True, False]


async def test_a_second_refusal_of_stream_options_is_final(server, model):
    for _ in range(2):
        server.will_fail(400, openai_error("stream_options: unknown"))
    assert [(await failure(model)).retryable for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        ({"message": "x", "code": "rate_limit_exceeded"}, "rate_limited", True),
        ({"message": "x", "code": 429}, "rate_limited", True),
        ({"message": "x", "code": "502"}, "overloaded", True),
        ({"message": "x", "type": "overloaded_error"}, "overloaded", True),
        ({"message": "x", "type": "server_error", "code": None}, "overloaded", True),
        ({"message": "x", "code": "invalid_api_key"}, "auth", False),
        ({"message": "x", "code": "insufficient_quota"}, "rate_limited", False),
        ({"message": "x", "type": "invalid_request_error"}, "invalid_request", False),
        (
            {"message": "x", "type": "invalid_request_error", "code": "context_length_exceeded"},
            "context_overflow",
            False,
        ),
        ({"message": "x", "type": "BadRequestError", "code": 400}, "invalid_request", False),
        ("it fell over", "overloaded", True),
    ],
)
def test_an_error_inside_a_stream_is_classified_by_code_else_by_words(error, kind, retryable):
    got = failure_in_stream(error, "openai")
    assert (got.kind, got.retryable) == (kind, retryable)


# Misuse raises at once.


def test_options_that_contradict_each_other_are_refused():
    client = openai.AsyncOpenAI(api_key="k", http_client=httpx2.AsyncClient())
    with pytest.raises(MisuseError, match="not both"):
        OpenAIModel("m", client=client, base_url="http://x")
    with pytest.raises(MisuseError, match="AsyncOpenAI"):
        OpenAIModel("m", client=openai.OpenAI(api_key="k"))  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="http://"):
        OpenAIModel("m", base_url="localhost:11434")
    with pytest.raises(MisuseError, match="name"):
        OpenAIModel("")
