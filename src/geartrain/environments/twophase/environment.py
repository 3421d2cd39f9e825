"""The `twophase` environment: plan from a board, then clear stops; small enough to know every state's value."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from geartrain.config import EnvironmentSection
from geartrain.environments.environment import Task, ToolSpec, nobody
from geartrain.environments.tools import render_call
from geartrain.environments.twophase.drafts import VERBS
from geartrain.environments.twophase.episode import SPECS, TwoPhaseEpisode
from geartrain.environments.twophase.exact import Mdp
from geartrain.environments.twophase.expert import TwoPhaseExpert
from geartrain.environments.twophase.flaws import FLAWLESS, Habits
from geartrain.environments.twophase.phases import score_phases
from geartrain.environments.twophase.splits import build_splits
from geartrain.errors import UserError
from geartrain.trajectory import Trajectory

BRIEF = "You plan, then clear stops. Each message is one JSON tool call."
FULL = f"""You plan, then clear stops. Each message is one JSON call, like {render_call("do", {"action": "open"})}
Tools:
look() shows the board with all options, later the stop that you are at
plan(choice) decides for an option; it cannot be taken back
do(action) at a stop: {", ".join(f"{state}: {verb}" for state, verb in VERBS.items())}; wait does nothing
repair() mends what is jammed; what is fragile breaks for good
finish() once every stop is done"""
SYSTEM = {"full": FULL, "brief": BRIEF}


class TwoPhaseEnvironment:
    """Towns that are known by name; see `Environment`."""

    name = "twophase"

    def __init__(self, worlds: Path, settings: EnvironmentSection):
        """Of `settings` only `prompt` counts; `worlds` is not read, since a task carries its world."""
        self._system = SYSTEM[settings.prompt]

    def tools(self) -> Sequence[ToolSpec]:
        """Return the five tools."""
        return SPECS

    def build_tasks(
        self, *, seed: int, sizes: Mapping[str, int], on_task: Callable[[int], object] = nobody
    ) -> dict[str, list[Task]]:
        """Generate every split. Raises UserError on unknown splits, or sizes that cannot be met."""
        return build_splits(seed=seed, sizes=sizes, on_task=on_task)

    def reset(self, task: Task, *, seed: int) -> TwoPhaseEpisode:
        """Start an episode; the seed changes nothing. Raises UserError on a task of another environment."""
        if task.environment != self.name:
            raise UserError(f"task {task.task_id} is of environment '{task.environment}', not '{self.name}'")
        return TwoPhaseEpisode(task, system=self._system)

    def answer(self, task: Task) -> str:
        """Return a right plan, and the verb of every stop."""
        mdp = Mdp.of(task)
        plan: list[int] = []
        for decision in task.spec["decisions"]:
            taken = plan if task.spec["truth"]["ordered"] else []  # stations are chosen once, carts are not routes
            right = (i for i in range(len(decision["options"])) if i not in taken and mdp.fits([*plan, i]))
            plan.append(next(right))
        names = [d["options"][i]["name"] for d, i in zip(task.spec["decisions"], plan, strict=True)]
        stops = [*task.spec["stops"], *([task.spec["detour"]] if task.spec["detour"] else [])]
        verbs = [f"{stop['name']}: {VERBS[stop['state']]}" for stop in stops if stop["state"] in VERBS]
        return f"The answer: plan {', '.join(names)}; " + ", ".join(verbs)

    def describe_phases(
        self, trajectories: Sequence[Trajectory], tasks: Mapping[str, Task], *, horizon: Callable[[Task], int]
    ) -> dict[str, float]:
        """Return success and entropy of planning and of doing, see `score_phases`."""
        return score_phases(trajectories, tasks, horizon)

    def expert(self, task: Task, *, seed: int, flawed: bool, habits: Habits | None = None) -> TwoPhaseExpert:
        """Return the scripted expert; `habits` replaces the defaults of the flawed one."""
        return TwoPhaseExpert(task, seed=seed, habits=(habits or Habits()) if flawed else FLAWLESS)

    def close(self) -> None:
        """Nothing is open."""
