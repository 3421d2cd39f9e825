"""The DAG: nine tasks, from task sets to the promoted model. Reads top to bottom.

Its parameters are the sections of `params.yaml`; a task gets `seed`, `threads`
and the sections that its stage declares, so a changed section repeats only the
tasks that depend on it. `dvc.yaml` is the same graph for one machine.
"""

from typing import Any

from kfp import dsl

from components.collect import collect as collect_rollouts
from components.critic import critic as train_critic
from components.evaluation import evaluation as compare_models
from components.policy import policy as train_policy
from components.preferences import preferences as build_pairs
from components.promotion import promotion as decide
from components.reward_model import reward_model as train_reward_model
from components.tasks import tasks as build_tasks
from components.warm_start import warm_start as train_start
from pipelines.resources import sized


@dsl.pipeline(name="geartrain", description="Train a tool-using language-model agent and decide on its promotion.")
def training(
    seed: int,
    threads: int,
    model: dict[str, Any],
    environment: dict[str, Any],
    tasks: dict[str, Any],
    warm_start: dict[str, Any],
    collect: dict[str, Any],
    preferences: dict[str, Any],
    reward_model: dict[str, Any],
    critic: dict[str, Any],
    policy: dict[str, Any],
    evaluation: dict[str, Any],
    promotion: dict[str, Any],
) -> None:
    """Every parameter is a section of the configuration, or a value that all stages share."""
    run = {"seed": seed, "threads": threads}
    play = {**run, "model": model, "environment": environment}

    task_sets = sized(build_tasks(settings=tasks, environment=environment, **run)).outputs["tasks"]
    start = sized(train_start(settings=warm_start, tasks=task_sets, **play)).outputs["warm_start"]
    siblings = sized(collect_rollouts(settings=collect, tasks=task_sets, warm_start=start, **play)).outputs["collect"]

    pairs = sized(build_pairs(settings=preferences, tasks=task_sets, collect=siblings, **run)).outputs["preferences"]
    rewards = sized(train_reward_model(settings=reward_model, preferences=pairs, **run)).outputs["reward_model"]
    credit = sized(train_critic(settings=critic, model=model, warm_start=start, collect=siblings, **run)).outputs[
        "critic"
    ]

    trained = sized(
        train_policy(settings=policy, tasks=task_sets, warm_start=start, reward_model=rewards, critic=credit, **play)
    ).outputs["policy"]
    verdict = sized(
        compare_models(settings=evaluation, tasks=task_sets, warm_start=start, policy=trained, **play)
    ).outputs["evaluation"]
    sized(decide(settings=promotion, policy=trained, evaluation=verdict, **run))
