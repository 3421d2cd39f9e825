"""Episodes of several turns that nobody played, and a model that sees one token back: to test losses, not policies.

`prepared_by` runs an iteration's learning up to its optimiser steps and returns what these would be given.
"""

import random
from dataclasses import replace
from types import SimpleNamespace

import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.models.heads import CriticHead
from geartrain.ranks import ALONE
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.engine import StepReport
from geartrain.training.features import frozen_pass, sequence_of
from geartrain.training.lesson import Lesson
from geartrain.training.policy import PolicyTrainer
from geartrain.training.policy_engine import WholeEngine
from geartrain.training.policy_step import PolicyStep
from geartrain.training.teachers import frozen_copy
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn

REWARDS = [1.0, 0.0, 0.3, 0.0, 0.0, 1.0, 0.9, 0.1]
HINT = [5, 6, 7, 8]
CONTEXT = 64
LIVELY = {
    "gear_a": {"distil": 0.3},
    "gear_a_sgcd": {"distil": 0.3, "distil_direction": "jsd", "teacher": "snapshot"},
    "gear_b": {"dead_zone": 0.0, "granularity": "learned"},
    "gear_p": {"onset": 0.01},
    "direct_distillation": {"distil_direction": "forward"},
}
"""Settings with which every head of a recipe's loss is at work."""

HEADS = {
    "plain": {"kl_coefficient": 0.0},
    "k1": {"kl_coefficient": 0.5, "kl_estimator": "k1"},
    "k2": {"kl_coefficient": 0.5, "kl_estimator": "k2"},
    "k3 and entropy": {"kl_coefficient": 0.5, "kl_estimator": "k3", "entropy_coefficient": 0.2},
    "full": {"kl_coefficient": 0.5, "kl_estimator": "full"},
    "sequence ratio": {"kl_coefficient": 0.0, "ratio": "sequence"},
}
"""What is in the loss beside the recipe's own heads (policy gradient, distillation)."""


def episodes(vocabulary=256, seed=3):
    """Return eight ragged siblings of two tasks, three turns each, 28 to 40 tokens."""
    rng = random.Random(seed)

    def ids(low, high):
        return [rng.randrange(10, vocabulary) for _ in range(rng.randint(low, high))]

    found = []
    for row, reward in enumerate(REWARDS):
        turns = []
        for number in range(3):
            action = ids(3, 6)
            prompt = ids(8, 9) if number == 0 else ids(4, 6)
            failed = (row + number) % 3 == 0
            result = ToolResult("ill", "unknown_item", 0) if failed else ToolResult("well")
            call = ToolCall("abc"[(row + number) % 3], {"item": "xyz"[row % 3]})
            goals = (f"goal {number}",) if row % (number + 2) == 0 else ()
            token_rewards = [-float(failed and i == 1) for i in range(len(action))]
            logprobs, entropies = ([rng.uniform(0.1, 3.0) * sign for _ in action] for sign in (-1, 1))
            text, step = " ".join(map(str, action)), 0.3 * number - 0.1 * failed
            turns.append(Turn(prompt, action, logprobs, text, call, result, goals, step, token_rewards, entropies))
        name = f"task {row // 4}"
        found.append(Trajectory(name, "synthetic", name, row % 4, row, 0, 0.8, turns, reward == 1, reward, "finished"))
    return found


def near_the_policy(model, trajectories, *, spread=0.25, seed=5):
    """Give actions log-probs near the model's, so that ratios lie on both sides of 1 and of the clip."""
    scores = frozen_pass(model, trajectories, [sequence_of(t) for t in trajectories], microbatch_tokens=9999)
    generator = torch.Generator().manual_seed(seed)
    filled = []
    for trajectory, score in zip(trajectories, scores, strict=True):
        noise_T = spread * torch.randn(len(score.logprob_T), generator=generator)
        logprob_T = (score.logprob_T + noise_T).clamp(max=0.0)
        spans = zip(trajectory.turns, trajectory.action_spans(), strict=True)
        turns = [replace(turn, action_logprobs=logprob_T[start:stop].tolist()) for turn, (start, stop) in spans]
        filled.append(replace(trajectory, turns=turns))
    return filled


@torch.no_grad()
def moved(model, *, seed):
    """Return a model of other weights near it."""
    other = frozen_copy(model)
    for weight in other.parameters():
        noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
        weight.add_(0.02 * noise.to(weight.device))
    return other


class Told:
    """As much of a world as an iteration's learning asks for; the opening with a hint is longer."""

    def answer(self, trajectory):
        return "the answer"

    def opening(self, trajectory, hint):
        return [*HINT, *trajectory.turns[0].prompt_ids]


class CaughtError(Exception):
    """Carries what the optimiser steps would have been given."""


class _Catch:
    def run(self, sequences, **options):
        raise CaughtError(sequences)


def trainer_of(name, policy, section, work, settings=None):
    """Return a trainer of a recipe with its lively settings; its critic has learned nothing."""
    torch.manual_seed(11)
    width, device = policy.model.config.hidden_size, policy.model.device
    assigner = CreditAssigner(
        RECIPES[name],
        settings_of(name, {**LIVELY.get(name, {}), **(settings or {})}),
        critic=Critic(CriticHead(width, hidden=8).eval().to(device), 0.7, None),
        width=width,
        iterations=section.iterations,
        seed=0,
        device=device,
    )
    return PolicyTrainer(policy, assigner, Told(), section, context=CONTEXT, seed=0, work=work)


def lesson_of(name, trajectories):
    """Return the trajectories with the recipe's advantages."""
    found = RECIPES[name].advantage(REWARDS, [t.group_id for t in trajectories])
    return Lesson(trajectories, found.advantage_N, torch.tensor(REWARDS), 0, 0)


def prepared_by(trainer, lesson, *, iteration):
    """Return the sequences, with every value of theirs in float64."""
    trainer._step = _Catch()
    try:
        trainer._train(lesson, iteration)
    except CaughtError as caught:
        (sequences,) = caught.args
    return [
        replace(s, values={k: v.double() if v.is_floating_point() else v for k, v in s.values.items()})
        for s in sequences
    ]


class GradientOnly(WholeEngine):
    """Keeps the gradient of a step, unclipped, instead of moving the weights."""

    def __init__(self, model, ranks=ALONE):
        super().__init__(model, learning_rate=1.0, total_steps=1, ranks=ranks)

    def step(self):
        self._add_up()
        self.gradient = torch.cat(
            [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.parameters]
        )
        self.loss = self._loss
        for parameter in self.parameters:
            parameter.grad = None
        self._loss = 0.0
        return StepReport(float(self.gradient.norm()), 1.0, self.loss, False)


def step_gradient(model, name, section, sequences, *, settings=None, reference=None, ranks=ALONE):
    """Return the gradient of one optimiser step over all the sequences, and its loss."""
    engine = GradientOnly(model, ranks)
    given = settings_of(name, {**LIVELY.get(name, {}), **(settings or {})})
    step = PolicyStep(model, engine, section, RECIPES[name], given, CONTEXT, ranks, reference)
    step.run(sequences, temperature=0.8, seed=1, share=0.5)
    return engine.gradient, engine.loss


class OneBack(torch.nn.Module):
    """A language model whose every prediction reads the token before it and nothing else."""

    def __init__(self, vocabulary=256, width=16):
        super().__init__()
        torch.manual_seed(2)
        self.embed = torch.nn.Embedding(vocabulary, width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.config = SimpleNamespace(hidden_size=width, vocab_size=vocabulary)
        self.config.get_text_config = lambda: SimpleNamespace(vocab_size=vocabulary)

    @property
    def device(self):
        return self.embed.weight.device

    @property
    def base_model(self):
        return lambda input_ids, **_: SimpleNamespace(last_hidden_state=torch.tanh(self.embed(input_ids)))

    def get_input_embeddings(self):
        return self.embed

    def get_output_embeddings(self):
        return self.head

    def forward(self, input_ids, **_):
        return SimpleNamespace(logits=self.head(torch.tanh(self.embed(input_ids))))
