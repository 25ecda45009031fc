"""What an agent is made of, checked once: the driver reads it and never changes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import attrs

from edgewise.statemachine.events import Event
from edgewise.statemachine.hooks import (
    DEFAULT_MAX_TURNS,
    AfterCall,
    Authorize,
    PrepareRequest,
    ShouldContinue,
    max_turns,
)
from edgewise.statemachine.ports import Model, Tool
from edgewise.statemachine.replies import Backoff
from edgewise.statemachine.snapshot import DEFAULT_POLICY, Policy, Snapshot


@attrs.frozen(eq=False)
class RunInfo:
    """What a function that gives instructions is told of its run."""

    run_id: str
    snapshot: Snapshot


Instructions: TypeAlias = str | Callable[[RunInfo], str | Awaitable[str]]


@attrs.frozen(eq=False, kw_only=True)
class Config:
    """An agent's parts. Times are in seconds."""

    model: Model
    tools: Mapping[str, Tool] = attrs.field(factory=dict)
    offered: tuple[Tool, ...] = attrs.field(
        init=False, default=attrs.Factory(lambda config: tuple(config.tools.values()), takes_self=True)
    )
    instructions: Instructions = ""
    should_continue: ShouldContinue = max_turns(DEFAULT_MAX_TURNS)
    authorize: Authorize | None = None
    after_call: AfterCall | None = None
    prepare_request: PrepareRequest | None = None
    policy: Policy = DEFAULT_POLICY
    tool_timeout: float | None = 600.0
    grace: float = 5.0
    journal_deadline: float = 10.0
    backoff: Backoff = Backoff()
    result_limit: int = 50_000
    options: Mapping[str, Any] = attrs.field(factory=dict)
    on_event: Callable[[Event], object] | None = None
