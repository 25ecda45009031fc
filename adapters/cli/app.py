"""The command's arguments: what can be asked for, checked and handed on."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import edgewise
from edgewise.adapters.cli.edges import Form
from edgewise.adapters.cli.exits import DONE, EXPLAINED, UsageError, plain_errors
from edgewise.adapters.cli.running import INSTRUCTIONS, Options, carry_out, resuming, saying

app = typer.Typer(
    name="edgewise",
    help="Runs language model agents whose every step can be seen, stopped and resumed.",
    epilog=EXPLAINED,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models = typer.Typer(help="The language models that run inside this process.", no_args_is_help=True)
app.add_typer(models, name="model")

Model = Annotated[
    str,
    typer.Option(
        "--model", "-m", metavar="SPEC", envvar="EDGEWISE_MODEL",
        help="local, local:NAME, local:PATH.gguf, or openai:NAME (with OPENAI_API_KEY, OPENAI_BASE_URL).",
    ),
]  # fmt: skip
Workspace = Annotated[
    str, typer.Option("--workspace", "-w", metavar="DIR", help="The directory that the tools may look at.")
]
MaxTurns = Annotated[
    int,
    typer.Option("--max-turns", metavar="N", min=1, help="After so many turns the model gets one closing word."),
]
Session = Annotated[
    str | None,
    typer.Option("--session", "-s", metavar="FILE", help="Keep the conversation here, or go on with the one there."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object per event on stdout, the outcome last; for programs.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every edge that the machine takes, on stderr.")]
Log = Annotated[
    Form | None,
    typer.Option("--log", help="How edges are written; with --json as JSON.", show_default=False),
]
System = Annotated[str, typer.Option("--system", metavar="TEXT", help="The instructions for the model.")]


def run_app(argv: Sequence[str] | None) -> int:
    """Do what ``argv`` asks for and give the exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # it was closed by whoever called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):  # what the terminal's encoding lacks must not end the run
            stream.reconfigure(errors="replace")
    try:
        app(args=None if argv is None else list(argv), prog_name="edgewise")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else DONE if leaving.code is None else 1
    return DONE


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"edgewise {edgewise.__version__}")
        raise typer.Exit(DONE)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Shown with --help; the options of the command itself."""


@app.command("run", epilog=EXPLAINED)
def run_command(
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What to say; - reads it from stdin.")],
    model: Model = "local",
    workspace: Workspace = ".",
    max_turns: MaxTurns = 20,
    session: Session = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    log: Log = None,
    system: System = INSTRUCTIONS,
) -> None:
    """Put a prompt to an agent that can look at the files of a directory.

    The model's words go to stdout as they come, calls and results and the rest to stderr. Ctrl-C aborts the run and
    lets it clean up; a second one stops at once.
    """
    with plain_errors():
        if prompt == "-":
            prompt = sys.stdin.read()
        if not prompt.strip():
            raise UsageError('the prompt is empty; say something, as in: edgewise run "List the files"')
        options = Options(model, workspace, max_turns, system, session, as_json, verbose, _form(log, as_json))
        ended = carry_out(options, saying(prompt))
    raise typer.Exit(ended.code if ended else DONE)


@app.command("resume", epilog=EXPLAINED)
def resume_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A session that `edgewise run --session FILE` kept.")],
    model: Model = "local",
    workspace: Workspace = ".",
    max_turns: MaxTurns = 20,
    as_json: AsJson = False,
    verbose: Verbose = False,
    log: Log = None,
    system: System = INSTRUCTIONS,
) -> None:
    """Go on with a run that was interrupted, or that ended at a limit, by an abort or by a failure.

    What was recorded is not done again: calls that were running when the process died are closed as interrupted, unless
    their tool may safely run twice. Give the same --model and --workspace as before.
    """
    with plain_errors():
        _must_exist(file)
        options = Options(model, workspace, max_turns, system, file, as_json, verbose, _form(log, as_json))
        ended = carry_out(options, resuming(file))
    raise typer.Exit(ended.code if ended else DONE)


@app.command("show")
def show_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A session file; it may be in use.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per message.")] = False,
) -> None:
    """Print the conversation of a session, and how its last run stands."""
    from edgewise.adapters.cli.showing import show_session

    with plain_errors():
        show_session(file, as_json)


@app.command("demo", epilog="Exit codes: 0 when the model called a tool and the run is done; else as for run.")
def demo_command(model: Model = "local") -> None:
    """See it work: the model in this process lists the files of a small sample workspace, edge by edge.

    The first time the model is fetched (491 MB). No key is needed.
    """
    from edgewise.adapters.cli.demo import demonstrate

    with plain_errors():
        code = demonstrate(model)
    raise typer.Exit(code)


@models.command("pull")
def pull_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="As `edgewise model list` shows.")] = None,
) -> None:
    """Fetch a model into the user's cache; one that was begun is gone on with."""
    from edgewise.adapters.cli.weights import pull_by_name

    with plain_errors():
        pull_by_name(name)


@models.command("list")
def list_command() -> None:
    """List the models that can be fetched, and where those that were fetched lie."""
    from edgewise.adapters.cli.weights import list_models

    with plain_errors():
        list_models()


def _form(log: Form | None, as_json: bool) -> Form:
    return log or ("json" if as_json else "console")


def _must_exist(file: str) -> None:
    if not os.path.exists(file):
        raise UsageError(f"there is no session file {file}; `edgewise run PROMPT --session {file}` would make one")
