"""Fetches models, showing how far it is: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from edgewise.adapters.cli.exits import UsageError
from edgewise.adapters.cli.screen import error_console
from edgewise.adapters.models.local import (
    DEFAULT,
    Progress,
    Pulled,
    PullStopped,
    Weights,
    is_pulled,
    known_models,
    pull,
)
from edgewise.adapters.models.local.weights import find

_STEP = 10
"""Per cent between two lines where there is no terminal."""


def megabytes(size: int) -> str:
    """A size for people.

    >>> megabytes(491_400_064)
    '491 MB'
    """
    return f"{size / 1e6:,.0f} MB"


def wanted_by(spec: str) -> Weights | None:
    """The model of ours that ``spec`` means, as in ``local`` or ``local:NAME``; None for files and other providers."""
    provider, _, name = spec.partition(":")
    if provider != "local":
        return None
    return next((weights for weights in known_models() if weights.name == (name or DEFAULT)), None)


def pull_if_needed(spec: str, console: Console) -> None:
    """Fetch the model that ``spec`` means when it is one of ours and not there yet. Raises PullError."""
    weights = wanted_by(spec)
    if weights is None or is_pulled(weights):
        return
    console.print(
        Text(
            f"Fetching {weights.title} ({megabytes(weights.size)}, {weights.licence}), once. "
            "Ctrl-C stops it; the next time goes on from there."
        )
    )
    pulled = fetch(weights, console)
    console.print(Text(f"It came from {pulled.source} and lies in {pulled.path}"))


def fetch(weights: Weights, console: Console) -> Pulled:
    """Fetch ``weights`` and show how far it is. Raises PullError, and PullStopped at Ctrl-C."""
    try:
        return _fetch(weights, console)
    except KeyboardInterrupt:
        raise PullStopped("stopped; what was fetched is kept, and the next time goes on from there") from None


def _fetch(weights: Weights, console: Console) -> Pulled:
    if not console.is_terminal:
        return pull(weights.name, _in_lines(console))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=weights.size)

        def show(progress: Progress) -> None:
            bars.update(task, description=progress.source, completed=progress.done, total=progress.total)

        return pull(weights.name, show)


def _in_lines(console: Console) -> Callable[[Progress], None]:
    last = ("", -1)

    def show(progress: Progress) -> None:
        nonlocal last
        share = 100 * progress.done // progress.total if progress.total else 0
        now = (progress.source, share // _STEP)
        if now != last:
            last = now
            console.print(Text(f"{progress.source}: {share}% of {megabytes(progress.total)}"))

    return show


def pull_by_name(name: str | None) -> None:
    """The command ``edgewise model pull``."""
    console = error_console()
    weights = find(name or DEFAULT)
    with _extra_needed():
        if is_pulled(weights):
            sys.stdout.write(f"{weights.name} is there already: {weights.path}\n")
            return
        console.print(Text(f"Fetching {weights.title} ({megabytes(weights.size)}, {weights.licence})"))
        pulled = fetch(weights, console)
    sys.stdout.write(f"{weights.name} from {pulled.source}: {pulled.path}\n")


def list_models() -> None:
    """The command ``edgewise model list``."""
    with _extra_needed():
        for weights in known_models():
            there = str(weights.path) if is_pulled(weights) else f"not fetched; edgewise model pull {weights.name}"
            mark = " (the default)" if weights.name == DEFAULT else ""
            what = f"{weights.title}, {weights.licence}, {megabytes(weights.size)}"
            sys.stdout.write(f"{weights.name}{mark}\n    {what}\n    {there}\n")


@contextmanager
def _extra_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f'local models need the package {error.name}, which is not installed: pip install "edgewise[local]"'
        ) from error
