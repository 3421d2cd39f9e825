"""Stage `collect`: siblings of the warm-started policy, several episodes of each chosen task."""

from contextlib import closing

from geartrain.datasets.task_sets import read_tasks
from geartrain.models.backbone import load_policy
from geartrain.placement import own_device
from geartrain.progress import bar
from geartrain.rollouts.collect import EpisodeRequest
from geartrain.rollouts.players import Players
from geartrain.seeds import pick
from geartrain.stages.stage import Job, Metrics, stage
from geartrain.trajectory import Trajectory, read_trajectories, write_trajectories

CHUNK_TASKS = 128
"""Tasks between two checkpoints; a killed run repeats at most these."""


@stage(inputs=("tasks", "warm_start"), sections=("model", "environment", "collect"))
def run(job: Job) -> Metrics:
    """Write `trajectories.parquet`; the group of a trajectory is its task's id."""
    config, section = job.config, job.config.collect
    tasks = pick(read_tasks(job.inputs["tasks"], "train"), section.tasks, config.seed, "collect")
    parts = []
    model, device = job.inputs["warm_start"], own_device()
    players = Players(model, job.inputs["tasks"] / "worlds", config, job.work, device)
    with closing(players), bar("collect", total=len(tasks) * section.siblings) as advance:
        policy = load_policy(model, dtype=config.model.dtype, context=config.model.context, device=device)
        for start in range(0, len(tasks), CHUNK_TASKS):
            part = job.work / f"part-{start:05d}.parquet"
            parts.append(part)
            requests = [
                EpisodeRequest(task, sibling, task.task_id)
                for task in tasks[start : start + CHUNK_TASKS]
                for sibling in range(section.siblings)
            ]
            if part.exists():
                advance(len(requests))
                continue
            options = {"sampling": section.sampling, "seed": config.seed, "policy_version": 0}
            played = players.play(policy, requests, on_progress=advance, **options)
            half = part.with_suffix(".half")
            write_trajectories(half, played)
            half.replace(part)
    trajectories = [trajectory for part in parts for trajectory in read_trajectories(part)]
    write_trajectories(job.outputs["collect"] / "trajectories.parquet", trajectories)
    return summarise(trajectories)


def summarise(trajectories: list[Trajectory]) -> Metrics:
    """Return what a person asks of a set of rollouts; shares and means over trajectories."""
    groups: dict[str, list[bool]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory.success)
    turns = sum(len(t.turns) for t in trajectories)
    return {
        "trajectories": len(trajectories),
        "success": round(sum(t.success for t in trajectories) / len(trajectories), 4),
        "progress": round(sum(t.progress for t in trajectories) / len(trajectories), 4),
        "mixed_groups": sum(0 < sum(group) < len(group) for group in groups.values()),
        "groups": len(groups),
        "mean_turns": round(turns / len(trajectories), 3),
        "mean_tokens": round(sum(len(t.token_ids()) for t in trajectories) / len(trajectories), 1),
        "invalid_calls": round(sum(t.invalid_calls for t in trajectories) / max(1, turns), 4),
        "truncated": round(sum(t.truncated for t in trajectories) / len(trajectories), 4),
    }
