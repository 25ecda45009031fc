"""What both sides of the benchmark do, the clock that times it, and the proof that it was done.

One process measures one side on one workload and prints one line of JSON. The work is the same for all:

``turns``   one run of N turns with one tool call each, then a text reply
``fanout``  one turn of K tool calls at once, each of which sleeps 10 ms, then a text reply
``fleet``   A runs at once, of ten turns each; in several waves when a smaller fleet is to do as much as a large one
``abort``   three calls that never return, then the run is stopped

The model is a function in the process: it yields to the scheduler once and decides by the length of the history that it
is handed, so a side that lost a message would not end. The clock is the processor's time; wall time is noted beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import trio

PROMPT = "go"
NAP = 0.010
FLEET_TURNS = 10
HANGING = 3


@dataclass
class Work:
    """How much was done: by the model and the tools as they ran, and by what the histories hold afterwards."""

    model_calls: int = 0
    tool_calls: int = 0
    messages: int = 0
    results: int = 0
    right_results: int = 0
    """Results that have the expected text in the expected place."""


@dataclass
class Job:
    """``runs`` runs at once, each of ``turns`` turns with ``calls`` calls of ``tool`` and a text reply at the end.

    All that ``waves`` times, one after the other; what they came to is kept until the last one has ended.
    """

    turns: int
    calls: int
    tool: str
    runs: int = 1
    waves: int = 1

    @property
    def expected(self) -> Work:
        calls = self.turns * self.calls
        work = Work(self.turns + 1, calls, 2 + self.turns + calls, calls, calls)
        return Work(*[figure * self.runs * self.waves for figure in asdict(work).values()])

    def result(self, number: int) -> str:
        """The text that result ``number`` of a run must have."""
        return answer(self.tool, number // self.calls, number % self.calls)


def answer(tool: str, turn: int, call: int) -> str:
    return f"{tool} {turn}.{call}"


ran = Work()
"""What the models and tools of this process count themselves in."""


class Side(Protocol):
    """The engine or the floor."""

    def prepare(self, job: Job) -> None:
        """Put together what runs share. Not timed."""
        ...

    async def run(self) -> Any:
        """Do one run, and give whatever its history can be read from."""
        ...

    def history(self, done: Any) -> tuple[int, Sequence[str]]:
        """How many messages there are, and the texts of the results in order. Not timed."""
        ...

    def close(self) -> dict[str, Any]:
        """Let go of files; add what there is to tell."""
        ...


def status_kib(key: str) -> int:
    """``VmRSS`` or ``VmHWM`` (its peak). Where there is no /proc, the peak stands for both."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(key))
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak


@dataclass
class Clock:
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)

    def start(self) -> None:
        gc.collect()
        self._began = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.cpu.append(cpu - self._began[0])
        self.wall.append(wall - self._began[1])


async def carry_out(side: Side, job: Job) -> list[Any]:
    if job.runs * job.waves == 1:
        return [await side.run()]
    done: list[Any] = []

    async def one() -> None:
        done.append(await side.run())

    for _ in range(job.waves):
        async with trio.open_nursery() as nursery:
            for _ in range(job.runs):
                nursery.start_soon(one)
    return done


def prove(side: Side, job: Job, done: Sequence[Any]) -> dict[str, int]:
    """Count what was done. Raises SystemExit when it is not what was to be done."""
    work = Work(ran.model_calls, ran.tool_calls)
    for one in done:
        messages, results = side.history(one)
        work.messages += messages
        work.results += len(results)
        work.right_results += sum(text == job.result(number) for number, text in enumerate(results))
    if work != job.expected:
        raise SystemExit(f"the work was not done: {work}; expected: {job.expected}")
    return asdict(work)


async def measure(side: Side, job: Job, reps: int) -> dict[str, Any]:
    small = Job(3, job.calls, job.tool, min(job.runs, 3))
    side.prepare(small)
    await carry_out(side, small)  # warm: lazy imports, compiled schemas, specialised bytecode
    side.prepare(job)
    gc.collect()
    clock, work, base, peak = Clock(), {}, status_kib("VmRSS"), 0
    for _ in range(reps):
        ran.model_calls = ran.tool_calls = 0
        clock.start()
        done = await carry_out(side, job)
        clock.stop()
        peak = peak or status_kib("VmHWM")
        work = prove(side, job, done)
        done.clear()
    return {
        "job": asdict(job),
        "reps": reps,
        "cpu_s": statistics.median(clock.cpu),
        "wall_s": statistics.median(clock.wall),
        "cpu_s_each": clock.cpu,
        "wall_s_each": clock.wall,
        "rss_base_kib": base,
        "rss_peak_kib": peak,
        "work": work,
        **side.close(),
    }


def job_of(workload: str, size: int, waves: int = 1) -> Job:
    if workload == "turns":
        return Job(size, 1, "echo")
    if workload == "fanout":
        return Job(1, size, "nap")
    return Job(FLEET_TURNS, 1, "echo", size, waves)


def main(make_side: Callable[[str], Side], abort: Callable[[int], Awaitable[dict[str, Any]]]) -> None:
    """The command line of one side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=["turns", "fanout", "fleet", "abort"])
    parser.add_argument("size", type=int)
    parser.add_argument("--reps", type=int, default=1)
    parser.add_argument("--waves", type=int, default=1)
    parser.add_argument("--variant", default="")
    asked = parser.parse_args()
    side = make_side(asked.variant)
    if asked.workload == "abort":
        facts = trio.run(abort, asked.reps)
    else:
        facts = trio.run(measure, side, job_of(asked.workload, asked.size, asked.waves), asked.reps)
    print(json.dumps(facts))
