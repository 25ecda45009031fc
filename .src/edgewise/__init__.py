"""Edgewise: an agent loop you can see the edges of.

An explicit, checked state machine for LLM agents, driven by trio. Models live in ``edgewise.adapters.models``, tools in
``edgewise.tools``; what is here is the engine's public face.
"""

from __future__ import annotations

from edgewise.statemachine.agent import Agent
from edgewise.statemachine.errors import (
    EdgewiseError,
    Failure,
    IllegalSignal,
    InvalidArguments,
    JournalCorrupt,
    JournalError,
    MisuseError,
    ModelError,
    SessionBusy,
    TableError,
)
from edgewise.statemachine.events import (
    CallAwaitsApproval,
    CallBegan,
    CallEnded,
    CallUpdated,
    Edge,
    Event,
    EventsDropped,
    MessageDelta,
    MessageEnded,
    MessageFailed,
    MessageStarted,
    RunFinished,
    TurnEnded,
)
from edgewise.statemachine.hooks import (
    ProposedCall,
    Report,
    all_of,
    any_of,
    cost_budget,
    deadline,
    inline,
    max_turns,
    repeated_calls,
    token_budget,
)
from edgewise.statemachine.machine import fold, legal, outstanding, start, step
from edgewise.statemachine.messages import (
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from edgewise.statemachine.outcome import LimitExceeded, Outcome, RunAborted, RunEnded, RunFailed
from edgewise.statemachine.ports import CallContext, ModelRequest
from edgewise.statemachine.records import MemoryJournal, Record, recover, replay
from edgewise.statemachine.replies import Backoff
from edgewise.statemachine.run import HeldCall, Run
from edgewise.statemachine.session import Session
from edgewise.statemachine.snapshot import Policy, Snapshot, State
from edgewise.statemachine.verdicts import Allow, Ask, Continue, Deny, Finish, Limit

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Allow",
    "Ask",
    "AssistantMessage",
    "Backoff",
    "CallAwaitsApproval",
    "CallBegan",
    "CallContext",
    "CallEnded",
    "CallUpdated",
    "Continue",
    "Deny",
    "Edge",
    "EdgewiseError",
    "Event",
    "EventsDropped",
    "Failure",
    "Finish",
    "HeldCall",
    "IllegalSignal",
    "Image",
    "InvalidArguments",
    "JournalCorrupt",
    "JournalError",
    "Limit",
    "LimitExceeded",
    "MemoryJournal",
    "Message",
    "MessageDelta",
    "MessageEnded",
    "MessageFailed",
    "MessageStarted",
    "MisuseError",
    "ModelError",
    "ModelRequest",
    "Outcome",
    "Policy",
    "ProposedCall",
    "Record",
    "Report",
    "Run",
    "RunAborted",
    "RunEnded",
    "RunFailed",
    "RunFinished",
    "Session",
    "SessionBusy",
    "Snapshot",
    "State",
    "TableError",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "TurnEnded",
    "Usage",
    "UserMessage",
    "all_of",
    "any_of",
    "cost_budget",
    "deadline",
    "fold",
    "inline",
    "legal",
    "max_turns",
    "outstanding",
    "recover",
    "repeated_calls",
    "replay",
    "start",
    "step",
    "token_budget",
]
