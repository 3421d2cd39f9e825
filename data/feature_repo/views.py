"""What is known of each entity. `src/geartrain/features/statistics.py` says how each value is made."""

from datetime import timedelta

from entities import policy_version, prompt, source, task
from feast import Entity, FeatureView, Field
from feast.types import FeastType, Float64, Int64, String
from sources import table

FOREVER = timedelta(0)
"""No value expires: the newest that was known counts, however old it is."""


def _view(name: str, entity: Entity, key_type: FeastType, about: str, **values: FeastType) -> FeatureView:
    fields = [Field(name=entity.join_key, dtype=key_type), *(Field(name=n, dtype=t) for n, t in values.items())]
    return FeatureView(
        name=name, entities=[entity], ttl=FOREVER, schema=fields, source=table(name), online=True, description=about
    )


task_history = _view(
    "task_history",
    task,
    String,
    "Difficulty of a task: how often it was played and solved, over its life and lately.",
    attempts=Int64,
    successes=Int64,
    success_rate=Float64,
    progress=Float64,
    recent_attempts=Float64,
    recent_successes=Float64,
)
prompt_history = _view(
    "prompt_history",
    prompt,
    String,
    "Difficulty of a family of prompts.",
    prompt_attempts=Int64,
    prompt_successes=Int64,
    prompt_success_rate=Float64,
    prompt_recent_attempts=Float64,
    prompt_recent_successes=Float64,
)
task_rewards = _view(
    "task_rewards",
    task,
    String,
    "Rewards of the siblings that played a task last: mean, spread, how far the mean moved.",
    reward_mean=Float64,
    reward_spread=Float64,
    reward_drift=Float64,
)
policy_rewards = _view(
    "policy_rewards",
    policy_version,
    Int64,
    "Rewards of all that a policy version played; drift is against the version before it.",
    policy_episodes=Int64,
    policy_reward_mean=Float64,
    policy_reward_spread=Float64,
    policy_reward_drift=Float64,
)
judge_disagreement = _view(
    "judge_disagreement",
    task,
    String,
    "How often the reward model orders two siblings of a task against the verifier.",
    comparisons=Int64,
    disagreement=Float64,
)
sibling_contrast = _view(
    "sibling_contrast",
    task,
    String,
    "How far the siblings that played a task last differ in outcome.",
    group_size=Int64,
    mixed=Int64,
    outcome_spread=Float64,
)
task_length = _view(
    "task_length",
    task,
    String,
    "Mean length of the episodes that played a task last.",
    mean_turns=Float64,
    mean_tokens=Float64,
)
source_history = _view(
    "source_history",
    source,
    String,
    "What a source of preference pairs has given: pairs, tasks, mean verified margin.",
    source_pairs=Int64,
    source_tasks=Int64,
    source_margin=Float64,
)
