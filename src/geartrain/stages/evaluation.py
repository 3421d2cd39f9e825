"""Stage `evaluation`: the candidate against the warm start, same tasks, same seeds, both ways of decoding.

The task is the unit of every interval; `reports/evaluation/metrics.json` holds
the main numbers, `tables.json` all of them, `episodes/` what was played.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geartrain.artifacts import read_manifest, write_json
from geartrain.config import Config
from geartrain.datasets.task_sets import read_tasks
from geartrain.environments import load_environment
from geartrain.errors import UserError
from geartrain.models.backbone import Policy, load_policy
from geartrain.placement import hands, own_device
from geartrain.progress import bar
from geartrain.rollouts.collect import Limits
from geartrain.rollouts.comparison import compare_families, compare_models, describe_model
from geartrain.rollouts.parallel import run_apart
from geartrain.rollouts.probes import run_probes
from geartrain.rollouts.suite import Episodes, Suite, play_suite, write_episodes
from geartrain.seeds import seed_of
from geartrain.stages.stage import Job, Metrics, stage

EVALUATED = ("test", "ood", "paraphrase")
"""Not `val`: it chose the checkpoint, so its numbers flatter; the policy's history has them."""
MODELS = {"before": "warm_start", "after": "policy"}
"""Role in the tables -> input of the stage."""


@stage(inputs=("tasks", "warm_start", "policy"), sections=("model", "environment", "evaluation"))
def run(job: Job) -> Metrics:
    """Write `metrics.json`, `tables.json` and `episodes/<role>_<split>_<decoding>.parquet`.

    Raises:
        UserError: a model cannot be loaded, or a split is missing.
    """
    output = job.outputs["evaluation"]
    suite = load_suite(job.inputs["tasks"], job.config, EVALUATED)
    chunks = job.work / "chunks"
    pieces = [(role, job.inputs[name], job.inputs["tasks"], job.config, chunks) for role, name in MODELS.items()]
    with bar("evaluation", total=len(MODELS) * suite.episodes) as advance:
        run_apart(_play_model, pieces, threads=hands(job.config.threads, own_device()), on_progress=advance)
    episodes = {role: play_suite(suite, _nothing_left, work=chunks, label=role) for role in MODELS}
    for role in MODELS:
        write_episodes(output / "episodes", role, episodes[role])
    tables = compare(suite, episodes["before"], episodes["after"])
    tables["models"] = {role: read_manifest(job.inputs[name]).digest for role, name in MODELS.items()}
    write_json(output / "tables.json", tables)
    metrics = main_numbers(tables)
    write_json(output / "metrics.json", metrics)
    return metrics


def evaluate_model(
    model: Path, tasks: Path, config: Config, *, splits: Sequence[str] = ("test",), work: Path
) -> dict[str, Any]:
    """Measure any Hugging Face folder on task sets; return `{split: {decoding: table}}` and the probes.

    Args:
        model: folder of the model.
        tasks: folder of the `tasks` artifact.
        config: `seed`, `model`, `environment` and `evaluation` are read.
        splits: splits to play.
        work: folder of finished chunks; use another one for another model.

    Raises:
        UserError: the model or a split cannot be read, or every split is empty.
    """
    suite = load_suite(tasks, config, splits)
    with bar("evaluation", total=suite.episodes) as advance:
        episodes = play_suite(suite, lambda: _load(model, config), work=work, label="model", on_episode=advance)
    described = _describe(suite, episodes)
    return {"splits": described, "probes": _probe(suite), "settings": _settings(suite)}


def load_suite(tasks: Path, config: Config, splits: Sequence[str]) -> Suite:
    """Read the task sets and their worlds. Raises UserError when nothing is left to play."""
    chosen = {split: read_tasks(tasks, split) for split in splits}
    filled = {split: found for split, found in chosen.items() if found}
    if not filled:
        raise UserError(f"{tasks}: no tasks in {', '.join(splits)}. Raise their number in the section `tasks`.")
    return Suite(
        environment=load_environment(config.environment, tasks / "worlds"),
        tasks=filled,
        section=config.evaluation,
        limits=Limits.of(config),
        # Not the training's seed: no episode of an evaluation repeats a training episode's noise.
        seed=seed_of(config.seed, "evaluation"),
    )


def compare(suite: Suite, before: Episodes, after: Episodes) -> dict[str, Any]:
    """Return every table of the comparison, JSON-ready."""
    options = _options(suite)
    described = {"before": _describe(suite, before), "after": _describe(suite, after)}
    splits: dict[str, Any] = {}
    for split, decoding in before:
        pair = before[split, decoding], after[split, decoding]
        splits.setdefault(split, {})[decoding] = {
            **{role: tables[split][decoding] for role, tables in described.items()},
            "gain": compare_models(*pair, suite.tasks[split], **options),
            "families": compare_families(*pair, suite.tasks[split], **options),
        }
    return {"splits": splits, "probes": _probe(suite), "settings": _settings(suite)}


def main_numbers(tables: dict[str, Any]) -> Metrics:
    """Return the flat numbers that are compared between runs."""
    metrics: Metrics = {}
    for split, decodings in tables["splits"].items():
        for decoding, table in decodings.items():
            name = f"{split}_{decoding}"
            for role in MODELS:
                metrics[f"{name}_success_{role}"] = table[role]["success"]["estimate"]
            for key, suffix in (("estimate", ""), ("low", "_low"), ("high", "_high"), ("p_value", "_p_value")):
                metrics[f"{name}_gain{suffix}"] = table["gain"][key]
            for key in ("steps", "invalid_calls", "zero_tool_successes", "key_steps"):
                # A share of nothing stays out: 0 would read as a measurement.
                if table["after"][key] is not None:
                    metrics[f"{name}_{key}"] = table["after"][key]
    metrics["probe_successes"] = sum(probe["successes"] for probe in tables["probes"].values())
    return metrics


def _play_model(
    role: str, model: Path, tasks: Path, config: Config, chunks: Path, on_episode: Callable[[int], Any]
) -> None:
    """Play everything with one model; may run in a process of its own."""
    suite = load_suite(tasks, config, EVALUATED)
    play_suite(suite, lambda: _load(model, config), work=chunks, label=role, on_episode=on_episode)


def _load(model: Path, config: Config) -> Policy:
    return load_policy(model, dtype=config.model.dtype, context=config.model.context, device=own_device())


def _nothing_left() -> Policy:
    raise AssertionError("every chunk has been played")


def _describe(suite: Suite, episodes: Episodes) -> dict[str, Any]:
    splits: dict[str, Any] = {}
    for (split, decoding), trajectories in episodes.items():
        table = describe_model(trajectories, suite.tasks[split], suite.subgoals, **_options(suite))
        splits.setdefault(split, {})[decoding] = table
    return splits


def _probe(suite: Suite) -> dict[str, Any]:
    tasks = [task for split, tasks in suite.tasks.items() if split in ("test", "ood") for task in tasks]
    tasks = tasks or [task for tasks in suite.tasks.values() for task in tasks]
    return run_probes(suite.environment, tasks, max_turns=suite.limits.max_turns, seed=suite.seed)


def _options(suite: Suite) -> dict[str, Any]:
    section = suite.section
    return {"confidence": section.confidence, "resamples": section.resamples, "seed": suite.seed}


def _settings(suite: Suite) -> dict[str, Any]:
    section = suite.section
    return {**_options(suite), "samples": section.samples, "temperature": section.sampling.temperature}
