"""The embedded model as a Model: each reply is one step, a tool call or an answer, held to that by a grammar."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from edgewise.adapters.models.local.engine import Engine, Generated, engine
from edgewise.adapters.models.local.grammar import step_grammar
from edgewise.adapters.models.local.prompting import Tool, calls_made, chat, told
from edgewise.adapters.models.local.reading import StepReader
from edgewise.adapters.models.local.transfer import PullError
from edgewise.adapters.models.local.weights import DEFAULT, Weights, find, is_pulled
from edgewise.statemachine.arguments import canonical_arguments
from edgewise.statemachine.drafts import Draft
from edgewise.statemachine.errors import Failure, MisuseError, ModelError
from edgewise.statemachine.messages import AssistantMessage, ToolCall, Usage
from edgewise.statemachine.ports import ModelRequest

_OPTIONS = ("temperature", "seed", "max_tokens")
_CALL_FIRST = 1.5
"""How much less likely the word ``answer`` is made while nothing was looked up: the smallest model likes to guess."""


@attrs.define(eq=False)
class LocalModel:
    """A model in this process. Made by :func:`local`; loaded by its first reply.

    One call a turn. A call that was made already since the user spoke is not made again: its tool is left out and the
    step taken anew. Everything is kept the same from run to run: temperature 0 and a fixed seed are the defaults.
    """

    name: str
    path: Path
    weights: Weights | None = None
    threads: int | None = None
    context: int = 8192
    pull: bool = True
    temperature: float = 0.0
    seed: int = 1
    max_tokens: int = 512
    lean: bool = False
    _engine: Engine | None = attrs.field(default=None, init=False, repr=False)

    async def reply(self, request: ModelRequest, draft: Draft) -> AssistantMessage:
        """Answer ``request``. Raises ModelError, ``context_overflow`` when the conversation has grown too long."""
        draft.model = self.name
        settings = self._settings(request.options)
        tools = told(request.tools, self.lean)
        made = calls_made(request.messages)
        turns, in_steps = chat(request.messages, request.instructions, tools)
        running = await self._ready()
        settings["messages"] = turns
        settings["chat_template_kwargs"] = {"enable_thinking": False}
        if not in_steps:
            generated = await running.generate(settings, draft.text)
            draft.usage = _usage(generated)
            return draft.finish(generated.finish)
        if self.lean and tools and not made:
            settings["logit_bias"] = [["answer", -_CALL_FIRST]]
        return await self._step(running, settings, tools, made, _call_id(request), draft)

    async def _step(
        self,
        running: Engine,
        settings: dict[str, Any],
        tools: tuple[Tool, ...],
        made: list[ToolCall],
        call_id: str,
        draft: Draft,
    ) -> AssistantMessage:
        known = {tool.name: tool for tool in tools}
        before = {(call.name, _telling(call.arguments, known.get(call.name))) for call in made}
        used = {name for name, _ in before}
        # A tool without arguments can only be called the same way again.
        offered = [tool for tool in tools if tool.name not in used or tool.parameters.get("properties")]
        spent = Usage()
        while True:
            reader = StepReader()
            held: list[str] = []

            def take(piece: str, reader: StepReader = reader, held: list[str] = held) -> None:
                new = reader.feed(piece)
                if reader.answers:
                    if new:
                        draft.text(new)
                elif reader.name in used:
                    held.append(new)  # until it is whole, it may be a repetition
                elif reader.name:
                    draft.call(0, call_id, reader.name, new)

            generated = await running.generate({**settings, "grammar": step_grammar(offered)}, take)
            spent += _usage(generated)
            draft.usage = spent
            if held:
                arguments = "".join(held)
                if generated.finish != "length" and (reader.name, _telling(arguments, known[reader.name])) in before:
                    offered = [tool for tool in offered if tool.name != reader.name]
                    continue
                draft.call(0, call_id, reader.name, arguments)
            if generated.finish == "length":
                return draft.finish("length")
            if reader.answers:
                return draft.finish("stop")
            if reader.arguments() is None:
                raise ModelError(Failure("protocol", "the model's step broke its grammar", True, provider="local"))
            return draft.finish("tool_use")

    async def _ready(self) -> Engine:
        """The engine, with its file in place."""
        if self._engine is None:
            if self.weights is not None and self.pull and not is_pulled(self.weights):
                await self._fetch(self.weights)
            if not self.path.is_file():
                raise ModelError(Failure("not_found", self._absent(), provider="local"))
            self._engine = engine(self.path, self.threads, self.context)
        return self._engine

    async def _fetch(self, weights: Weights) -> None:
        from edgewise.adapters.models.local.pull import pull

        stopped = False
        try:
            await trio.to_thread.run_sync(
                lambda: pull(weights, stop=lambda: stopped), abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
        except PullError as error:
            raise ModelError(Failure("not_found", f"{self._absent()}. {error}", provider="local")) from error
        finally:
            stopped = True

    def _absent(self) -> str:
        if self.weights is None:
            return f"there is no model file {self.path}"
        name = self.weights.name
        return f"the model {name} is not in {self.path.parent}; `edgewise model pull {name}` fetches it"

    def _settings(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for name in options:
            if name not in _OPTIONS:
                wrong = f"the local model has no option {name!r}; there are: {', '.join(_OPTIONS)}"
                raise ModelError(Failure("invalid_request", wrong, provider="local"))
        return {name: options.get(name, getattr(self, name)) for name in _OPTIONS}


def local(spec: str | None = None, **options: Any) -> LocalModel:
    """The embedded model: the default, a known one by name, or any GGUF file by its path.

    Options: ``threads`` (of the processor), ``context`` (tokens), ``pull`` (whether a known model that is missing is
    fetched by the first reply), ``temperature``, ``seed``, ``max_tokens`` (of a reply), ``lean`` (whether tools are
    shown without their optional numbers and switches, which only confuse the smallest models).

    >>> local().name, local("local:qwen2.5-coder-1.5b").name, local("./some.gguf").path.name
    ('local:qwen2.5-coder-0.5b', 'local:qwen2.5-coder-1.5b', 'some.gguf')

    Raises MisuseError when no model is called so, an option is wrong, or the extra is not installed.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise MisuseError('the local model needs the package xllamacpp: pip install "edgewise[local]"')
    name = (spec or "").removeprefix("local:") if spec != "local" else ""
    if "/" in name or "\\" in name or name.endswith(".gguf"):
        model = LocalModel(f"local:{name}", Path(name).expanduser(), **options)
    else:
        weights = find(name or DEFAULT)
        options.setdefault("lean", weights.name == DEFAULT)
        model = LocalModel(f"local:{weights.name}", weights.path, weights, **options)
    if model.context < 512:
        raise MisuseError(f"context is {model.context} tokens; at least 512 are needed for the tools and a question")
    if model.threads is not None and model.threads < 1:
        raise MisuseError(f"threads is {model.threads}; it should be at least 1")
    return model


def _telling(arguments: str, tool: Tool | None) -> str:
    """The arguments in one form, less those that say what is the default anyway."""
    properties = tool.parameters.get("properties") if tool else None
    text = canonical_arguments(arguments)
    if not isinstance(properties, Mapping):
        return text
    try:
        given = json.loads(text)
    except ValueError:
        return text
    if not isinstance(given, dict):
        return text
    unusual = {name: value for name, value in given.items() if not _usual(properties.get(name), value)}
    return json.dumps(unusual, sort_keys=True)


def _usual(schema: Any, value: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema and schema["default"] == value


def _call_id(request: ModelRequest) -> str:
    """The same for the same request, another for every other: ids of requests begin anew with each run."""
    return "call_" + hashlib.sha256(f"{len(request.messages)}/{request.id}".encode()).hexdigest()[:12]


def _usage(generated: Generated) -> Usage:
    return Usage(generated.input_tokens, generated.output_tokens, generated.cached_tokens)
