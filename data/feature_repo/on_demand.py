"""What is computed from features when somebody asks; the formulas are those that training uses."""

import pandas as pd
from feast import Field, RequestSource
from feast.on_demand_feature_view import on_demand_feature_view
from feast.types import Float64, Int64
from views import prompt_history, task_history, task_rewards

group = RequestSource(
    name="group", schema=[Field(name="siblings", dtype=Int64)], description="Episodes that will play a task."
)


@on_demand_feature_view(
    sources=[task_history, prompt_history, group],
    schema=[Field(name="expected_success", dtype=Float64), Field(name="headroom", dtype=Float64)],
    mode="pandas",
    description="How likely a task is solved, and how likely its siblings are to differ.",
)
def task_headroom(inputs: pd.DataFrame) -> pd.DataFrame:
    """Return both, a row each."""
    import pandas

    from geartrain.features import headroom

    names = ("recent_attempts", "recent_successes", "prompt_recent_attempts", "prompt_recent_successes")
    success = headroom.expected_success(*(pandas.to_numeric(inputs[name]).to_numpy(float) for name in names))
    siblings = pandas.to_numeric(inputs["siblings"]).to_numpy(float)
    return pandas.DataFrame(
        {"expected_success": success, "headroom": headroom.headroom(success, siblings)}, index=inputs.index
    )


@on_demand_feature_view(
    sources=[task_rewards],
    schema=[Field(name="reward_shift", dtype=Float64)],
    mode="pandas",
    description="How many spreads a task's mean reward has moved since it was played before.",
)
def reward_shift(inputs: pd.DataFrame) -> pd.DataFrame:
    """Return it, a row each; missing where the task was played once."""
    import pandas

    drift, spread = (pandas.to_numeric(inputs[name]) for name in ("reward_drift", "reward_spread"))
    return pandas.DataFrame({"reward_shift": (drift / spread.clip(lower=0.05)).astype(float)}, index=inputs.index)
