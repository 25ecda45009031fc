"""The tree of errors is the one that is drawn, and each error says what it knows."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest

import edgewise
from edgewise import (
    EdgewiseError,
    Failure,
    IllegalSignal,
    InvalidArguments,
    ModelError,
    Outcome,
    RunFailed,
    fold,
    start,
)
from edgewise.statemachine import errors
from edgewise.statemachine.messages import user_message
from edgewise.statemachine.signals import ModelFailed


def _below(cls: type[EdgewiseError]) -> Iterator[type[EdgewiseError]]:
    """The engine's own errors; tools and adapters have some more."""
    if cls.__module__.startswith("edgewise.statemachine."):
        yield cls
        for child in cls.__subclasses__():
            yield from _below(child)


CLASSES = list(_below(EdgewiseError))
OUTCOME = Outcome("run", fold(start(inputs=[user_message("hi")])[0], [ModelFailed(Failure("auth", "no"))]))


def _drawn() -> dict[str, str]:
    """Each error of the drawing with the one above it, by how far it is indented."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^( {4}[ │├└─]*)([A-Z]\w+)( |$)", line)
        if found is None:
            continue
        depth, name = len(found[1]), found[2]
        while above and above[-1][0] >= depth:
            above.pop()
        parents[name] = above[-1][1] if above else "Exception"
        above.append((depth, name))
    return parents


def test_the_drawn_tree_is_that_of_the_classes() -> None:
    assert _drawn() == {cls.__name__: cls.__base__.__name__ for cls in CLASSES if cls.__base__ is not None}
    assert len(CLASSES) > 10


def test_every_error_is_public_and_documented() -> None:
    for cls in CLASSES:
        assert cls.__name__ in edgewise.__all__
        assert cls.__doc__ and cls.__doc__.endswith(".")
        assert issubclass(cls, EdgewiseError)


def test_a_failure_reads_as_one_line() -> None:
    assert str(Failure("auth", "no such key")) == "auth: no such key"
    told = Failure("rate_limited", "slow down", True, 3.0, request_id="req_1", provider="openai")
    assert str(told) == "rate_limited: openai: slow down (request req_1)"


def test_a_model_error_carries_its_failure() -> None:
    failure = Failure("network", "the connection was lost", retryable=True)
    error = ModelError(failure)
    assert error.failure is failure and str(error) == "network: the connection was lost"


def test_invalid_arguments_tell_every_fault() -> None:
    error = InvalidArguments(fault for fault in ("$.path: missing", "$.depth: expected a number"))
    assert error.faults == ("$.path: missing", "$.depth: expected a number")
    assert str(error) == "$.path: missing; $.depth: expected a number"


def test_an_illegal_signal_names_state_signal_and_what_is_legal() -> None:
    error = IllegalSignal("done", "CallStarted", (), "call 3 is settled")
    assert (error.state, error.signal, error.legal, error.why) == ("done", "CallStarted", (), "call 3 is settled")
    assert str(error) == (
        "CallStarted is not legal in state done (call 3 is settled); legal there: nothing, since it is final"
    )
    assert str(IllegalSignal("aborting", "TurnJudged", ["CallSettled", "InputQueued"])) == (
        "TurnJudged is not legal in state aborting; legal there: CallSettled, InputQueued"
    )


@pytest.mark.parametrize(
    "error",
    [
        IllegalSignal("done", "CallStarted", ("InputQueued",), "why"),
        ModelError(Failure("auth", "no")),
        InvalidArguments(["one", "two"]),
        RunFailed(OUTCOME),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_the_way_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
