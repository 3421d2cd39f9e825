"""What a credit method costs beside plain GRPO: CPU seconds of one iteration's learning, rollouts not counted.

The demo's model, untrained; synthetic episodes of several turns, a quarter of
their tokens sampled. What is timed is all that an iteration does after its
episodes are scored: the pass of the reference, the teacher's, the weights, and
the optimiser steps. Every recipe pays the same KL penalty as `grpo`.

CPU seconds, so that other work on the machine disturbs little. Still a shared
machine is now faster and now slower: each recipe is run between two runs of
`grpo`, the ratio is to their mean, and the median over the rounds is told.
Compare lines of one run only.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.config import TinyModel
from geartrain.methods import settings_of
from geartrain.models.backbone import Policy, build_policy
from geartrain.models.heads import CriticHead
from geartrain.models.tokenizer import train_tokenizer
from geartrain.policy_section import PolicySection
from geartrain.progress import track
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.features import frozen_pass, sequence_of
from geartrain.training.lesson import Lesson
from geartrain.training.policy import PolicyTrainer
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn

SIBLINGS = 8
OPENING, ACTION, OBSERVATION, TURNS = 200, 25, 50, 6
"""Tokens of each kind, and turns: about 600 tokens, of which a quarter is sampled."""
HINT = 40
"""Tokens that a privileged teacher reads more."""
FREE, ONE_PASS = 1.15, 1.40
"""Bars of the ratio: no further forward pass; one pass of a teacher. Two passes have none: each is a quarter of what
`grpo` does (its reference's pass, and a pass forward and back), and the weights cost next to nothing."""
PASSES = {"gear_a": 0.25, "gear_a_sgcd": 0.25, "gear_b": 1, "gear_p": 1, "gear_p_calls": 1, "gear_p_raw": 1} | {
    "sgcd_p": 2,
    "sgcd_p_raw": 2,
    "direct_distillation": 1,
}
"""Forward passes over the batch beyond `grpo`'s: sgcd_p asks the teacher, then the student over the teacher's words."""


def episodes(policy: Policy, count: int) -> list[Trajectory]:
    """Return siblings of `count / SIBLINGS` tasks, with the log-probs that the policy itself gives their actions."""
    rng, vocabulary = random.Random(0), policy.model.config.vocab_size

    def ids(mean: int) -> list[int]:
        return [rng.randrange(3, vocabulary) for _ in range(max(1, round(rng.gauss(mean, 0.2 * mean))))]

    openings = [ids(OPENING) for _ in range(-(-count // SIBLINGS))]
    found = []
    for index in range(count):
        group, sibling = divmod(index, SIBLINGS)
        turns = []
        for number in range(max(2, TURNS + rng.randint(-2, 2))):
            action = ids(ACTION)
            prompt = ids(OBSERVATION) if number else openings[group]
            result = ToolResult("well") if rng.random() < 0.8 else ToolResult("ill", "unknown_item")
            call = ToolCall(rng.choice("abc"), {"item": rng.choice("xyz")})
            goals = (f"goal {number}",) if rng.random() < 0.3 else ()
            rewards = [0.0] * len(action)
            turns.append(
                Turn(prompt, action, rewards, "".join(map(str, action[:2])), call, result, goals, 0.1, rewards)
            )
        family, name = "synthetic", f"task {group}"
        success = sibling % 2 == 0
        found.append(Trajectory(name, family, name, sibling, 0, 0, 1.0, turns, success, 0.5, "finished"))
    return with_logprobs(policy, found)


def with_logprobs(policy: Policy, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Fill in what the sampler would have recorded."""
    sequences = [sequence_of(trajectory) for trajectory in trajectories]
    scores = frozen_pass(policy.model, trajectories, sequences, microbatch_tokens=8192, want_entropy=True)
    filled = []
    for trajectory, score in zip(trajectories, scores, strict=True):
        assert score.entropy_T is not None
        turns = [
            replace(
                turn,
                action_logprobs=score.logprob_T[start:stop].tolist(),
                action_entropies=score.entropy_T[start:stop].tolist(),
            )
            for turn, (start, stop) in zip(trajectory.turns, trajectory.action_spans(), strict=True)
        ]
        filled.append(replace(trajectory, turns=turns))
    return filled


class Told:
    """As much of a world as an iteration's learning asks for."""

    def answer(self, trajectory: Trajectory) -> str:
        return "the answer"

    def opening(self, trajectory: Trajectory, hint: str) -> list[int]:
        return [*trajectory.turns[0].prompt_ids, *range(3, 3 + HINT)]


def cpu_seconds(
    recipe: str, policy: Policy, weights: dict[str, Any], trajectories: Sequence[Trajectory], section: PolicySection
) -> float:
    """Return the CPU seconds of one iteration's learning by a recipe, from the same weights."""
    policy.model.load_state_dict(weights)
    width = policy.model.config.hidden_size
    assigner = CreditAssigner(
        RECIPES[recipe],
        settings_of(recipe, {}),
        critic=Critic(CriticHead(width, hidden=64).eval(), 0.7, None),
        width=width,
        iterations=section.iterations,
        seed=0,
    )
    rewards = [float(trajectory.success) for trajectory in trajectories]
    found = RECIPES[recipe].advantage(rewards, [trajectory.group_id for trajectory in trajectories])
    lesson = Lesson(trajectories, found.advantage_N, torch.tensor(rewards), 0, 0)
    with tempfile.TemporaryDirectory() as work:
        world: Any = Told()
        trainer = PolicyTrainer(policy, assigner, world, section, context=2048, seed=0, work=Path(work))
        start = time.process_time()
        trainer._train(lesson, section.iterations // 2)
        return time.process_time() - start


def main() -> None:
    """Print one line per recipe: CPU seconds, and the ratio to the runs of `grpo` before and after it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--recipes", nargs="*", choices=list(RECIPES), default=list(RECIPES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = train_tokenizer([str(number) for number in range(20_000)], vocabulary=2048)
    policy = build_policy(tokenizer, TinyModel(hidden=128, layers=4, heads=2, context=2048), seed=0)
    weights = {name: value.clone() for name, value in policy.model.state_dict().items()}
    trajectories = episodes(policy, options.trajectories)
    section = PolicySection(microbatch_tokens=2048)
    sampled, total = (sum(map(sum, rows)) for rows in zip(*(_counts(t) for t in trajectories), strict=True))
    print(f"{len(trajectories)} trajectories, {total:,} tokens, {sampled:,} of them sampled, {options.rounds} rounds")
    cpu_seconds("grpo", policy, weights, trajectories[:SIBLINGS], section)  # warm up
    plain = [cpu_seconds("grpo", policy, weights, trajectories, section)]
    taken: dict[str, list[tuple[float, float]]] = {recipe: [] for recipe in options.recipes}
    for _ in track(range(options.rounds), "rounds"):
        for recipe, pairs in taken.items():
            own = cpu_seconds(recipe, policy, weights, trajectories, section)
            plain.append(cpu_seconds("grpo", policy, weights, trajectories, section))
            pairs.append((own, own / statistics.mean(plain[-2:])))
    print(f"grpo: {statistics.median(plain):.2f} CPU s, {min(plain):.2f} to {max(plain):.2f}")
    print(f"{'recipe':20} {'CPU s':>7} {'ratio':>6} {'bar':>6}  further passes")
    for recipe, pairs in taken.items():
        seconds, ratio = (statistics.median(column) for column in zip(*pairs, strict=True))
        passes = PASSES.get(recipe, 0)
        bar = FREE if passes == 0 else ONE_PASS if passes <= 1 else None
        shown = "-" if bar is None else f"{bar:.2f}"
        over = "  OVER" if bar is not None and ratio > bar else ""
        print(f"{recipe:20} {seconds:7.2f} {ratio:6.2f} {shown:>6}  {passes:g}{over}", flush=True)


def _counts(trajectory: Trajectory) -> tuple[list[int], list[int]]:
    mask = trajectory.action_mask()
    return [sum(mask)], [len(mask)]


if __name__ == "__main__":
    main()
