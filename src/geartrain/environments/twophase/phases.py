"""How planning and doing went, each for itself, in episodes that were played (GEAR-108, ours)."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from geartrain.environments.environment import Task
from geartrain.environments.twophase.exact import Mdp, State
from geartrain.environments.twophase.replay import trace
from geartrain.trajectory import Trajectory


def score_phases(
    trajectories: Sequence[Trajectory], tasks: Mapping[str, Task], horizon: Callable[[Task], int]
) -> dict[str, float]:
    """Return success and entropy by phase: shares of episodes, nats per token; what never came is left out.

    `plan_success`: every choice was made and fits. `do_success`: of the episodes with a whole plan, right or wrong,
    those that cleared every stop and broke nothing.

    Args:
        trajectories: episodes of these tasks.
        tasks: by task id.
        horizon: of a task: the calls after which its episodes were cut, if its own budget is not used up before.

    Raises:
        ValueError: the turns of an episode are not of its task.
    """
    planned, right, done = 0, 0, 0
    entropy: dict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        task = tasks[trajectory.task_id]
        mdp = Mdp.of(task, horizon=horizon(task))
        state, tokens = State(), trajectory.entropies()
        for (before, action), (start, stop) in zip(
            trace(mdp, trajectory.turns), trajectory.action_spans(), strict=True
        ):
            entropy[mdp.phase(before)] += tokens[start:stop]
            state = mdp.next(before, action)
        if len(state.choices) == len(task.spec["truth"]["ok"]):
            planned += 1
            right += mdp.fits(state.choices)
            done += state.cleared == len(mdp.stops(state)) and not state.broken
    shares = {"plan_success": right / len(trajectories)} if trajectories else {}
    shares |= {"do_success": done / planned} if planned else {}
    entropies = {f"entropy_{phase}": sum(nats) / len(nats) for phase, nats in sorted(entropy.items()) if nats}
    return shares | entropies
