"""Shared by the core's tests: snapshots of every state that a run really reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest
from hypothesis import settings

from edgewise import Snapshot, State
from edgewise.statemachine.machine import advance
from edgewise.statemachine.signals import InputQueued
from edgewise.statemachine.worlds import Scope, beginnings, possible

# A busy machine is no bug.
settings.register_profile("edgewise", deadline=None)
settings.load_profile("edgewise")


@pytest.fixture(scope="session")
def reached() -> Mapping[State, Sequence[Snapshot]]:
    """What random walks pass through, by state."""
    random = Random(7)
    scopes = [Scope(inputs=2), Scope(calls=3, exclusive=False, stops=False, restarts=False, hook_failures=False)]
    found: dict[State, dict[str, Snapshot]] = {state: {} for state in State}
    for walk in range(600):
        scope = scopes[walk % 2]
        s, _ = random.choice(list(beginnings(scope)))
        told = 0
        while True:
            found[s.state].setdefault(repr(s), s)
            signals = list(possible(s, scope, told))
            if not signals:
                break
            signal = random.choice(signals)
            told += isinstance(signal, InputQueued)
            s = advance(s, signal).snapshot
    return {state: list(some.values()) for state, some in found.items()}
