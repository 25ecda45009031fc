"""Explores everything that a run can do within a declared scope, and holds the invariants to each edge of it.

:func:`explore` goes breadth first from the start: it answers each effect that was ordered with every answer that the
driver could give, and lets people abort, speak and decide at any time. States that differ only in what the machine
never looks at (texts, ids, the history of turns that were checked) are merged, so that the scope stays small. A broken
rule raises :class:`CounterExample`, whose text is the shortest way there.

What is shown is shown within the scope: a run of three turns, or a reply of four calls, is outside of
``Scope(calls=3, turns=2)``.

>>> found = explore(Scope(calls=1, turns=1, inputs=0))
>>> found.states < found.edges < 1_000
True
"""

from __future__ import annotations

import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn, TypeAlias

import attrs

from edgewise.statemachine.errors import IllegalSignal
from edgewise.statemachine.invariants import RULES, Rule, check_history, check_snapshot, check_step
from edgewise.statemachine.machine import Step, advance, outstanding
from edgewise.statemachine.messages import AssistantMessage, Message
from edgewise.statemachine.moves import Effects
from edgewise.statemachine.signals import (
    AbortRequested,
    CallDecided,
    CallSettled,
    CallStarted,
    HookFailed,
    InputQueued,
    ModelFailed,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.snapshot import Snapshot, State
from edgewise.statemachine.table import ROWS, Row
from edgewise.statemachine.worlds import Scope, beginnings, misplaced, possible

__all__ = [
    "CounterExample",
    "Exploration",
    "Scope",
    "check_history",
    "check_snapshot",
    "check_step",
    "explore",
]

Advance: TypeAlias = Callable[[Snapshot, Signal], Step]

DEFAULT_SCOPE = Scope()


class CounterExample(AssertionError):
    """A rule is broken. The text says which, and tells the shortest way there, signal by signal."""

    def __init__(self, faults: Sequence[str], story: Sequence[str]) -> None:
        self.faults = tuple(faults)
        self.story = tuple(story)
        super().__init__("\n".join([*self.faults, "the shortest way there:", *self.story]))


@attrs.frozen
class Exploration:
    """What was explored."""

    states: int
    edges: int
    depth: int
    """How many signals it takes to the state that is farthest from the start."""
    seconds: float
    taken: Mapping[Row, int] = attrs.field(repr=False)
    """How many edges each row gave; rows never taken are missing."""
    finals: Mapping[State, int] = attrs.field(repr=False)
    """How many states of each final kind there are."""

    @property
    def untaken(self) -> tuple[Row, ...]:
        """The rows of the table that no explored run takes."""
        return tuple(row for row in ROWS if row not in self.taken)

    def __str__(self) -> str:
        return f"{self.states:,} states, {self.edges:,} edges, depth {self.depth}, {self.seconds:.1f} s"


def explore(scope: Scope = DEFAULT_SCOPE, advance: Advance = advance, rules: Sequence[Rule] = RULES) -> Exploration:
    """Explore what ``advance`` makes of every run within ``scope``.

    At each edge the step, and at each state the snapshot, must keep the rules. On the whole graph: a final state can be
    reached from every live one without an abort and without a fault; and whoever goes round in circles has asked the
    should-continue hook on the way, or was spoken to.

    Raises CounterExample when that is not so.
    """
    return _Explorer(scope, advance, rules).run()


_INPUT, _JUDGED, _TROUBLE, _AGAIN = 1, 2, 4, 8
"""What is special about an edge: somebody spoke; the hook was asked; an abort or a fault; a process was restarted."""


class _Explorer:
    def __init__(self, scope: Scope, advance: Advance, rules: Sequence[Rule]) -> None:
        self.scope, self.advance, self.rules = scope, advance, rules
        self.beginnings = list(beginnings(scope))
        self.numbers: dict[object, int] = {}
        self.parents = array("l")
        self.signals: list[Signal | None] = []
        self.depths = array("l")
        self.final: list[bool] = []
        self.sources, self.targets, self.marks = array("l"), array("l"), bytearray()
        self.taken: Counter[Row] = Counter()
        self.finals: Counter[State] = Counter()
        self.todo: deque[tuple[int, Snapshot, int]] = deque()

    def run(self) -> Exploration:
        began = time.perf_counter()
        for n, (snapshot, effects) in enumerate(self.beginnings):
            if faults := check_snapshot(snapshot):
                self._broken(faults, -1 - n)
            if effects != outstanding(snapshot):
                self._broken(["what a run waits for is not what was ordered when it began"], -1 - n)
            self._found(snapshot, 0, -1 - n, None)
        todo = self.todo
        while todo:
            self._expand(*todo.popleft())
        self._ends()
        self._goes_round_only_when_told()
        return Exploration(
            len(self.final), len(self.sources), max(self.depths), time.perf_counter() - began, self.taken, self.finals
        )

    def _expand(self, number: int, s: Snapshot, told: int) -> None:
        for signal in misplaced(s):
            try:
                self.advance(s, signal)
            except IllegalSignal:
                continue
            self._broken([f"it comes too late or twice, and is taken: {describe(signal)} in {s.state}"], number, signal)
        for signal in possible(s, self.scope, told):
            try:
                step = self.advance(s, signal)
            except IllegalSignal as error:
                self._broken([f"it may well happen, and is refused: {error}"], number, signal)
            # At each edge, since a state that looks like a known one to the machine may yet be broken.
            if faults := check_step(s, signal, step, self.rules) or check_snapshot(step.snapshot):
                self._broken(faults, number, signal)
            after = step.snapshot
            if after.turn > self.scope.turns and not after.closing and not after.state.final:
                continue  # outside of the scope
            self.taken[step.row] += 1
            self.sources.append(number)
            self.targets.append(self._found(after, told + isinstance(signal, InputQueued), number, signal))
            self.marks.append(_mark(s, signal))

    def _found(self, s: Snapshot, told: int, parent: int, signal: Signal | None) -> int:
        """The number of a state, which may be new."""
        key = _key(s, told)
        number = self.numbers.setdefault(key, len(self.final))
        if number == len(self.final):
            self.parents.append(parent)
            self.signals.append(signal)
            self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
            self.final.append(s.state.final)
            if s.state.final:
                self.finals[s.state] += 1
            self.todo.append((number, s, told))
        return number

    # ---- the graph as a whole

    def _ends(self) -> None:
        """From every live state a final one can be reached, without an abort or a fault."""
        before: list[list[int]] = [[] for _ in self.final]
        for source, target, mark in zip(self.sources, self.targets, self.marks, strict=True):
            if not mark & _TROUBLE:
                before[target].append(source)
        good = [n for n, final in enumerate(self.final) if final]
        seen = bytearray(len(self.final))
        for n in good:
            seen[n] = True
        while good:
            for n in before[good.pop()]:
                if not seen[n]:
                    seen[n] = True
                    good.append(n)
        if (stuck := seen.find(0)) >= 0:
            self._broken(["it ends: no way leads on from here to a final state"], stuck)

    def _goes_round_only_when_told(self) -> None:
        """Without the hook's verdicts, people's words and restarts the graph has no cycle."""
        after: list[list[int]] = [[] for _ in self.final]
        into = array("l", bytes(self.depths.itemsize * len(self.final)))
        for source, target, mark in zip(self.sources, self.targets, self.marks, strict=True):
            if not mark & (_INPUT | _JUDGED | _AGAIN):
                after[source].append(target)
                into[target] += 1
        free = [n for n, count in enumerate(into) if not count]
        left = len(self.final)
        while free:
            left -= 1
            for n in after[free.pop()]:
                into[n] -= 1
                if not into[n]:
                    free.append(n)
        if left:
            first = next(n for n, count in enumerate(into) if count)
            self._broken(["it ends: from here a run can go round for ever, and no hook is asked"], first)

    # ---- counterexamples

    def _broken(self, faults: Sequence[str], number: int, signal: Signal | None = None) -> NoReturn:
        raise CounterExample(faults, list(self._story(number, signal)))

    def _story(self, number: int, last: Signal | None) -> Iterator[str]:
        signals = [] if last is None else [last]
        while number >= 0:
            signal = self.signals[number]
            if signal is not None:
                signals.insert(0, signal)
            number = self.parents[number]
        snapshot, effects = self.beginnings[-1 - number]
        yield f"   start: {_now(snapshot, effects)}"
        for n, signal in enumerate(signals, 1):
            try:
                step = self.advance(snapshot, signal)
            except IllegalSignal:
                yield f"{n:2}. {describe(signal)}: refused"
                break
            snapshot = step.snapshot
            yield f"{n:2}. {describe(signal)}: {_now(snapshot, step.effects)}"
        yield "the history then:"
        for n, message in enumerate(snapshot.history):
            yield f"{n:2}. {_told(message)}"


def _mark(s: Snapshot, signal: Signal) -> int:
    if isinstance(signal, InputQueued):
        return _INPUT
    if isinstance(signal, TurnJudged):
        return _JUDGED
    if isinstance(signal, (AbortRequested, HookFailed)):
        return _TROUBLE
    if isinstance(signal, CallStarted) and s.batch.marks[signal.slot] == "r":
        return _AGAIN | _TROUBLE
    return 0


def _key(s: Snapshot, told: int) -> object:
    """What the machine can tell apart. It looks at no text and no id, and never back at a closed turn."""
    state = s.state
    ending = s.ending.kind if s.ending is not None else ""
    queues = (told, len(s.steering), len(s.follow_ups))
    if state.final:
        return state, queues, ending
    batch, exclusive = s.batch, s.policy.exclusive
    approved = tuple([i for i, special in batch.particulars if special.approved and batch.marks[i] in "ws"])
    alone = tuple([call.name in exclusive for call in batch.calls]) if exclusive else ()
    turn = 0 if state is State.ABORTING else s.turn
    return (
        state,
        turn,
        s.attempt,
        s.closing,
        s.compacted,
        s.turn_calls > 0,
        queues,
        ending,
        batch.marks,
        approved,
        alone,
    )


# ---- in words


def describe(signal: Signal) -> str:
    """A signal in a few words."""
    name = signal.name
    if isinstance(signal, ModelReplied):
        return f"{name} ({_words(signal.message)}; {signal.message.stop_reason})"
    if isinstance(signal, ModelFailed):
        return f"{name} ({signal.failure.kind}{', retryable' if signal.failure.retryable else ''})"
    if isinstance(signal, TurnJudged):
        word = ", one closing word" if getattr(signal.verdict, "wrap_up", False) else ""
        return f"{name} ({signal.verdict.kind}{word})"
    if isinstance(signal, CallDecided):
        return f"{name} (call {signal.slot}, {'approved' if signal.approved else 'refused'})"
    if isinstance(signal, CallSettled):
        return f"{name} (call {signal.slot}, {signal.result.text!r}{', stop' if signal.stop is not None else ''})"
    if isinstance(signal, InputQueued):
        return f"{name} ({signal.queue}, {signal.message.text!r})"
    if isinstance(signal, HookFailed):
        return f"{name} ({signal.hook})"
    if isinstance(signal, AbortRequested):
        return name
    if isinstance(signal, CallStarted) and signal.others:
        return f"{name} (calls {', '.join(map(str, (signal.slot, *signal.others)))})"
    return f"{name} (call {signal.slot})"


def _words(message: AssistantMessage) -> str:
    calls = [call.name for call in message.tool_calls]
    return f"calls {', '.join(calls)}" if calls else "no calls"


def _now(s: Snapshot, effects: Effects) -> str:
    orders = ", ".join(f"{effect.kind} {effect.id}" for effect in effects)
    return f"{s.state}{f'; {orders}' if orders else ''}"


def _told(message: Message) -> str:
    text = repr(message.text) if message.text else ""
    if isinstance(message, AssistantMessage):
        return f"assistant {text or ''} {_words(message)}".replace("  ", " ")
    return f"{message.role} {text}"
