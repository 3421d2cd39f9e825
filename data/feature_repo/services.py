"""Who is given what. A consumer names its service; what it is given changes under a new name (`…_v2`)."""

from feast import FeatureService
from on_demand import reward_shift, task_headroom
from views import (
    judge_disagreement,
    policy_rewards,
    prompt_history,
    sibling_contrast,
    source_history,
    task_history,
    task_length,
    task_rewards,
)

sampler_v1 = FeatureService(
    name="sampler_v1",
    features=[task_history, prompt_history, task_rewards, judge_disagreement, task_headroom],
    description="The policy's task sampler: what is known of every training task when training starts.",
)
rlar_v1 = FeatureService(
    name="rlar_v1",
    features=[
        *(task_history, task_rewards, judge_disagreement, sibling_contrast, task_length, source_history),
        *(task_headroom, reward_shift),
    ],
    description="The reward model: what is known of each preference pair's task and source.",
)
critic_v1 = FeatureService(
    name="critic_v1",
    features=[task_history, policy_rewards, sibling_contrast, task_length, task_headroom],
    description="The sibling critic: what is known of each episode's task and of the policy that played it.",
)
