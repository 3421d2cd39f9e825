"""The DAG: from what the run is made of, over nine stages, to the record of a promoted model. Reads top to bottom.

Its parameters are the sections of `params.yaml`; a task gets `seed`, `threads`
and the sections that its stage declares, so a changed section repeats only the
tasks that depend on it. `dvc.yaml` is the same graph of stages for one machine.

Every step but the first and the last two may be served from Kubeflow's cache, which compares parameters: so each gets
the digests that `resolve` has found. However the run ends, `conclude` writes it down.
"""

from typing import Any

from kfp import dsl

from components.collect import collect as collect_rollouts
from components.conclude import conclude
from components.critic import critic as train_critic
from components.evaluation import evaluation as compare_models
from components.images import IMAGE
from components.policy import policy as train_policy
from components.preferences import preferences as build_pairs
from components.promotion import promotion as decide
from components.register import register
from components.resolve import resolve
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
    cluster: dict[str, Any] = {},  # noqa: B006 - Kubeflow reads the default, nobody changes it
    reward_model_cluster: dict[str, Any] = {},  # noqa: B006
    critic_cluster: dict[str, Any] = {},  # noqa: B006
    dataset_rev: str = "",
    data: dict[str, Any] = {},  # noqa: B006
) -> None:
    """Parameters are sections of the configuration, values that all stages share, jobs, and which data is read."""
    this = {"run_id": dsl.PIPELINE_JOB_ID_PLACEHOLDER, "dataset_rev": dataset_rev}
    with dsl.ExitHandler(sized(conclude(**this))):
        named = {"model": model, "environment": environment, "reward_model": reward_model, "critic": critic}
        named["preferences"] = preferences
        made_of = sized(resolve(image=IMAGE, dataset_rev=dataset_rev, data=data, **named)).outputs
        marks = {"dataset_rev": dataset_rev, **{key: made_of[key] for key in ("dataset_digest", "image_digest")}}
        run = {"seed": seed, "threads": threads, **marks}
        play = {**run, "model": model, "environment": environment}

        task_sets = sized(build_tasks(settings=tasks, environment=environment, data=data, **run)).outputs["tasks"]
        start = sized(train_start(settings=warm_start, tasks=task_sets, data=data, **play)).outputs["warm_start"]
        siblings = sized(collect_rollouts(settings=collect, tasks=task_sets, warm_start=start, **play)).outputs[
            "collect"
        ]

        pairs = sized(build_pairs(settings=preferences, tasks=task_sets, collect=siblings, data=data, **run)).outputs[
            "preferences"
        ]
        seen = {"collect": siblings, "preferences": pairs, "data": data}
        rewards = sized(
            train_reward_model(settings=reward_model, cluster=reward_model_cluster, data=data, preferences=pairs, **run)
        ).outputs["reward_model"]
        credit = sized(
            train_critic(settings=critic, cluster=critic_cluster, model=model, warm_start=start, **seen, **run)
        ).outputs["critic"]

        learned = {"tasks": task_sets, "warm_start": start}
        judges = {"preferences": pairs, "reward_model": rewards, "critic": credit}
        trained = sized(train_policy(settings=policy, cluster=cluster, **judges, **learned, **play)).outputs["policy"]
        compared = sized(compare_models(settings=evaluation, policy=trained, **learned, **play)).outputs["evaluation"]
        verdict = sized(decide(settings=promotion, policy=trained, evaluation=compared, **run))
        with dsl.If(verdict.outputs["Output"] == True, name="promoted"):  # noqa: E712 - Kubeflow compares, not Python
            sized(register(promotion=verdict.outputs["promotion"], run_id=this["run_id"], **marks))
