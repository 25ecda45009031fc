"""How an outcome explains itself, and what raise_for_state makes of it."""

from __future__ import annotations

import pytest

from edgewise import (
    EdgewiseError,
    LimitExceeded,
    Message,
    Outcome,
    RunAborted,
    RunEnded,
    RunFailed,
    Snapshot,
    State,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    fold,
    start,
)
from edgewise.statemachine.errors import Failure
from edgewise.statemachine.messages import AssistantMessage, user_message
from edgewise.statemachine.outcome import last_action
from edgewise.statemachine.signals import (
    AbortRequested,
    CallSettled,
    HookFailed,
    ModelFailed,
    ModelReplied,
    Signal,
    TurnJudged,
)
from edgewise.statemachine.verdicts import Continue, Finish, Limit

CALL = ToolCall.of("read_file", id="a", path="a.txt")
ASKED = ModelReplied(AssistantMessage((Text("Let me look."), CALL), "tool_use", Usage(10, 5)))
READ = CallSettled(0, ToolResult("a", "read_file", (Text("ok"),)))
ANSWER = ModelReplied(AssistantMessage((Text("Here you are."),), "stop", Usage(20, 5)))
GO_ON = TurnJudged(Continue())


def _outcome(*signals: Signal, history: tuple[Message, ...] = ()) -> Outcome:
    snapshot: Snapshot = fold(start(history, [user_message("go")])[0], signals)
    assert snapshot.state.final
    return Outcome("run-1", snapshot)


DONE = _outcome(ASKED, READ, GO_ON, ANSWER, GO_ON)
LIMITED = _outcome(ASKED, READ, TurnJudged(Limit("it used all 1 turns")))
ABORTED = _outcome(ASKED, AbortRequested("the user pressed stop"))
FAILED = _outcome(ModelFailed(Failure("auth", "no such key", provider="openai", request_id="req_1")))


def test_an_outcome_shows_what_most_people_want() -> None:
    assert (DONE.state, DONE.text, DONE.usage, DONE.turns) == ("done", "Here you are.", Usage(30, 10), 2)
    assert (DONE.run_id, DONE.reason, DONE.failure) == ("run-1", "", None)
    assert DONE.messages is DONE.snapshot.history and len(DONE.messages) == 4
    assert DONE.state is State.DONE


def test_a_run_that_ended_before_a_reply_does_not_show_an_older_one() -> None:
    older = (user_message("before"), AssistantMessage((Text("an older answer"),)))
    outcome = _outcome(ModelFailed(Failure("auth", "no such key")), history=older)
    assert outcome.text == ""
    assert "The model had not replied yet." in outcome.explanation


def test_the_text_is_that_of_the_last_reply_words_or_not() -> None:
    assert LIMITED.text == ABORTED.text == "Let me look."
    assert FAILED.text == ""


# ---- raise_for_state


def test_a_run_that_is_done_passes() -> None:
    assert DONE.raise_for_state() is DONE


@pytest.mark.parametrize(
    ("outcome", "kind"), [(ABORTED, RunAborted), (LIMITED, LimitExceeded), (FAILED, RunFailed)], ids=lambda x: str(x)
)
def test_the_other_ends_raise_an_error_of_their_own_that_carries_the_outcome(
    outcome: Outcome, kind: type[RunEnded]
) -> None:
    with pytest.raises(kind) as caught:
        outcome.raise_for_state()
    assert type(caught.value) is kind and isinstance(caught.value, EdgewiseError)
    assert caught.value.outcome is outcome
    assert str(caught.value) == outcome.explanation


# ---- explanations


def test_done_is_said_in_a_word() -> None:
    assert DONE.explanation == "Done."
    finished = _outcome(ASKED, READ, TurnJudged(Finish("the tests pass")))
    assert finished.explanation == "Done: the tests pass."


def test_a_limit_says_what_was_done_last_and_how_to_continue() -> None:
    assert LIMITED.explanation == (
        "The task did not converge within its limit: it used all 1 turns. The last action was "
        'read_file({"path": "a.txt"}), which succeeded. Nothing is lost: continue from here with session.continue_() '
        "or `edgewise resume FILE`, with a new allowance, or narrow the task."
    )


def test_an_abort_says_by_whom_and_that_the_session_lives() -> None:
    assert ABORTED.explanation == (
        'The run was aborted: the user pressed stop. The last action was read_file({"path": "a.txt"}), which failed. '
        "Every call has its result; the conversation can be continued."
    )
    assert (ABORTED.reason, ABORTED.failure) == ("the user pressed stop", None)


def test_a_failure_says_whose_and_what_to_do() -> None:
    assert FAILED.explanation == (
        "The run failed: the model call failed: auth: openai: no such key (request req_1). The model had not replied "
        "yet. Nothing that was said is lost; mend the cause, then continue."
    )
    assert FAILED.failure is not None and FAILED.failure.kind == "auth"


def test_a_hook_that_failed_is_named() -> None:
    outcome = _outcome(ASKED, READ, HookFailed("should_continue", "ValueError: no"))
    assert outcome.explanation.startswith(
        "The run failed: the hook should_continue raised ValueError: no. The last act"
    )
    assert outcome.failure is None


# ---- the last action


def _result(text: str = "ok", *, error: bool = False) -> ToolResult:
    return ToolResult("a", "read_file", (Text(text),), error)


def test_the_last_action_is_the_last_call_and_how_it_went() -> None:
    asked = AssistantMessage((CALL, CALL))
    call = 'read_file({"path": "a.txt"})'
    assert last_action([asked, _result(), _result()]) == f"{call}, which succeeded (the last of 2 calls)"
    assert last_action([asked, _result(), _result(error=True)]) == f"{call}, which failed (the last of 2 calls)"
    assert last_action([AssistantMessage((CALL,))]) == f"{call}, which was not answered"


def test_words_are_an_action_too() -> None:
    assert last_action([user_message("hi"), AssistantMessage((Text(" Hello. "),))]) == 'the reply "Hello."'
    # A reply that an abort cut off before a word had come is none.
    assert last_action([AssistantMessage((CALL,)), _result(), AssistantMessage((), "aborted")]).startswith("read_file")


def test_what_lies_before_the_last_word_of_a_person_is_not_the_last_action() -> None:
    assert last_action([AssistantMessage((Text("old"),)), user_message("new")]) == ""
    assert last_action([]) == ""


def test_long_arguments_and_long_words_are_shortened() -> None:
    call = ToolCall("a", "write_file", "x" * 1000)
    assert last_action([AssistantMessage((call,))]) == f"write_file({'x' * 200}...), which was not answered"
    assert last_action([AssistantMessage((Text("y" * 1000),))]) == f'the reply "{"y" * 200}..."'
