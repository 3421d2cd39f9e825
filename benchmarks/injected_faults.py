"""Twelve faults put into real trainings: does `geartrain diagnose` name the right one first?

Every run is the stage `policy` itself on `twophase`, from one warm start (one more seed for the second set). A fault
that is a setting is set; any other is put in at a seam of the code, from here. What a run leaves (its live record, and
the metrics of the stages before it) is all that the diagnosis reads: nothing in it says what was put in.

The limits of the rules were set while looking at the first set. The second (other strengths, another seed, other
recipes) was run afterwards, and nothing was changed for it.

    python benchmarks/injected_faults.py run first       # and `second`, or names of runs; keeps what is there
    python benchmarks/injected_faults.py table           # what was named, as docs/diagnosis.md has it
"""

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from geartrain import live
from geartrain.algorithms import recipe as recipes
from geartrain.artifacts import MANIFEST
from geartrain.config import Config, parse_config
from geartrain.diagnosis.causes import CAUSES, Cause
from geartrain.diagnosis.ranking import SIGNS, Diagnosis, diagnose
from geartrain.errors import GeartrainError
from geartrain.reporting.health import READ, of_lines
from geartrain.rewards.mix import RewardMix, Scored
from geartrain.training import policy as loop

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests/unit/diagnosis/kept"
SHARED = ("tasks", "warm_start", "collect", "preferences", "reward_model", "critic")
SIZES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "twophase": (
        "demo",
        {
            "threads": 1,
            "environment.name": "twophase",
            "model.hidden": 96,
            "model.layers": 3,
            "model.context": 1024,
            "tasks.train": 800,
            "tasks.val": 24,
            "tasks.test": 3,
            "tasks.ood": 1,
            "tasks.paraphrase": 2,
            "warm_start.demonstrations": 3000,
            "collect.tasks": 48,
            "critic.hidden": 32,
            "policy.iterations": 10,
            "policy.tasks_per_iteration": 6,
            "policy.siblings": 6,
            "policy.validate_every": 3,
            "policy.recipe": "grpo",
            "policy.reward_model_weight": 0.0,
        },
    ),
    "analyst": ("smoke", {"policy.iterations": 10, "policy.tasks_per_iteration": 4, "policy.siblings": 6}),
}
"""What the runs of an environment share: a profile, and where they differ from it."""
Seam = Callable[[], Any]
"""Returns a context in which the fault is in."""


@dataclass(frozen=True)
class Run:
    """One training with something wrong with it, or nothing."""

    expected: str
    """Name of the cause in `diagnosis.causes`; "" for a healthy run."""
    settings: Mapping[str, Any]
    seam: Seam | None = None
    base: str = "twophase"
    """A row of `SIZES`."""


def scaled(factor: float) -> Seam:
    """Multiply every reward."""
    return partial(_rewards, lambda scored: [None if r is None else factor * r for r in scored.rewards])


def constant(value: float) -> Seam:
    """Give every trajectory the same reward."""
    return partial(_rewards, lambda scored: [value] * len(scored.rewards))


def leaking(word: str, share: float) -> Seam:
    """Let a judge be pleased by a word: each message that holds it adds `share`, whatever came of it."""

    def judged(scored: Scored) -> list[float | None]:
        said = [sum(word in turn.action_text for turn in t.turns) for t in scored.trajectories]
        return [None if r is None else r + share * n for r, n in zip(scored.rewards, said, strict=True)]

    return partial(_rewards, judged)


def reversed_sign(name: str) -> Seam:
    """Turn the sign of a recipe's advantage."""
    plain = recipes.RECIPES[name]

    def turned(rewards: Sequence[float | None], groups: Sequence[Any]) -> Any:
        found = plain.advantage(rewards, groups)
        return replace(found, advantage_N=-found.advantage_N)

    return partial(patch.dict, recipes.RECIPES, {name: replace(plain, advantage=turned)})


def masked(every: int) -> Seam:
    """Leave all but one of `every` sampled tokens out of the loss."""

    def sparse(trajectory: Any, plain: Any = loop.sequence_of) -> Any:
        sequence = plain(trajectory)
        kept = sequence.loss_T & (sequence.loss_T.cumsum(0) % every == 0)
        return replace(sequence, loss_T=kept)

    return partial(patch.object, loop, "sequence_of", sparse)


def unmasked() -> Seam:
    """Train on every token after the opening: what the tools answered too."""

    def whole(trajectory: Any, plain: Any = loop.sequence_of) -> Any:
        sequence = plain(trajectory)
        return replace(sequence, loss_T=sequence.loss_T.cumsum(0) > 0)

    return partial(patch.object, loop, "sequence_of", whole)


def starved(family: str, keep: int) -> Seam:
    """Draw all but the first `keep` training tasks of a family never: another task takes their place."""
    from geartrain.stages.policy import TaskWorld

    plain = TaskWorld._draw

    def draw(world: Any, iteration: int, seed: int) -> list[int]:
        own = [index for index, task in enumerate(world.train) if task.family == family]
        assert own, family
        never, chosen = set(own[keep:]), []
        for index in plain(world, iteration, seed):
            while index in never or index in chosen:
                index = (index + 1) % len(world.train)
            chosen.append(index)
        return chosen

    return partial(patch.object, TaskWorld, "_draw", draw)


@contextmanager
def _rewards(change: Callable[[Scored], list[float | None]]) -> Iterator[None]:
    plain = RewardMix.score

    def score(mix: RewardMix, *given: Any) -> Scored:
        scored = plain(mix, *given)
        return replace(scored, rewards=change(scored))

    with patch.object(RewardMix, "score", score):
        yield


def configuration(base: str, settings: Mapping[str, Any]) -> Config:
    """Return a row of `SIZES` with more settings, by dotted key."""
    from geartrain.config_file import read_record

    profile, sizes = SIZES[base]
    record = read_record(ROOT / f"profiles/{profile}.yaml")
    source = {"environment.source": str(ROOT / record["environment"]["source"])}
    for key, value in {**source, **sizes, **settings}.items():
        place = record
        *sections, last = key.split(".")
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return parse_config(record, source="benchmarks/injected_faults.py")


def prepare(folder: Path, base: str) -> None:
    """Make what the runs of an environment share, unless it is there."""
    from geartrain.stages.stage import FOLDERS, load_stage

    config = configuration(base, {})
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    for name in SHARED:
        if (FOLDERS[name] / MANIFEST).is_file():
            continue  # of another state of the code too: what is compared are the runs after it
        spec = load_stage(name)
        started = time.process_time()
        spec.run(config, {read: FOLDERS[read] for read in spec.inputs}, {name: FOLDERS[name]})
        print(f"{folder.name} {name}: {time.process_time() - started:.0f} CPU s", flush=True)


def train(name: str, run: Run, work: Path, target: Path) -> None:
    """Run the stage with its fault in, and keep what it has recorded."""
    from geartrain.stages.stage import FOLDERS, load_stage

    base, own = work / run.base, work / name
    own.mkdir(parents=True)
    os.chdir(own)
    spec = load_stage("policy")
    config = configuration(run.base, run.settings)
    started = time.process_time()
    with ExitStack() as stack:
        stack.enter_context(patch("geartrain.stages.policy.CREDIT_TASKS", 1))  # what it is for is not read here
        if run.seam is not None:
            stack.enter_context(run.seam())
        try:
            spec.run(config, {read: base / FOLDERS[read] for read in spec.inputs}, {"policy": own / "models/policy"})
        except GeartrainError as error:
            print(f"{name}: {error}", flush=True)
    (record,) = (own / ".geartrain/live").glob("policy-*.jsonl")
    keep(target / f"{name}.json.gz", live.read(record), base)
    print(f"{name}: {time.process_time() - started:.0f} CPU s", flush=True)


def keep(path: Path, lines: Sequence[live.Line], base: Path) -> None:
    """Write what a diagnosis reads: the lines without times, and the metrics of the stages before."""
    from geartrain.artifacts import read_manifest
    from geartrain.stages.stage import FOLDERS

    dropped = ("time", "pid", "seconds", "tokens", "digest", "key")
    told = [
        {name: value for name, value in line.items() if name not in dropped}
        for line in lines
        if line["kind"] in ("begin", "iteration", "end")
    ]
    metrics = {stage: read_manifest(base / FOLDERS[stage]).metrics for stage in READ[:2]}
    text = json.dumps(_short({"lines": told, "metrics": metrics}), separators=(",", ":"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _short(value: Any) -> Any:
    """Round every number to five digits."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {name: _short(inner) for name, inner in value.items()}
    return [_short(inner) for inner in value] if isinstance(value, list) else value


def text_of(path: Path) -> str:
    """Return all that was kept of a run."""
    return gzip.decompress(path.read_bytes()).decode()


def keys_of(path: Path) -> set[str]:
    """Return the names of the numbers that were kept of a run's iterations."""
    return {name for line in json.loads(text_of(path))["lines"] for name in line.get("record", {})}


def read(path: Path) -> Diagnosis:
    """Diagnose a run that was kept."""
    kept = json.loads(text_of(path))
    lines = [{"time": 0.0, **line} for line in kept["lines"]]
    return diagnose(of_lines(lines, metrics=kept["metrics"]))


def table(folder: Path, runs: Mapping[str, Run]) -> str:
    """Return what was expected and what was named, as Markdown."""
    rows = ["| run | put in | named first | how sure | then |", "|---|---|---|---|---|"]
    right = 0
    for name, run in runs.items():
        if not (folder / f"{name}.json.gz").is_file():
            continue
        found = read(folder / f"{name}.json.gz").causes
        first = found[0].name if found else ""
        right += first == run.expected
        mark = "" if first == run.expected else " (wrong)"
        rest = ", ".join(cause.name for cause in found[1:3])
        sure = found[0].confidence if found else ""
        rows.append(f"| {name} | {run.expected or 'healthy'} | {first or 'healthy'}{mark} | {sure} | {rest} |")
    return "\n".join([*rows, f"\n{right} of {len(rows) - 2} named right."])


def causes_table() -> str:
    """Return the causes, how they are known and what mends them, as Markdown."""
    rows = ["| cause | what it means | known by | mended by | source |", "|---|---|---|---|---|"]
    for name, cause in CAUSES.items():
        mended = (cause.mend.__doc__ or "").split("\n")[0]
        rows.append(f"| `{name}` | {cause.means} | {_known_by(cause)} | {mended} | {cause.source} |")
    return "\n".join(rows)


def _known_by(cause: Cause) -> str:
    """Return the proofs in words; what all of them need is said once."""
    proofs = [[_sign(name) for name in proof] for proof in cause.proofs]
    shared = [sign for sign in proofs[0] if all(sign in proof for proof in proofs)] if len(proofs) > 1 else []
    rest = [" and ".join(sign for sign in proof if sign not in shared) for proof in proofs]
    told = "; or ".join(part for part in rest if part)
    return f"{', '.join(shared)}, and: {told}" if shared else told


def _sign(name: str) -> str:
    means = SIGNS[name].means.partition(":")[0].rstrip(".")
    return means[0].lower() + means[1:]


GEAR_B = {"policy.recipe": "gear_b"}
GEAR_A = {"policy.recipe": "gear_a"}
SGCD = {"policy.recipe": "sgcd_s"}
STEADY = {
    "policy.recipe": "grpo",
    "policy.train_embeddings": False,
    "policy.minibatches": 2,
    "policy.learning_rate": 1e-3,
    "policy.schedule": "cosine",
    "policy.iterations": 12,
}
"""As the demo trains; what `smoke` says is for its two iterations."""
RATE = 4e-4
FREE = {"policy.kl_coefficient": 0.0, "policy.schedule": "constant", "policy.iterations": 14}
"""Nothing holds the policy, and it goes on as fast as it began."""
FIRST: Mapping[str, Run] = {
    "healthy_grpo": Run("", {}),
    "healthy_gear_b": Run("", GEAR_B),
    "healthy_analyst": Run("", STEADY, base="analyst"),
    "healthy_sgcd": Run("", {**SGCD, "policy.settings.sgcd_s.critic_steps": 4, "seed": 1}),
    "rate_x30": Run("learning_rate_high", {"policy.learning_rate": 30 * RATE}),
    "no_kl": Run("no_kl", {**FREE, "policy.learning_rate": 1.5 * RATE}),
    "reward_x1000": Run("reward_scale", {"policy.recipe": "dr_grpo"}, scaled(1000.0)),
    "masked": Run("masked_actions", {}, masked(3)),
    "reversed": Run("inverted_advantage", {}, reversed_sign("grpo")),
    "critic_frozen": Run("frozen_critic", {**SGCD, "policy.settings.sgcd_s": {"critic_steps": 4, "critic_decay": 1.0}}),
    "teacher_is_student": Run("same_teacher", {**GEAR_A, "policy.settings.gear_a.teacher_decay": 0.0}),
    "equal_rewards": Run("equal_rewards", {}, constant(0.3)),
    "leaking_judge": Run("reward_hacking", {}, leaking("name", 0.3)),
    "starved_family": Run("starved_family", {}, starved("route", 2)),
    "stale_teacher": Run("stale_teacher", {**GEAR_B, "policy.settings.gear_b.snapshot_share": 1.0}),
    "clipped": Run("clipped_away", {"policy.gradient_clip": 1e-7}),
}
"""What the limits were set by."""
SECOND: Mapping[str, Run] = {
    "healthy_grpo_again": Run("", {"seed": 1}),
    "healthy_gear_a": Run("", {**GEAR_A, "seed": 2}),
    "rate_x10": Run("learning_rate_high", {"policy.learning_rate": 10 * RATE, "seed": 1}),
    "rate_x100": Run("learning_rate_high", {"policy.learning_rate": 100 * RATE, **GEAR_B, "seed": 1}),
    "no_kl_longer": Run("no_kl", {**FREE, "policy.recipe": "rloo", "policy.iterations": 16, "seed": 1}),
    "reward_x100": Run("reward_scale", {"policy.recipe": "rloo", "seed": 1}, scaled(100.0)),
    "observations_trained": Run("masked_actions", {"seed": 1}, unmasked()),
    "reversed_rloo": Run("inverted_advantage", {"policy.recipe": "rloo", "seed": 1}, reversed_sign("rloo")),
    "critic_frozen_gear": Run(
        "frozen_critic",
        {
            "policy.recipe": "gear_a_sgcd",
            "policy.settings": {"gear_a_sgcd": {"critic_steps": 2, "critic_decay": 1.0}},
            "seed": 1,
        },
    ),
    "teacher_is_student_too": Run(
        "same_teacher", {"policy.recipe": "gear_a_sgcd", "policy.settings.gear_a_sgcd.teacher_decay": 0.0, "seed": 1}
    ),
    "equal_rewards_high": Run("equal_rewards", {"policy.recipe": "rloo", "seed": 1}, constant(1.0)),
    "leaking_judge_less": Run("reward_hacking", {"policy.recipe": "rloo", "seed": 1}, leaking("plan", 0.5)),
    "starved_other": Run("starved_family", {**GEAR_B, "seed": 1}, starved("convoy", 1)),
    "stale_average": Run("stale_teacher", {**GEAR_A, "policy.settings.gear_a.teacher_decay": 1.0, "seed": 1}),
    "clipped_ratio": Run("clipped_away", {"policy.clip_low": 1e-4, "policy.clip_high": 1e-4, "seed": 1}),
}
"""What they were not."""


def main() -> None:
    """Run what is asked for, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("names", nargs="*", help="`first`, `second`, or names of runs; default: both sets")
    parser.add_argument("--work", type=Path, default=Path("runs/injected-faults"), help="folder of the runs")
    parser.add_argument("--target", type=Path, default=FIXTURES, help="folder of what is kept")
    options = parser.parse_args()
    sets = {"first": FIRST, "second": SECOND}
    chosen = {k: v for name in options.names or sets for k, v in sets.get(name, {}).items()}
    both = {**FIRST, **SECOND}
    chosen |= {name: both[name] for name in options.names if name in both}
    target, work = options.target.resolve(), options.work.resolve()
    if options.command == "table":
        for name in [name for name in sets if name in options.names or not options.names]:
            sys.stdout.write(table(target, sets[name]) + "\n\n")
        sys.stdout.write(causes_table() + "\n")
        return
    os.environ["OMP_NUM_THREADS"] = "1"
    for base in sorted({run.base for run in chosen.values()}):
        prepare(work / base, base)
    for name, run in chosen.items():
        if not (target / f"{name}.json.gz").is_file():
            train(name, run, work, target)


if __name__ == "__main__":
    main()
