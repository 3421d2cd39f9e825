"""Stage `preferences`: pairs of siblings that the verifier tells apart, a report on their quality, and features."""

from collections import Counter
from collections.abc import Sequence

from geartrain.artifacts import write_atomically, write_json
from geartrain.config import SPLITS
from geartrain.datasets.task_sets import read_tasks
from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.features.collected import NOTHING, remember, spines, write_features
from geartrain.features.earlier import recall
from geartrain.features.frames import SAMPLER
from geartrain.features.statistics import played
from geartrain.preferences.building import RECORDS, Options, build
from geartrain.preferences.forgeries import forge
from geartrain.preferences.from_files import file_pairs
from geartrain.preferences.pairs import Pair, write_pairs
from geartrain.preferences.sibling_report import quality_report, to_markdown
from geartrain.preferences.siblings import Built, build_pairs, read_siblings
from geartrain.preferences.sources import SourceFile
from geartrain.progress import Advance, bar
from geartrain.rewards.verified import verified_score
from geartrain.stages.stage import Job, Metrics, stage
from geartrain.trajectory import Trajectory

FILES = "files"
"""Folder of what the files are made into."""


@stage(
    inputs=("tasks", "collect"),
    sections=("preferences",),
    files=("data/feature_repo", "preferences.history", "preferences.files"),
)
def run(job: Job) -> Metrics:
    """Write `pairs.parquet`, `quarantine.json`, `quality.json`, `quality.md`, the tables `features/` and the `frames/`;
    and `files/`, what `preferences.files` are made into.

    Raises:
        UserError: too many records are unusable, the siblings give no pair, or the feature repository is not right.
    """
    told, pairs = _files(job) if job.config.preferences.files else ({}, [])
    with bar("preferences", total=4) as advance:  # paired, forged, written, joined with features
        return {**_build(job, advance, pairs), **told}


def _files(job: Job) -> tuple[Metrics, list[Pair]]:
    """Build what the files give; return metrics and pairs. Tasks that are measured on must not leak."""
    section = job.config.preferences
    held_out = [
        task.prompt
        for split in SPLITS
        if split != "train" and (job.inputs["tasks"] / f"{split}.jsonl").is_file()
        for task in read_tasks(job.inputs["tasks"], split)
    ]
    options = Options(
        validation_share=section.validation_share, max_rejected_share=section.max_rejected_share, held_out=held_out
    )
    sources = [SourceFile(file.path, file.form, file.licence) for file in section.files]
    folder = job.outputs["preferences"] / FILES
    folder.mkdir(exist_ok=True)
    report = build(sources, options, output=folder, work=job.work / FILES)
    pairs = file_pairs(folder / RECORDS, per_record=section.pairs_per_task, most=section.file_pairs)
    told = {name: report[name] for name in ("records", "kept", "left_out", "splits", "warnings")}
    by_split = Counter(pair.split for pair in pairs)
    return {"files": {**told, "pairs_by_split": dict(sorted(by_split.items()))}}, pairs


def _build(job: Job, advance: Advance, pairs_of_files: Sequence[Pair]) -> Metrics:
    section = job.config.preferences
    source = job.inputs["collect"] / "trajectories.parquet"
    tasks = {task.task_id: task for task in read_tasks(job.inputs["tasks"], "train")}
    trajectories, malformed = read_siblings(source)
    built = build_pairs(
        trajectories,
        tasks,
        score=_score,
        pairs_per_task=section.pairs_per_task,
        min_margin=section.min_margin,
        validation_share=section.validation_share,
    )
    built.quarantined += malformed
    built.records += len(malformed)
    _check_share(built, section.max_rejected_share, str(source))
    _check_pairs(built, trajectories)
    advance(1)
    built.pairs += forge(built.pairs, per_task=section.forgeries_per_task)
    advance(1)
    output = job.outputs["preferences"]
    report = quality_report(built)
    built.pairs += pairs_of_files
    write_pairs(output / "pairs.parquet", built.pairs)
    write_json(output / "quarantine.json", built.quarantined)
    write_json(output / "quality.json", report)
    write_atomically(output / "quality.md", to_markdown(report))
    advance(1)
    features = _features(job, list(tasks.values()), trajectories, built)
    advance(1)
    told = ("records", "quarantined", "dropped_pairs", "pairs_by_split", "forged_by_split", "tasks", "length")
    return {**{key: report[key] for key in told}, "features": features}


def _features(job: Job, tasks: Sequence[Task], trajectories: Sequence[Trajectory], built: Built) -> Metrics:
    section = job.config.preferences
    rows, earlier = spines(tasks, trajectories, built.pairs), NOTHING
    if section.history is not None:
        siblings = rows[SAMPLER]["siblings"][0]
        work = job.work / "earlier"
        earlier = recall(section.history, tasks, siblings, known_from=section.known_from, work=work)
    seen = [played(trajectory, _score(trajectory)) for trajectory in built.usable]
    history = remember(seen, built.pairs, earlier.history)
    return write_features(
        job.outputs["preferences"],
        history,
        rows,
        known_from=section.known_from,
        work=job.work / "features",
        earlier=earlier,
    )


def _score(trajectory: Trajectory) -> float:
    return verified_score(trajectory.success, trajectory.progress)


def _check_share(built: Built, limit: float, source: str) -> None:
    reasons = Counter(entry["reason"] for entry in built.quarantined)
    if built.records and len(built.quarantined) > limit * built.records:
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        raise UserError(
            f"{source}: {len(built.quarantined)} of {built.records} records are unusable ({listed}), "
            f"more than preferences.max_rejected_share ({limit}). First: {built.quarantined[0]['source']}. "
            "Run the stage `collect` again, or raise the limit if they may be lost."
        )


def _check_pairs(built: Built, trajectories: Sequence[Trajectory]) -> None:
    if built.pairs:
        return
    successes = sum(trajectory.success is True for trajectory in trajectories)
    dropped = (
        ", ".join(f"{count} {reason}" for reason, count in built.dropped.most_common() if count) or "none compared"
    )
    raise UserError(
        f"no preference pair: of {len(trajectories)} episodes {successes} succeeded, and no two siblings differ enough "
        f"({dropped}). Raise collect.tasks or collect.siblings, lower preferences.min_margin, or change "
        "warm_start.demonstrations so that the policy solves some of the tasks and not all."
    )
