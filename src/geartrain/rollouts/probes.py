"""Reward-hacking probes: policies that do no work, played through the real environment.

A verifier that any of them passes pays for nothing, and every number measured
with it is void. The probes know no tool by name: they read the environment's
own tool list, so a new environment is probed without a line of code.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from geartrain.environments.environment import Environment, Task, ToolSpec


def silent(task: Task, tools: Sequence[ToolSpec], enders: frozenset[str], turns: int) -> Iterator[str]:
    """Say nothing, every turn."""
    for _ in range(turns):
        yield ""


def blank(task: Task, tools: Sequence[ToolSpec], enders: frozenset[str], turns: int) -> Iterator[str]:
    """Call every tool once with blank arguments: an empty report, a finish with nothing done."""
    for tool in sorted(tools, key=lambda tool: tool.name in enders):
        yield _call(tool, text="")


def spam(task: Task, tools: Sequence[ToolSpec], enders: frozenset[str], turns: int) -> Iterator[str]:
    """Call every tool over and over with the task's own words as text, then finish."""
    lasting = [tool for tool in tools if tool.name not in enders] or list(tools)
    for turn in range(turns - 1):
        yield _call(lasting[turn % len(lasting)], text=task.prompt)
    yield from (_call(tool, text=task.prompt) for tool in tools if tool.name in enders)


PROBES: Mapping[str, Callable[[Task, Sequence[ToolSpec], frozenset[str], int], Iterator[str]]] = {
    "silent": silent,
    "blank": blank,
    "spam": spam,
}


def run_probes(environment: Environment, tasks: Sequence[Task], *, max_turns: int, seed: int) -> dict[str, Any]:
    """Play every probe on every task; return `{probe: {"episodes", "successes", "passed_tasks"}}`.

    `successes` must be 0. `passed_tasks` names at most five tasks whose verifier was passed.
    """
    tools = environment.tools()
    enders = _enders(environment, tasks, tools, seed) if tasks else frozenset()
    report = {}
    for name, probe in PROBES.items():
        passed = [t.task_id for t in tasks if _passes(environment, t, probe(t, tools, enders, max_turns), seed)]
        report[name] = {"episodes": len(tasks), "successes": len(passed), "passed_tasks": passed[:5]}
    return report


def _passes(environment: Environment, task: Task, messages: Iterator[str], seed: int) -> bool:
    episode = environment.reset(task, seed=seed)
    try:
        for message in messages:
            if episode.step(message).done:
                break
        return episode.verdict().success
    finally:
        episode.close()


def _enders(environment: Environment, tasks: Sequence[Task], tools: Sequence[ToolSpec], seed: int) -> frozenset[str]:
    """Return the tools whose call ends an episode, found by calling each in an episode of its own."""
    ending = set()
    for tool in tools:
        episode = environment.reset(tasks[0], seed=seed)
        try:
            if episode.step(_call(tool, text="done")).done:
                ending.add(tool.name)
        finally:
            episode.close()
    return frozenset(ending)


def _call(tool: ToolSpec, *, text: str) -> str:
    """Return a well-formed call of `tool`, required arguments filled with the least that their types allow."""
    properties: Mapping[str, Any] = tool.parameters.get("properties", {})
    arguments = {name: _filler(properties.get(name, {}), text) for name in tool.parameters.get("required", ())}
    return json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)


def _filler(schema: Mapping[str, Any], text: str) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    declared = schema.get("type", "string")
    kind = declared if isinstance(declared, str) else declared[0]
    return {"integer": 1, "number": 0.0, "boolean": True, "array": [], "object": {}}.get(kind, text)
