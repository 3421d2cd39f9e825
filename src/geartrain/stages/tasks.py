"""Stage `tasks`: build the worlds and the task sets, and refuse them if they leak."""

from collections import Counter

from geartrain.config import SPLITS
from geartrain.datasets.task_sets import write_tasks
from geartrain.environments import build_worlds, load_environment
from geartrain.environments.leakage import find_leaks
from geartrain.errors import UserError
from geartrain.progress import bar
from geartrain.stages.stage import Job, Metrics, stage


@stage(inputs=(), sections=("environment", "tasks"), files=("environment.source",))
def run(job: Job) -> Metrics:
    """Write `<split>.jsonl` per split and `worlds/`.

    Raises:
        UserError: the environment's source is missing, or a split leaks into another.
    """
    output = job.outputs["tasks"]
    build_worlds(job.config.environment, output / "worlds", seed=job.config.seed)
    environment = load_environment(job.config.environment, output / "worlds")
    sizes = job.config.tasks.model_dump()
    with bar("tasks", total=sum(sizes[split] for split in SPLITS if split != "paraphrase")) as advance:
        splits = environment.build_tasks(seed=job.config.seed, sizes=sizes, on_task=advance)
    leaks = find_leaks(splits)
    if leaks:
        raise UserError(f"{len(leaks)} leak(s) between splits, first: {leaks[0]}. This is a fault of the environment.")
    for split in SPLITS:
        write_tasks(output / f"{split}.jsonl", splits[split])
    return {
        "tasks": {split: len(splits[split]) for split in SPLITS},
        "families": {split: dict(sorted(Counter(t.family for t in splits[split]).items())) for split in SPLITS},
        "mean_necessary_steps": round(_mean([t.necessary_steps for t in splits["test"]]), 3),
    }


def _mean(values: list[int]) -> float:
    return sum(values) / max(1, len(values))
