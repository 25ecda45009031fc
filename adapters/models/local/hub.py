"""Fetches a model's file from its home on the hub, through the hub's own client, which also resumes."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgewise.adapters.models.local.transfer import PullStopped, SourceFailed, Watch
from edgewise.adapters.models.local.weights import Weights

ANSWER_WITHIN = 3.0
"""Seconds in which the hub must say that it has the file. A name that does not resolve may take far longer."""


def fetch_from_hub(weights: Weights, partial: Path, watch: Watch) -> Path:
    """Download into the directory ``partial`` and give the file's path there. Raises SourceFailed when it can't."""
    import huggingface_hub
    from huggingface_hub import constants

    if constants.is_offline_mode():
        raise SourceFailed("the hub was skipped, since HF_HUB_OFFLINE is set")
    url = huggingface_hub.hf_hub_url(weights.repository, weights.file)
    found = _within(ANSWER_WITHIN, lambda: huggingface_hub.get_hf_file_metadata(url, timeout=ANSWER_WITHIN), watch)
    if found.size not in (None, weights.size):
        raise SourceFailed(f"the hub has a file of {found.size:,} bytes there, not {weights.size:,}")
    watch.at(0, "hub")
    try:
        path = huggingface_hub.hf_hub_download(
            weights.repository,
            weights.file,
            local_dir=partial,
            etag_timeout=ANSWER_WITHIN,
            tqdm_class=_bar(watch),
        )
    except PullStopped:
        raise
    except Exception as error:
        watch.check()  # the client may have wrapped our own stop
        raise SourceFailed(f"the hub failed: {_short(error)}") from error
    return Path(path)


def _within(seconds: float, work: Callable[[], Any], watch: Watch) -> Any:
    """What ``work`` gives, in a thread that nobody waits for longer than ``seconds``."""
    given: list[Any] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            given.append(work())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="edgewise-hub-check", daemon=True)
    thread.start()
    waited = 0.0
    while thread.is_alive() and waited < seconds:
        thread.join(0.1)
        waited += 0.1
        watch.check()
    if failed:
        raise SourceFailed(f"the hub cannot be reached: {_short(failed[0])}") from failed[0]
    if not given:
        raise SourceFailed(f"the hub did not answer within {seconds:.0f} s")
    return given[0]


def _bar(watch: Watch) -> type[Any]:
    """The client reports progress to a class like tqdm; this one hands the figures on and draws nothing."""
    tqdm: Any = importlib.import_module("tqdm").tqdm

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._bytes = kwargs.get("unit") == "B"
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)
            self._seen = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            if self._bytes:
                self._seen += int(n or 0)
                watch.at(self._seen)
            return None

    return Bar


def _short(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
