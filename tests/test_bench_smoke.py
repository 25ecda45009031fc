"""That the benchmark works: every key comes out, and every measurement proved its work. Nothing about speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).with_name("bench") / "run.py"

KEYS = [
    "turn_vs_floor",
    "turn_logged_vs_floor",
    "turn_jsonl_vs_floor",
    "turn_growth",
    "fanout_vs_floor",
    "fleet_growth",
    "fleet_kib",
    "abort_ms",
    "import_vs_parts",
    "packages",
]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("bench") / "results.json"
    done = subprocess.run([sys.executable, RUN, "--quick", "--out", out], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(key in done.stdout for key in KEYS)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.slow
def test_every_key_is_measured(results: dict[str, Any]) -> None:
    assert [one["key"] for one in results["keys"]] == KEYS
    assert all(one["value"] > 0 for one in results["keys"])


@pytest.mark.slow
def test_every_run_proves_its_work(results: dict[str, Any]) -> None:
    measured = [one for rounds in results["rounds"].values() for one in rounds if "job" in one]
    assert len(measured) == 14
    for one in measured:
        job, work = one["job"], one["work"]
        runs = job["runs"] * job["waves"]
        calls = runs * job["turns"] * job["calls"]
        assert work["model_calls"] == runs * (job["turns"] + 1)
        assert work["tool_calls"] == work["results"] == work["right_results"] == calls
        assert work["messages"] == runs * (2 + job["turns"]) + calls


@pytest.mark.slow
def test_an_abort_answers_every_call(results: dict[str, Any]) -> None:
    [abort] = results["rounds"]["engine.abort"]
    assert abort["work"] == {"aborted_and_answered": abort["reps"], "calls_in_each": 3}


@pytest.mark.slow
def test_the_results_name_no_machine(results: dict[str, Any]) -> None:
    text = json.dumps(results)
    assert str(Path(__file__).parents[1]) not in text
    assert str(Path.home()) not in text
