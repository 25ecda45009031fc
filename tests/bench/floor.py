"""The floor: an agent loop with no machine, no checks, no journal and no events, on trio.

Messages are plain dictionaries in one list. ``serial`` awaits one tool after the other, as a teaching example does;
it is what the engine's turns are held against. ``parallel`` starts a turn's calls in one nursery and files their
results in the order of the calls; it is what the fan-out is held against. Neither has an answer to an abort.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import trio
from workload import NAP, PROMPT, Job, answer, main, ran

Message: TypeAlias = dict[str, Any]
Model: TypeAlias = Callable[[list[Message], list[Message]], Awaitable[Message]]
Tool: TypeAlias = tuple[Message, Callable[[dict[str, Any]], Awaitable[Message]]]
"""What the model is told of it, and what runs."""
Tools: TypeAlias = dict[str, Tool]
Batch: TypeAlias = Callable[[Tools, list[Message]], Awaitable[list[Message]]]


def model_for(job: Job) -> Model:
    async def model(messages: list[Message], tools: list[Message]) -> Message:
        ran.model_calls += 1
        await trio.lowlevel.checkpoint()
        turn = (len(messages) - 1) // (1 + job.calls)
        if turn == job.turns:
            return {"role": "assistant", "stop_reason": "stop", "content": [{"type": "text", "text": "done"}]}
        calls = [
            {"type": "tool_call", "id": f"{turn}-{n}", "name": job.tool, "arguments": {"turn": turn, "call": n}}
            for n in range(job.calls)
        ]
        return {"role": "assistant", "stop_reason": "tool_use", "content": calls}

    return model


def result(text: str, *, is_error: bool = False) -> Message:
    return {"role": "tool", "content": [{"type": "text", "text": text}], "is_error": is_error}


async def echo(arguments: dict[str, Any]) -> Message:
    ran.tool_calls += 1
    await trio.lowlevel.checkpoint()
    return result(answer("echo", arguments["turn"], arguments["call"]))


async def nap(arguments: dict[str, Any]) -> Message:
    ran.tool_calls += 1
    await trio.sleep(NAP)
    return result(answer("nap", arguments["turn"], arguments["call"]))


def described(name: str) -> Message:
    whole = {"type": "integer"}
    parameters = {"type": "object", "properties": {"turn": whole, "call": whole}, "required": ["turn", "call"]}
    return {"name": name, "description": "Say which call this is.", "parameters": parameters}


async def perform(tools: Tools, call: Message) -> Message:
    known = tools.get(call["name"])
    if known is None:
        answered = result(f"Unknown tool: {call['name']}", is_error=True)
    else:
        answered = await known[1](call["arguments"])
    return {**answered, "call_id": call["id"], "name": call["name"]}


async def serial(tools: Tools, calls: list[Message]) -> list[Message]:
    return [await perform(tools, call) for call in calls]


async def parallel(tools: Tools, calls: list[Message]) -> list[Message]:
    results: list[Message] = [{}] * len(calls)

    async def one(place: int, call: Message) -> None:
        results[place] = await perform(tools, call)

    async with trio.open_nursery() as nursery:
        for place, call in enumerate(calls):
            nursery.start_soon(one, place, call)
    return results


async def loop(model: Model, tools: Tools, batch: Batch, messages: list[Message], max_turns: int) -> list[Message]:
    for _ in range(max_turns):
        reply = await model(messages, [description for description, _ in tools.values()])
        messages.append(reply)
        calls = [block for block in reply["content"] if block["type"] == "tool_call"]
        if not calls:
            return messages
        messages.extend(await batch(tools, calls))
    raise RuntimeError(f"no end after {max_turns} turns")


class Floor:
    def __init__(self, variant: str) -> None:
        self.batch = parallel if variant == "parallel" else serial
        self.tools: Tools = {"echo": (described("echo"), echo), "nap": (described("nap"), nap)}

    def prepare(self, job: Job) -> None:
        self.model = model_for(job)
        self.most = job.turns + 1

    async def run(self) -> list[Message]:
        return await loop(self.model, self.tools, self.batch, [{"role": "user", "content": PROMPT}], self.most)

    def history(self, done: list[Message]) -> tuple[int, Sequence[str]]:
        return len(done), [message["content"][0]["text"] for message in done if message["role"] == "tool"]

    def close(self) -> dict[str, Any]:
        return {}


async def no_abort(reps: int) -> dict[str, Any]:
    raise SystemExit("the floor has no abort: nobody would answer its calls")


if __name__ == "__main__":
    main(Floor, no_abort)
