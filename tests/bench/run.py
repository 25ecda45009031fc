"""``make bench``: the engine beside the floor, everything in one run.

    python tests/bench/run.py            # a few minutes; prints the table, writes .bench/results.json
    python tests/bench/run.py --quick    # tiny sizes, one round: whether it works, not how fast it is

Each measurement is a process of its own. They take turns, round by round (floor, engine, floor, engine, ...), so that
a slow spell of the machine falls on both sides. Figures are medians over the rounds of medians over repetitions, and
ratios are of figures of the same run. The exit code says whether everything was measured and proved its work, not how
fast it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parts
import verdicts

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MEASURED = ("trio", "attrs", "transitions", "structlog", "msgspec", "jsonschema-rs", "cattrs", "orjson", "edgewise")


@dataclass(frozen=True)
class Sizes:
    rounds: int
    turns: int
    few_turns: int
    many_turns: int
    calls: int
    few_agents: int
    many_agents: int
    """A multiple of ``few_agents``."""
    reps: float
    """A factor on the repetitions within a process."""


FULL = Sizes(7, 1000, 100, 3000, 100, 100, 5000, 1)
QUICK = Sizes(1, 20, 5, 30, 10, 4, 20, 0)

Probe = Callable[[], dict[str, Any]]


def side(script: str, workload: str, size: int, variant: str = "", *, reps: int = 1, waves: int = 1) -> Probe:
    """One side on one workload, in a process of its own."""
    command = [sys.executable, str(HERE / script), workload, str(size), "--variant", variant]
    command += ["--reps", str(reps), "--waves", str(waves)]

    def probe() -> dict[str, Any]:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise SystemExit(f"{script} {workload} {size} {variant}: {done.stderr.strip()}")
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return facts

    return probe


def probes(sizes: Sizes) -> dict[str, Probe]:
    """What is measured in each round, in this order."""

    def reps(full: int) -> int:
        return max(2, round(full * sizes.reps))

    few, many = sizes.few_agents, sizes.many_agents
    return {
        "floor.turns": side("floor.py", "turns", sizes.turns, "serial", reps=reps(20)),
        "engine.turns": side("engine.py", "turns", sizes.turns, "quiet", reps=reps(7)),
        "engine.turns_logged": side("engine.py", "turns", sizes.turns, "logged", reps=reps(5)),
        "engine.turns_jsonl": side("engine.py", "turns", sizes.turns, "jsonl", reps=reps(5)),
        "engine.turns_few": side("engine.py", "turns", sizes.few_turns, "quiet", reps=reps(30)),
        "engine.turns_many": side("engine.py", "turns", sizes.many_turns, "quiet", reps=reps(3)),
        "floor.fanout": side("floor.py", "fanout", sizes.calls, "parallel", reps=reps(50)),
        "engine.fanout": side("engine.py", "fanout", sizes.calls, "quiet", reps=reps(50)),
        "floor.fleet_few": side("floor.py", "fleet", few, "serial", waves=many // few),
        "engine.fleet_few": side("engine.py", "fleet", few, "quiet", waves=many // few),
        "floor.fleet_alone": side("floor.py", "fleet", few, "serial", reps=reps(15)),
        "engine.fleet_alone": side("engine.py", "fleet", few, "quiet", reps=reps(15)),
        "floor.fleet_many": side("floor.py", "fleet", many, "serial"),
        "engine.fleet_many": side("engine.py", "fleet", many, "quiet"),
        "engine.abort": side("engine.py", "abort", 3, reps=reps(25)),
        "parts.import": lambda: parts.time_import(parts.PARTS, reps(3)),
        "engine.import": lambda: parts.time_import(parts.ENGINE, reps(3)),
    }


def measure(sizes: Sizes, *, ask_pip: bool) -> dict[str, list[dict[str, Any]]]:
    chosen = probes(sizes)
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for statement in (parts.PARTS, parts.ENGINE):
        parts.time_import(statement, 1)  # so that every module is compiled
    for number in range(1, sizes.rounds + 1):
        for name, probe in chosen.items():
            progress(f"round {number} of {sizes.rounds}: {name}")
            rounds[name].append(probe())
    progress("counting packages")
    rounds["packages"] = [parts.packages(ROOT, ask_pip=ask_pip)]
    progress("")
    return rounds


def progress(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{words:<50}", end="" if words else "\r", file=sys.stderr, flush=True)


def circumstances() -> dict[str, Any]:
    """What a reader has to know of the machine, and nothing that names it."""
    versions = {}
    for name in MEASURED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": cores,
        "load_before": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": versions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round, no registry asked")
    parser.add_argument("--rounds", type=int, help="how many rounds (7)")
    parser.add_argument("--out", type=Path, default=ROOT / ".bench" / "results.json", help="where the figures go")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else FULL
    if asked.rounds:
        sizes = dataclasses.replace(sizes, rounds=asked.rounds)
    facts = circumstances()
    rounds = measure(sizes, ask_pip=not asked.quick)
    judged = [key.judge(rounds, in_earnest=not asked.quick) for key in verdicts.KEYS]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    results = {"quick": asked.quick, "sizes": dataclasses.asdict(sizes), **facts, "keys": judged, "rounds": rounds}
    asked.out.write_text(json.dumps(results, indent=1) + "\n")
    print(verdicts.table(judged))
    if asked.quick:
        print("\nThese are figures of tiny runs: they say that the benchmark works, and nothing about speed.")


if __name__ == "__main__":
    main()
