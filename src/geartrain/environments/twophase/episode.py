"""One attempt at one task: a plan that cannot be taken back, then stops that are cleared one by one.

Phases: "plan" until every decision is made, "do" until the end. An episode ends
with `finish`, which is refused while stops are left, or when its calls are used up.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from geartrain.environments.environment import Step, Task, ToolSpec, Verdict
from geartrain.environments.tools import Tool, ToolError, clip, dispatch
from geartrain.environments.twophase.constraints import misfits
from geartrain.environments.twophase.drafts import VERBS, WAIT, WORDS
from geartrain.trajectory import ToolResult


def _spec(name: str, description: str, **properties: Mapping[str, Any]) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return ToolSpec(name, description, schema)


SPECS = (
    _spec("look", "Show the board with all options while planning; later, the stop that you are at."),
    _spec("plan", "Decide for an option of the board; it cannot be taken back.", choice={"type": "string"}),
    _spec("do", "Act at the stop that you are at.", action={"type": "string", "enum": list(WORDS)}),
    _spec("repair", "Mend what is jammed."),
    _spec("finish", "End the task, once every stop is done."),
)


class TwoPhaseEpisode:
    """The state of one attempt."""

    def __init__(self, task: Task, *, system: str):
        self.task = task
        self._system = system
        self._parameters: Mapping[str, Any] = task.spec["parameters"]
        self._decisions: list[dict[str, Any]] = task.spec["decisions"]
        self._road: list[dict[str, Any]] = []
        """Stops in the order in which they come; known once the plan is made."""
        self._chosen: list[str] = []
        self._cleared: list[str] = []
        self._jammed = False
        self._broken = False
        self._finished = False
        self._calls = 0
        functions: tuple[Callable[..., str], ...] = (self._look, self._plan, self._do, self._repair, self._finish)
        self._tools = {spec.name: Tool(spec, run) for spec, run in zip(SPECS, functions, strict=True)}

    @property
    def phase(self) -> str:
        """ "plan", "do" or "end"."""
        if self._over():
            return "end"
        return "plan" if len(self._chosen) < len(self._decisions) else "do"

    def opening(self) -> list[dict[str, str]]:
        """Return the system prompt and the task."""
        return [{"role": "system", "content": self._system}, {"role": "user", "content": self.task.prompt}]

    def step(self, message: str) -> Step:
        """Apply one assistant message; an error is a result. Every message uses up a call."""
        if self._over():
            over = ToolResult("error episode_over: the task is finished", "episode_over")
            return Step(None, over, (), True)
        before = self._subgoals()
        call, result = dispatch(message, self._tools)
        self._calls += 1
        if self._over() and not self._finished:
            result = replace(result, content=f"{result.content}; no calls left")
        reached = tuple(name for name, held in self._subgoals().items() if held and not before[name])
        return Step(call, result, reached, self._over())

    def verdict(self) -> Verdict:
        """Judge the state as it is now: a fitting plan, every stop cleared, nothing broken, and finished."""
        reasons = []
        for number, decision in enumerate(self._decisions):
            if number >= len(self._chosen):
                reasons.append(f"plan: no {decision['name']}")
            else:
                reasons += [f"plan: {self._chosen[number]} {why}" for why in self._misfits(number)]
        if self.phase != "plan" and len(self._cleared) < len(self._road or self.task.spec["stops"]):
            reasons.append(f"do: {len(self._cleared)} stops are done")
        reasons += ["do: something broke for good"] * self._broken + ["not finished"] * (not self._finished)
        return Verdict(not reasons, self._subgoals(), tuple(reasons))

    def close(self) -> None:
        """Nothing to release."""

    def _over(self) -> bool:
        return self._finished or self._calls >= self.task.spec["budget"]

    def _subgoals(self) -> dict[str, bool]:
        """Return the sub-goals of both phases; none is ever lost again."""
        goals = {
            f"plan:{decision['name']}": number < len(self._chosen) and not self._misfits(number)
            for number, decision in enumerate(self._decisions)
        }
        return goals | {f"do:{stop['name']}": stop["name"] in self._cleared for stop in self.task.spec["stops"]}

    def _misfits(self, number: int) -> list[str]:
        """Return why the choice of a decision that was made does not fit."""
        facts = self._option(number, self._chosen[number])["facts"]
        return misfits(facts, self._parameters, self._decisions[number]["name"], self._chosen[:number])

    def _option(self, number: int, name: str) -> dict[str, Any]:
        return next(option for option in self._decisions[number]["options"] if option["name"] == name)

    def _look(self) -> str:
        if self.phase == "do":
            return self._here()
        # names as `plan` takes them: a small model can copy what follows the same text, and not make up a name
        lines = {
            f"{'station' if decision['name'] in ('first', 'second', 'third') else decision['name']} "
            f"{json.dumps({'choice': option['name']})}: {', '.join(option['facts'])}": None
            for decision in self._decisions
            for option in decision["options"]
        }
        return "\n".join(lines)  # a dict, because the decisions of an order share their options

    def _plan(self, choice: str) -> str:
        if self.phase == "do":
            raise ToolError("already_planned", "the plan is made")
        decision = self._decisions[len(self._chosen)]
        if choice not in [option["name"] for option in decision["options"]]:
            raise ToolError("unknown_option", f"no {decision['name']} '{clip(choice, 30)}', see the board")
        if choice in self._chosen:
            raise ToolError("already_planned", f"'{choice}' is planned already")
        self._chosen.append(choice)
        planned = f"{decision['name']}: {choice}"
        if len(self._chosen) < len(self._decisions):
            return f"{planned}; next {self._decisions[len(self._chosen)]['name']}"
        self._road = self._stops()
        return f"{planned}; {self._here()}"

    def _stops(self) -> list[dict[str, Any]]:
        """Return the stops that the plan leads to."""
        stops: list[dict[str, Any]] = self.task.spec["stops"]
        if self._decisions[0]["name"] == "first":
            by_name = {stop["name"]: stop for stop in stops}
            rest = [name for name in by_name if name not in self._chosen]
            return [by_name[name] for name in (*self._chosen, *rest)]
        facts = {fact for n, name in enumerate(self._chosen) for fact in self._option(n, name)["facts"]}
        return ([self.task.spec["detour"]] if facts & {"detour", "slow"} else []) + stops

    def _here(self) -> str:
        if len(self._cleared) == len(self._road):
            return "all stops done"
        stop = self._road[len(self._cleared)]
        if self._jammed:
            return f"{stop['name']} is jammed, repair it"
        fragile = ", fragile" if stop["fragile"] else ""
        return f"stop {len(self._cleared) + 1} of {len(self._road)}: {stop['name']} {stop['state']}{fragile}"

    def _do(self, action: str) -> str:
        if self.phase == "plan":
            raise ToolError("not_planned", "make the plan first")
        if len(self._cleared) == len(self._road):
            raise ToolError("nothing_to_do", "all stops are done")
        if self._jammed:
            raise ToolError("jammed", self._here())
        stop = self._road[len(self._cleared)]
        if action == WAIT:
            return f"nothing happens; {self._here()}"
        if action == VERBS[stop["state"]]:
            self._cleared.append(stop["name"])
            return f"{stop['name']} done; {self._here()}"
        if stop["fragile"]:
            self._broken = True
            return f"{stop['name']} broke for good; {self._here()}"
        self._jammed = True
        return self._here()

    def _repair(self) -> str:
        if not self._jammed:
            raise ToolError("nothing_to_repair", "nothing is jammed")
        self._jammed = False
        return f"mended; {self._here()}"

    def _finish(self) -> str:
        if self.phase == "plan":
            raise ToolError("not_planned", "make the plan first")
        left = len(self._road) - len(self._cleared)
        if left:
            raise ToolError("stops_left", f"{left} stops are left")
        self._finished = True
        return "finished"
