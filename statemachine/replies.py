"""What a model's reply amounts to: a whole reply, or a failure that says what was wrong with it.

Servers give replies that are none: nothing at all, a tool call that is announced and not there, a refusal in place of
an answer. They become failures here, so that the machine retries them within its bound, or ends in a state that
explains itself; a reply that holds calls is always taken as it is, whatever its stop reason says.
"""

from __future__ import annotations

from random import Random

import attrs

from edgewise.statemachine.errors import Failure
from edgewise.statemachine.messages import AssistantMessage, Text, ToolCall
from edgewise.statemachine.signals import ModelFailed, ModelReplied


def judge_reply(message: AssistantMessage) -> ModelReplied | ModelFailed:
    """Take ``message`` as a reply, or say what is wrong with it.

    >>> judge_reply(AssistantMessage((), "stop")).failure.kind
    'empty_reply'
    >>> judge_reply(AssistantMessage((ToolCall("a", "list_files"),), "stop")).name
    'ModelReplied'
    """
    stop = message.stop_reason
    spoken = False
    for block in message.content:
        if type(block) is ToolCall:
            return ModelReplied(message)
        if type(block) is Text and not spoken:
            spoken = bool(block.text.strip())
    if stop in ("refusal", "content_filter"):
        said = f": {message.text.strip()[:300]}" if spoken else ""
        return ModelFailed(Failure("content_filter", f"the model declined to answer ({stop}){said}"), message)
    if stop == "tool_use":
        failure = Failure("protocol", "the model announced a tool call (stop reason tool_use) and sent none", True)
        return ModelFailed(failure, message)
    if not spoken:
        failure = Failure("empty_reply", f"the model's reply was empty (stop reason {stop})", stop != "length")
        return ModelFailed(failure, message)
    return ModelReplied(message)


@attrs.frozen
class Backoff:
    """How long to wait before a model call is made again, in seconds.

    The wait doubles from ``first`` up to ``longest``, with jitter of half its length. What the provider asks for is
    honoured up to ``longest``; when it asks for more the failure is final, since a run should not sleep for hours.
    """

    first: float = 0.5
    longest: float = 60.0

    def delay(self, failure: Failure, attempt: int, random: Random) -> float:
        """Seconds to wait after the given attempt, counted from 1."""
        if failure.retry_after is not None:
            return max(0.0, failure.retry_after)
        ceiling: float = min(self.longest, self.first * 2.0 ** min(attempt - 1, 1_000))
        return ceiling / 2 + random.random() * ceiling / 2

    def bounded(self, failure: Failure) -> Failure:
        """``failure``, no longer retryable when it asks for too long a wait."""
        if failure.retryable and failure.retry_after is not None and failure.retry_after > self.longest:
            asked = f"it asks to wait {failure.retry_after:g} s; this run waits {self.longest:g} s at most"
            message = f"{failure.message} ({asked})"
            return attrs.evolve(failure, message=message, retryable=False)
        return failure
