"""Every recipe's credit of single turns against the exact advantage of the policy that played; no model is trained.

The policy is an expert of the `twophase` world who errs: a table, whose every
state has an exact value (`geartrain.study.credit_truth`). Means over the seeds,
each with tasks of its own. "nats" is how far the expert's action stands above
each other one.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev

import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.config import EnvironmentSection
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.methods import settings_of
from geartrain.study.credit_truth import (
    PAST,
    Played,
    credit_of,
    play_groups,
    shuffled,
    stand_ins,
    why_unscored,
    with_credit,
)
from geartrain.study.exact import CreditMoment, score_steps
from geartrain.study.known_policy import speech
from geartrain.wording import table as markdown_table

EDGES = (1.0, 2.0, 3.0)
SIBLINGS, TASKS, PRACTICE = 8, 12, (4, 6)
"""Episodes per task; tasks that are scored; batches and tasks of each that learned parts see."""
ROWS = {
    **{name: (name, {}, PAST) for name in RECIPES},
    "gear_a, teacher ahead": ("gear_a", {}, -PAST),
    "gear_a, alignment": ("gear_a", {"objective": "alignment"}, PAST),
    "gear_b, entropy": ("gear_b", {"granularity": "entropy"}, PAST),
    "gear_b, learned": ("gear_b", {"granularity": "learned"}, PAST),
}
"""Row -> recipe, settings, and how far its past self lies behind."""
HEAD = (
    "recipe",
    *(f"rank, {edge:g} nats" for edge in EDGES),
    "planning",
    "doing",
    "sign",
    "key steps",
    "planning coarser",
    "given in place of a model",
)
Found = dict[tuple[str, float], list[CreditMoment]]


def measure(seed: int, edges: Sequence[float], found: Found) -> list[str]:
    """Score every row on one seed's tasks; return what the episodes were like."""
    environment = TwoPhaseEnvironment(Path(), EnvironmentSection(name="twophase", prompt="brief"))
    batches, per_batch = PRACTICE
    sets = environment.build_tasks(seed=seed, sizes={"train": batches * per_batch, "val": TASKS})
    chat, said = speech(environment, sets["train"]), []

    def play(tasks: Sequence, edge: float, moment: int) -> Played:
        return play_groups(environment, tasks, chat, edge=edge, siblings=SIBLINGS, seed=2 * seed + moment)

    for edge in edges:
        starts = range(0, batches * per_batch, per_batch)
        practice = [play(sets["train"][start : start + per_batch], edge, 0) for start in starts]
        played = play(sets["val"], edge, 1)
        exact = played.exact()
        plain = credit_of("grpo", played, practice)
        controls = {"the exact advantage": [[s.advantage for s in steps] for steps in exact]}
        controls["shuffled"] = shuffled(exact, seed=seed)
        for name, credit in controls.items():
            found.setdefault((name, edge), []).append(score_steps(with_credit(plain, credit), exact))
        for row, (name, given, behind) in ROWS.items():
            if why_unscored(RECIPES[name]) is None:
                records = credit_of(name, played, practice, given=given, behind=behind, seed=seed)
                found.setdefault((row, edge), []).append(score_steps(records, exact))
        won = mean(t.success for t in played.trajectories)
        turns = sum(len(steps) for steps in exact)
        said.append(f"seed {seed}, {edge:g} nats: {len(exact)} episodes, {turns} turns, {won:.0%} succeed")
    return said


def table(found: Found) -> str:
    """Return the table; phases, sign and key steps are of the middle edge."""
    middle, lines = EDGES[1], []
    names = dict.fromkeys(name for name, _ in found)
    for row in dict.fromkeys([*list(names)[:2], *ROWS]):
        recipe, given, behind = ROWS.get(row, (None, {}, PAST))
        label = f"`{row}`" if recipe else row
        if recipe is not None and (reason := why_unscored(RECIPES[recipe])):
            lines.append([label, *[""] * (len(HEAD) - 2), f"not scored: {reason}"])
            continue
        ranks = [_mean(found[row, edge], "all", "rank_correlation") for edge in EDGES]
        phases = [_mean(found[row, middle], phase, "rank_correlation") for phase in ("plan", "do")]
        shares = [_mean(found[row, middle], "all", name) for name in ("sign_agreement", "key_recall")]
        coarser = [moment.coarser for moment in found[row, middle] if moment.coarser is not None]
        note = "" if recipe is None else stand_ins(RECIPES[recipe], settings_of(recipe, given), behind=behind)
        cells = [f"{value:.2f}".replace("-0.00", "0.00") for value in (*ranks, *phases, *shares)]
        lines.append([label, *cells, f"{mean(coarser):.2f}" if coarser else "", note])
    return markdown_table(HEAD, lines)


def spread(found: Mapping[tuple[str, float], Sequence[CreditMoment]]) -> float:
    """Return the largest standard deviation over seeds of a row's rank over `grpo`'s, of the same seed."""
    return max(
        pstdev(_rank(own) - _rank(plain) for own, plain in zip(moments, found["grpo", edge], strict=True))
        for (row, edge), moments in found.items()
        if row in ROWS
    )


def _rank(moment: CreditMoment) -> float:
    return moment.scores["all"].rank_correlation or 0.0


def _mean(moments: Sequence[CreditMoment], phase: str, name: str) -> float:
    return mean(getattr(moment.scores[phase], name) for moment in moments)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args().seeds
    torch.set_num_threads(1)
    found: Found = {}
    for seed in range(seeds):
        print("\n".join(measure(seed, EDGES, found)), flush=True)
    print(f"largest deviation over seeds of a gain in rank over grpo: {spread(found):.2f}\n")
    print(table(found))


if __name__ == "__main__":
    main()
