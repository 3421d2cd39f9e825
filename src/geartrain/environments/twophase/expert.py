"""The scripted expert: knows what is asked, reads only what the tools answer.

It reads a task's parameters and the names of its decisions, as the prompt has
them, never the truth. Flawless, it solves every task in `necessary_steps`
calls; flawed, see `flaws`.
"""

import random
import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from geartrain.environments.environment import Task
from geartrain.environments.scripted import Call, Script, ScriptedExpert
from geartrain.environments.tools import render_call
from geartrain.environments.twophase.drafts import VERBS, WAIT
from geartrain.environments.twophase.flaws import DO_LURES, FLAWLESS, PLAN_LURES, Habits

Board = Sequence[tuple[str, str, Sequence[str]]]
_STOP = re.compile(r"stop \d+ of \d+: (\w+) (\w+)(, fragile)?")
_LINE = re.compile(r'(\w+) \{"choice": "(\w+)"\}: (.+)')
_STATIONS = ("first", "second", "third")


class TwoPhaseExpert(ScriptedExpert):
    """A policy that follows the script of one task."""

    def __init__(self, task: Task, *, seed: int, habits: Habits = FLAWLESS):
        rng = random.Random(f"{seed}/{task.task_id}")  # noqa: S311 - not a secret
        script = _script(task.spec["parameters"], task.family, habits, rng)
        super().__init__(script, rng, broken_call=habits.broken_call, spoil=_broken)


def _broken(call: Call, rng: random.Random) -> str:
    return render_call(*call)[:-1] if rng.random() < 0.5 else render_call(f"{call[0]}_it", call[1])


def _script(parameters: Mapping[str, Any], family: str, habits: Habits, rng: random.Random) -> Script:
    # One draw per lure, taken whether or not the task has it: seeds then mean the same for every task.
    active = {flaw for flaw in (*PLAN_LURES, *DO_LURES) if rng.random() < habits.flaw}
    content = yield "look", {}
    board = _read(content)
    chosen: list[str] = []
    stations = len(board) if family == "order" else 0
    decisions = {"route": ["route"], "recipe": ["recipe"], "convoy": ["route", "cart"]}.get(family)
    for decision in decisions or _STATIONS[: stations - 1]:
        chosen.append(_choose(decision, board, parameters, chosen, active))
        content = yield "plan", {"choice": chosen[-1]}
    if rng.random() < habits.dawdle:
        content = yield "do", {"action": WAIT}
    while (stop := _STOP.search(content)) is not None:
        content = yield from _clear(stop[2], bool(stop[3]), active, habits, rng)
    yield "finish", {}


def _read(content: str) -> Board:
    """Return (kind, name, facts) per line of the board; lines of another form are left out."""
    lines = [_LINE.fullmatch(line) for line in content.split("\n")]
    return [(line[1], line[2], line[3].split(", ")) for line in lines if line]


def _choose(decision: str, board: Board, parameters: Mapping[str, Any], chosen: Sequence[str], active: set[str]) -> str:
    kind = "station" if decision in _STATIONS else decision
    options = [(name, facts) for line, name, facts in board if line == kind and name not in chosen]
    for flaw, (where, lure) in PLAN_LURES.items():
        for name, facts in options:
            if where == decision and flaw in active and lure in facts:
                return name
    suited = [(name, facts) for name, facts in options if _suits(kind, facts, parameters, chosen)]
    short = [name for name, facts in suited if not {"detour", "slow"} & set(facts)]
    # After a wrong choice nothing need suit any more; then the script goes on with what is there.
    return next(iter(short or [name for name, _ in suited or options]), "none")


def _suits(kind: str, facts: Sequence[str], parameters: Mapping[str, Any], chosen: Sequence[str]) -> bool:
    if kind == "route":
        return any(fact.startswith("holds") and int(fact.split()[1]) >= parameters["load"] for fact in facts)
    if kind == "cart":
        return parameters["need"] in facts
    if kind == "recipe":
        return parameters["avoid"] not in facts
    return all(fact.removeprefix("after ") in chosen for fact in facts if fact.startswith("after "))


def _clear(
    state: str, fragile: bool, active: set[str], habits: Habits, rng: random.Random
) -> Generator[Call, str, str]:
    """Do what a stop asks for; return the last answer."""
    for flaw, (where, verb) in DO_LURES.items():
        if state == where and flaw in active:
            yield "do", {"action": verb}  # it breaks; the expert does not look back
    if not fragile and rng.random() < habits.slip:
        yield "do", {"action": rng.choice([verb for verb in VERBS.values() if verb != VERBS[state]])}
        yield "repair", {}
    content = yield "do", {"action": VERBS[state]}
    return content
