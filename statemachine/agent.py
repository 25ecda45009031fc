"""The agent: a model, tools, instructions and hooks, put together once and run as often as you like."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import trio

from edgewise.statemachine.config import Config, Instructions
from edgewise.statemachine.errors import MisuseError
from edgewise.statemachine.events import Event
from edgewise.statemachine.hooks import (
    DEFAULT_MAX_TURNS,
    AfterCall,
    Authorize,
    PrepareRequest,
    ShouldContinue,
    max_turns,
)
from edgewise.statemachine.messages import Input, Message, user_message
from edgewise.statemachine.outcome import Outcome
from edgewise.statemachine.ports import Journal, Model, Tool
from edgewise.statemachine.records import NO_JOURNAL
from edgewise.statemachine.replies import Backoff
from edgewise.statemachine.run import Run
from edgewise.statemachine.session import Session
from edgewise.statemachine.snapshot import Policy, QueueMode


class Agent:
    """What runs. It holds no conversation, so one agent serves any number of runs and sessions at once.

    :param model: what answers; see ``edgewise.adapters.models``.
    :param tools: what it can do; functions become tools with ``@edgewise.tools.tool``.
    :param instructions: the system prompt, or a function of the run (sync or async) that gives it.
    :param should_continue: asked after each turn; by default at most 50 turns.
    :param authorize: asked before each call: Allow, Deny or Ask.
    :param after_call: sees each result after it is on record; may give another.
    :param prepare_request: sees each request; may give another (a shorter history, another model or tool set).
    :param max_parallel: how many calls of a turn run at once.
    :param tool_timeout: seconds that a call may take when its tool says nothing else; None for no limit.
    :param grace: seconds that cancelled work has to clean up before it is abandoned.
    :param model_attempts: how often one request is sent, when it fails in a way that may pass.
    :param backoff: the waits in between.
    :param steering: how many steering messages go in at a turn boundary.
    :param follow_ups: how many follow-ups go in when the run would end.
    :param result_limit: characters of a result's text that the model gets to see.
    :param options: passed on to the model's adapter with every request.
    :param on_event: called with every event of every run; may be slow, async, or raise.
    """

    def __init__(
        self,
        model: Model,
        tools: Iterable[Tool] = (),
        *,
        instructions: Instructions = "",
        should_continue: ShouldContinue | None = None,
        authorize: Authorize | None = None,
        after_call: AfterCall | None = None,
        prepare_request: PrepareRequest | None = None,
        max_parallel: int = 16,
        tool_timeout: float | None = 600.0,
        grace: float = 5.0,
        model_attempts: int = 3,
        backoff: Backoff | None = None,
        steering: QueueMode = "one",
        follow_ups: QueueMode = "one",
        result_limit: int = 50_000,
        options: Mapping[str, Any] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        by_name = _checked_tools(tools)
        if not hasattr(model, "reply"):
            raise MisuseError(
                f"model={model!r} is no model; give model('local'), model('openai:NAME') or an object with reply()"
            )
        self.config = Config(
            model=model,
            tools=by_name,
            instructions=instructions,
            should_continue=should_continue or max_turns(DEFAULT_MAX_TURNS),
            authorize=authorize,
            after_call=after_call,
            prepare_request=prepare_request,
            policy=Policy(
                max_parallel=max_parallel,
                exclusive=frozenset(name for name, tool in by_name.items() if tool.exclusive),
                model_attempts=model_attempts,
                steering=steering,
                follow_ups=follow_ups,
            ),
            tool_timeout=tool_timeout,
            grace=grace,
            backoff=backoff or Backoff(),
            result_limit=result_limit,
            options=dict(options or {}),
            on_event=on_event,
        )

    @property
    def model(self) -> Model:
        return self.config.model

    @property
    def tools(self) -> Sequence[Tool]:
        return tuple(self.config.tools.values())

    def session(self, journal: Journal | None = None, history: Iterable[Message] = ()) -> Session:
        """A conversation over many runs, in memory, or on a journal that may already hold its beginning."""
        return Session(self.config, journal, history)

    async def run(self, said: Input, *, history: Iterable[Message] = ()) -> Outcome:
        """Run to the end and say how it went. What the world did wrong is in the outcome: ``raise_for_state()``."""
        return await Run(Session(self.config, NO_JOURNAL, history), (user_message(said),), alone=True).to_end()

    def start(self, said: Input, *, history: Iterable[Message] = ()) -> Run:
        """A run to be controlled: ``async with agent.start("...") as run``."""
        return Session(self.config, NO_JOURNAL, history).start(said)

    def run_sync(self, said: Input, *, history: Iterable[Message] = ()) -> Outcome:
        """:meth:`run` for plain programs.

        Raises MisuseError inside a running event loop, where it would block it.
        """
        if loop := _running_loop():
            raise MisuseError(
                f"run_sync() starts an event loop of its own, and {loop} is running here: {_INSTEAD[loop]}"
            )

        async def main() -> Outcome:
            return await self.run(said, history=history)

        return trio.run(main)


_INSTEAD = {
    "trio": "use `await agent.run(...)`",
    "asyncio": "call it in a thread, as in `await asyncio.to_thread(agent.run_sync, ...)`",
}


def _running_loop() -> str:
    if trio.lowlevel.in_trio_run():
        return "trio"
    import sys

    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return "asyncio"
    return ""


def _checked_tools(tools: Iterable[Tool]) -> dict[str, Tool]:
    by_name: dict[str, Tool] = {}
    for tool in tools:
        if not all(hasattr(tool, part) for part in ("name", "parameters", "check", "run")):
            name = getattr(tool, "__name__", repr(tool))
            raise MisuseError(f"{name} is no tool; decorate the function with @tool from edgewise.tools")
        if tool.name in by_name:
            raise MisuseError(f"two tools are called {tool.name}; give one of them another name")
        by_name[tool.name] = tool
    return by_name
