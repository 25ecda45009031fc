"""The keys that the engine is judged by: how each is computed from the measurements, what it must be and should be."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from workload import NAP

Rounds = Mapping[str, list[dict[str, Any]]]
"""For each probe what it measured, round by round."""


@dataclass(frozen=True)
class Figures:
    """What a key compares: ``base`` and ``engine`` in ``unit``, and ``value``, which is judged."""

    value: float
    unit: str = ""
    base: float | None = None
    engine: float | None = None
    also: dict[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Key:
    name: str
    what: str
    figures: Callable[[Rounds], Figures]
    must: float | None = None
    goal: float | None = None

    def judge(self, rounds: Rounds, *, in_earnest: bool) -> dict[str, Any]:
        found = self.figures(rounds)
        return {
            "key": self.name,
            "what": self.what,
            "unit": found.unit,
            "base": found.base,
            "engine": found.engine,
            "value": found.value,
            "must": self.must,
            "goal": self.goal,
            "verdict": self._verdict(found.value) if in_earnest else "not judged",
            "note": found.note,
            **found.also,
        }

    def _verdict(self, value: float) -> str:
        if self.must is None:
            return "for information"
        if self.goal is not None and value <= self.goal:
            return "goal"
        return "must" if value <= self.must else "MISSED"


# ---- the parts that figures are made of


def _of(rounds: Rounds, probe: str, figure: str) -> float:
    """The median over the rounds, of what is itself a median over repetitions."""
    return float(median(measured[figure] for measured in rounds[probe]))


def _a_turn(rounds: Rounds, probe: str) -> float:
    """Microseconds of CPU."""
    job = rounds[probe][0]["job"]
    return _of(rounds, probe, "cpu_s") * 1e6 / float(job["turns"] * job["runs"] * job["waves"])


def _spread(rounds: Rounds, base: str, engine: str, value: float) -> dict[str, Any]:
    """The lowest and the highest ratio of a single round, which say how far ``value`` can be trusted."""
    scale = value * _of(rounds, base, "cpu_s") / _of(rounds, engine, "cpu_s")
    pairs = zip(rounds[base], rounds[engine], strict=True)
    ratios = [scale * above["cpu_s"] / below["cpu_s"] for below, above in pairs]
    return {"lowest_round": min(ratios), "highest_round": max(ratios)}


# ---- the keys


def _turns(base: str, engine: str) -> Callable[[Rounds], Figures]:
    def figures(rounds: Rounds) -> Figures:
        below, above = _a_turn(rounds, base), _a_turn(rounds, engine)
        value = above / below
        return Figures(value, "us", below, above, _spread(rounds, base, engine, value))

    return figures


def _fanout(rounds: Rounds) -> Figures:
    below, above = (_of(rounds, f"{side}.fanout", "cpu_s") * 1e3 for side in ("floor", "engine"))
    wall_below, wall_above = ((_of(rounds, f"{side}.fanout", "wall_s") - NAP) * 1e3 for side in ("floor", "engine"))
    value = above / below
    calls = rounds["engine.fanout"][0]["job"]["calls"]
    note = (
        f"CPU of a whole run (a turn of {calls} calls, then a text reply) of the engine, divided by the CPU of the "
        f"same run of the floor, which starts the calls in one nursery. Wall above the {NAP * 1e3:.0f} ms that the "
        f"calls sleep: floor {wall_below:.1f} ms, engine {wall_above:.1f} ms"
    )
    also = {"floor_wall_ms_above_nap": wall_below, "engine_wall_ms_above_nap": wall_above}
    also |= _spread(rounds, "floor.fanout", "engine.fanout", value)
    return Figures(value, "ms", below, above, also, note)


def _fleet_growth(rounds: Rounds) -> Figures:
    few, alone, many = (_a_turn(rounds, f"engine.fleet_{size}") for size in ("few", "alone", "many"))
    floor_few, floor_alone, floor_many = (_a_turn(rounds, f"floor.fleet_{size}") for size in ("few", "alone", "many"))
    value = many / few
    small, large = rounds["engine.fleet_few"][0]["job"], rounds["engine.fleet_many"][0]["job"]
    note = (
        f"both do the same number of turns and keep all outcomes: {large['runs']:,} agents at once, over "
        f"{small['runs']} at once in {small['waves']} waves. What grows is the work of Python's garbage collector, "
        f"which looks at all that is alive: the floor grows by {floor_many / floor_few:.2f} in the same way. Over one "
        f"small fleet alone, with little else alive, the engine grows by {many / alone:.2f}, the floor by "
        f"{floor_many / floor_alone:.2f}"
    )
    also = {
        "floor_growth": floor_many / floor_few,
        "over_one_small_fleet": many / alone,
        "floor_over_one_small_fleet": floor_many / floor_alone,
    }
    also |= _spread(rounds, "engine.fleet_few", "engine.fleet_many", value)
    return Figures(value, "us", few, many, also, note)


def _fleet_kib(rounds: Rounds) -> Figures:
    def an_agent(probe: str) -> float:
        agents = float(rounds[probe][0]["job"]["runs"])
        return (_of(rounds, probe, "rss_peak_kib") - _of(rounds, probe, "rss_base_kib")) / agents

    value = an_agent("engine.fleet_many")
    note = (
        "peak resident memory when the last run has ended, less that before the first began, over the number of "
        "agents; all run at once and all outcomes are kept, so at the end all histories are alive"
    )
    return Figures(value, "KiB", an_agent("floor.fleet_many"), value, note=note)


def _abort(rounds: Rounds) -> Figures:
    value = _of(rounds, "engine.abort", "wall_s") * 1e3
    slowest = max(max(measured["wall_s_each"]) for measured in rounds["engine.abort"]) * 1e3
    also = {"cpu_ms": _of(rounds, "engine.abort", "cpu_s") * 1e3, "slowest_ms": slowest}
    note = "wall time from run.abort() until its outcome is there, with each of the three calls answered"
    return Figures(value, "ms", None, value, also, note)


def _import(rounds: Rounds) -> Figures:
    below, above = (_of(rounds, f"{side}.import", "cpu_s") * 1e3 for side in ("parts", "engine"))
    value = above / below
    note = "CPU of the import statement in a fresh interpreter, modules compiled; the interpreter's start is not in it"
    return Figures(value, "ms", below, above, _spread(rounds, "parts.import", "engine.import", value), note)


def _packages(rounds: Rounds) -> Figures:
    facts = rounds["packages"][0]
    return Figures(facts["count"], "", None, facts["count"], {"names": facts["names"]}, f"counted by {facts['how']}")


KEYS = (
    Key("turn_vs_floor", "CPU a turn, edge log filtered out", _turns("floor.turns", "engine.turns"), 8, 6),
    Key("turn_logged_vs_floor", "same, a JSON line an edge", _turns("floor.turns", "engine.turns_logged"), 12, 9),
    Key("turn_jsonl_vs_floor", "same, journal in a file", _turns("floor.turns", "engine.turns_jsonl")),
    Key("turn_growth", "CPU a turn, long over short run", _turns("engine.turns_few", "engine.turns_many"), 1.3, 1.1),
    Key("fanout_vs_floor", "CPU of a turn of parallel calls", _fanout, 1.5, 1.2),
    Key("fleet_growth", "CPU a turn, many over few agents", _fleet_growth, 1.5, 1.2),
    Key("fleet_kib", "memory an agent, many agents", _fleet_kib, 24, 16),
    Key("abort_ms", "from abort to the final state", _abort, 5, 1),
    Key("import_vs_parts", "import edgewise over its parts", _import, 1.5, 1.2),
    Key("packages", "what pip installs", _packages, 14, 11),
)


# ---- for a reader


def _shown(figure: float | None, unit: str = "") -> str:
    if figure is None:
        return "-"
    digits = 0 if float(figure).is_integer() and figure >= 1 else 2 if figure < 10 else 1
    return f"{figure:.{digits}f} {unit}".rstrip()


def table(verdicts: list[dict[str, Any]]) -> str:
    """The verdicts as a table, with the notes below. ``base`` is the floor, the small run, or the parts."""
    head = ["key", "what", "base", "engine", "value", "must", "goal", "verdict"]
    rows = [
        [
            one["key"],
            one["what"],
            _shown(one["base"], one["unit"]),
            _shown(one["engine"], one["unit"]),
            _shown(one["value"]),
            _shown(one["must"]),
            _shown(one["goal"]),
            one["verdict"],
        ]
        for one in verdicts
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if 2 <= i <= 6 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [head, ["-" * width for width in widths], *rows]
    ]
    notes = [f"{one['key']}: {one['note']}." for one in verdicts if one["note"]]
    return "\n".join([*lines, "", *[textwrap.fill(note, 118, subsequent_indent="    ") for note in notes]])
