"""A real, tiny environment that an untrained model solves half the time, and a model small enough for a test.

The agent speaks `TURNS` messages. A message is right when its first character has an even code; the episode
succeeds when the last message is right, and every right message is a sub-goal.
"""

import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.config import Config, TinyModel
from geartrain.environments.environment import Step, Task, Verdict
from geartrain.methods import settings_of
from geartrain.models.backbone import build_policy
from geartrain.models.heads import CriticHead
from geartrain.models.tokenizer import train_tokenizer
from geartrain.placement import CPU
from geartrain.rewards.mix import RewardMix
from geartrain.rollouts.collect import Limits, play
from geartrain.stages.policy import TaskWorld
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.critic import Labelling
from geartrain.training.policy import PolicyTrainer
from geartrain.trajectory import ToolCall, ToolResult

TURNS = 2
TINY = TinyModel(vocabulary=300, hidden=16, layers=1, heads=1, context=1024)


def make_tasks(count, split="train"):
    return [
        Task(f"{split}-{i:02d}", "parity", "parity", split, f"Speak, number {i}", "void", TURNS) for i in range(count)
    ]


def make_config(**policy):
    settings = {
        "iterations": 4,
        "tasks_per_iteration": 3,
        "siblings": 4,
        "sampling": {"max_new_tokens": 4, "rows": 12},
        "learning_rate": 3e-3,
        "schedule": "constant",
        "train_embeddings": True,
        "validate_every": 2,
        "reward_model_weight": 0.0,
        **policy,
    }
    return Config.model_validate(
        {"threads": 1, "model": TINY.model_dump(), "environment": {"max_turns": TURNS}, "policy": settings}
    )


def make_policy(seed=0, device=CPU):
    torch.set_num_threads(1)
    texts = ["Speak, number 0 1 2 3 4 5 6 7 8 9", "right", "wrong"] * 4
    return build_policy(train_tokenizer(texts, vocabulary=TINY.vocabulary), TINY, seed=seed, device=device)


def make_assigner(config, policy, recipe):
    """Return what weighs advantages; its critic has learned nothing."""
    torch.manual_seed(11)
    width, section, device = policy.model.config.hidden_size, config.policy, policy.model.device
    return CreditAssigner(
        RECIPES[recipe],
        settings_of(recipe, section.settings.get(recipe, {})),
        critic=Critic(CriticHead(width, hidden=8).eval().to(device), 0.7, None, Labelling(1.0, 0.5, 5.0)),
        width=width,
        iterations=section.iterations,
        seed=0,
        device=device,
    )


class Killed(BaseException):
    pass


class FragileWorld(TaskWorld):
    """Dies when it is asked to play one of some iterations."""

    deaths: tuple[int, ...] = ()

    def play(self, policy, iteration, refill=0):
        if iteration in self.deaths:
            raise Killed
        return super().play(policy, iteration, refill)


def make_trainer(
    work,
    config,
    recipe="gear_a_sgcd",
    deaths=(),
    policy=None,
    world_type=FragileWorld,
    players_type=None,
    environment=None,
):
    """Return the policy loop over seven tasks, and four to validate on."""
    policy = policy or make_policy()
    rewards = RewardMix(policy.tokenizer, model_weight=0.0, invalid_call_reward=-0.1, learned=None)
    players, environment = (players_type or ParityPlayers)(config), environment or Parity()
    world = world_type(players, make_tasks(7), make_tasks(4, "val"), rewards, config, environment, policy.chat)
    object.__setattr__(world, "deaths", deaths)
    assigner = make_assigner(config, policy, recipe)
    return PolicyTrainer(policy, assigner, world, config.policy, context=256, seed=0, work=work)


class ParityEpisode:
    def __init__(self, task):
        self.task, self.right = task, []

    def opening(self):
        return [{"role": "system", "content": "even"}, {"role": "user", "content": self.task.prompt}]

    def step(self, message):
        right = bool(message) and ord(message[0]) % 2 == 0
        self.right.append(right)
        goals = (f"turn {len(self.right)}",) if right else ()
        result = ToolResult("right") if right else ToolResult("wrong", "odd", 0)
        return Step(ToolCall("speak", {"message": message[:1]}), result, goals, len(self.right) == TURNS)

    def verdict(self):
        goals = {f"turn {i + 1}": i < len(self.right) and self.right[i] for i in range(TURNS)}
        return Verdict(goals[f"turn {TURNS}"], goals)

    def close(self):
        pass


class Parity:
    name = "parity"

    def tools(self):
        return []

    def reset(self, task, *, seed):
        return ParityEpisode(task)

    def answer(self, task):
        return "any even character"

    def describe_phases(self, trajectories, tasks, *, horizon):
        return {}


class ParityPlayers:
    """Plays parity in this process, as `rollouts.players.Players` plays."""

    def __init__(self, config):
        self.config = config

    def play(self, policy, requests, *, on_progress=lambda done: None, **options):
        options["on_episode"] = lambda _: on_progress(1)
        return play(Parity(), policy, requests, limits=Limits.of(self.config), **options)
