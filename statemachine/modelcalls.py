"""One model call: waits out its delay, prepares the request, collects the reply, and says what became of it."""

from __future__ import annotations

import inspect
import math

import attrs
import trio

from edgewise.statemachine.config import RunInfo
from edgewise.statemachine.drafts import DeltaKind, Draft, Listener
from edgewise.statemachine.errors import Failure, MisuseError, ModelError
from edgewise.statemachine.events import MessageDelta, MessageStarted
from edgewise.statemachine.hooks import call_hook
from edgewise.statemachine.host import Host
from edgewise.statemachine.messages import AssistantMessage
from edgewise.statemachine.ports import ModelRequest
from edgewise.statemachine.replies import judge_reply
from edgewise.statemachine.signals import CallModel, HookFailed, ModelFailed, Signal
from edgewise.statemachine.snapshot import State

CLOSING = (
    "The limit of this run is reached: {reason}. No tools may be called any more. "
    "Say briefly what was done, what is left, and how to continue."
)
_ABORTED = Failure("aborted", "the request was cancelled")
NEVER_SENT = ModelFailed(_ABORTED)


class LiveRequest:
    """A model call under way."""

    __slots__ = ("draft", "effect", "given_up", "host", "kill_at", "scope")

    def __init__(self, host: Host, effect: CallModel) -> None:
        self.host = host
        self.effect = effect
        self.scope: trio.CancelScope | None = None
        self.draft = Draft(model=host.config.model.name)
        self.kill_at = math.inf
        self.given_up = False

    async def go(self, scope: trio.CancelScope) -> Signal | None:
        """Make the call and give the signal that tells how it went."""
        self.scope = scope
        host, effect = self.host, self.effect
        config = host.config
        try:
            if self.kill_at < math.inf:
                return NEVER_SENT
            if effect.delay:
                await trio.sleep(effect.delay)
            request = _plain_request(host, effect)
            if config.prepare_request is not None or not isinstance(config.instructions, str):
                prepared = await _prepare(host, effect, request)
                if isinstance(prepared, HookFailed):
                    return prepared
                request = prepared
            # The last look: a request that was being prepared when the abort came is not sent.
            if host.snapshot.state is not State.AWAITING_MODEL:
                return NEVER_SENT
            if host.heard:
                turn = host.snapshot.turn
                host.emit(MessageStarted(turn, effect.attempt))
                self.draft.listen(_listener(host, turn))
            signal = judge_reply(await (request.model or config.model).reply(request, self.draft))
        except ModelError as error:
            signal = ModelFailed(error.failure, self._partial("error"))
        except Exception as error:
            failure = Failure("internal", f"the model adapter raised {type(error).__name__}: {error}")
            signal = ModelFailed(failure, self._partial("error"))
        if self.given_up:
            return None
        if isinstance(signal, ModelFailed):
            return self._with_delay(signal)
        return signal

    def cut_off(self) -> Signal | None:
        """What it means that the call was cancelled."""
        return None if self.given_up else ModelFailed(_ABORTED, self._partial("aborted"))

    def cancel(self, kill_at: float) -> None:
        self.kill_at = kill_at
        if self.scope is not None:
            self.scope.cancel()

    def overdue(self, now: float) -> Signal | None:
        """Give it up, with what had come of the reply, when it ignored its cancellation for the grace period."""
        if now < self.kill_at:
            return None
        self.kill_at = math.inf
        self.given_up = True
        failure = Failure("aborted", "the model call ignored its cancellation and was abandoned")
        return ModelFailed(failure, self._partial("aborted"))

    def _partial(self, stop_reason: str) -> AssistantMessage | None:
        return None if self.draft.empty else self.draft.finish(stop_reason)

    def _with_delay(self, signal: ModelFailed) -> ModelFailed:
        config = self.host.config
        failure = config.backoff.bounded(signal.failure)
        retryable = failure.retryable
        delay = config.backoff.delay(failure, self.effect.attempt, self.host.random) if retryable else 0.0
        return ModelFailed(failure, signal.partial, delay, config.prepare_request is not None)


def _plain_request(host: Host, effect: CallModel) -> ModelRequest:
    config = host.config
    instructions = config.instructions if isinstance(config.instructions, str) else ""
    if not effect.tools:
        instructions = _closing(host, instructions)
    return ModelRequest(
        host.snapshot.history,
        instructions,
        config.offered if effect.tools else (),
        config.options,
        f"{host.run_id}.{effect.id}",
        effect.attempt,
        effect.compact,
        config.model,
    )


def _closing(host: Host, instructions: str) -> str:
    ending = host.snapshot.ending
    word = CLOSING.format(reason=ending.reason if ending is not None else "")
    return f"{instructions}\n\n{word}".strip()


async def _prepare(host: Host, effect: CallModel, request: ModelRequest) -> ModelRequest | HookFailed:
    """Instructions that are a function of the run, then the prepare_request hook."""
    config = host.config
    hook = "instructions"
    try:
        if not isinstance(config.instructions, str):
            said = config.instructions(RunInfo(host.run_id, host.snapshot))
            said = await said if inspect.isawaitable(said) else said
            if not isinstance(said, str):
                raise MisuseError(f"instructions gave {said!r}; they must be a text")
            request = attrs.evolve(request, instructions=said if effect.tools else _closing(host, said))
        if config.prepare_request is not None:
            hook = "prepare_request"
            prepared = await call_hook(config.prepare_request, request)
            if prepared is not None and not isinstance(prepared, ModelRequest):
                raise MisuseError(f"prepare_request gave {prepared!r}; it must give a ModelRequest or None")
            request = prepared or request
            if effect.tools:
                # What this turn offers is what its calls may use.
                host.tools = {tool.name: tool for tool in request.tools}
    except Exception as error:
        return HookFailed(hook, f"{type(error).__name__}: {error}")
    return request


def _listener(host: Host, turn: int) -> Listener:
    def listen(kind: DeltaKind, text: str, block: int) -> None:
        host.emit(MessageDelta(turn, kind, text, block))

    return listen
