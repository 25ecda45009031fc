"""What the package costs before it does anything: its import, and the distributions that it brings along."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

PARTS = "import trio, transitions, attrs, structlog"
ENGINE = "import edgewise"

_TIMED = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
import json, sys
print(json.dumps({{"cpu_s": cpu, "wall_s": wall, "modules": len(sys.modules)}}))
"""


def time_import(statement: str, times: int) -> dict[str, Any]:
    """Seconds that ``statement`` takes in a fresh interpreter, whose own start is not counted: the median of some."""
    # -I: neither the caller's environment nor the folder it stands in changes what is imported.
    command = [sys.executable, "-I", "-c", _TIMED.format(statement=statement)]
    found: list[dict[str, Any]] = []
    for _ in range(times):
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        found.append(json.loads(said.stdout))
    return {figure: median(one[figure] for one in found) for figure in found[0]}


def packages(root: Path, *, ask_pip: bool) -> dict[str, Any]:
    """The distributions that ``pip install edgewise`` brings into an empty environment, itself included.

    pip resolves them anew when asked to and able to (it needs a registry); otherwise the installed ones are followed
    from requirement to requirement, which gives the same list.
    """
    names = _from_pip(root) if ask_pip else None
    how = "pip install --dry-run" if names else "requirements of what is installed"
    names = names or _from_metadata("edgewise")
    return {"count": len(names), "names": sorted(names), "how": how}


def _from_pip(root: Path) -> list[str] | None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--dry-run", "--ignore-installed", "--report", str(report), str(root)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=300)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode or not report.exists():
            return None
        found = json.loads(report.read_text())["install"]
        return [one["metadata"]["name"] for one in found]


def _from_metadata(name: str) -> list[str]:
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    todo = [name]
    while todo:
        distribution = importlib.metadata.distribution(todo.pop())
        called = distribution.metadata["Name"]
        key = re.sub(r"[-_.]+", "-", called).lower()
        if key in found:
            continue
        found[key] = called
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return list(found.values())
