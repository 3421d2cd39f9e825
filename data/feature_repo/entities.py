"""What features are about."""

from feast import Entity, ValueType

task = Entity(
    name="task",
    join_keys=["task_id"],
    value_type=ValueType.STRING,
    description="A task of a task set, as `data/tasks` names it.",
)
prompt = Entity(
    name="prompt",
    join_keys=["family"],
    value_type=ValueType.STRING,
    description="A family of prompts: what was never played has the record of its family.",
)
policy_version = Entity(
    name="policy_version",
    join_keys=["policy_version"],
    value_type=ValueType.INT64,
    description="Weights that played: 0 is the warm start, k what k iterations have made of it.",
)
source = Entity(
    name="source",
    join_keys=["source_id"],
    value_type=ValueType.STRING,
    description="Where preference pairs come from: verified siblings, a kind of forgery, an annotator.",
)
