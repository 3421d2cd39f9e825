"""Labels of metrics, and why each can have few values only."""

from geartrain.telemetry.declaration import Label

STAGES = (
    *("tasks", "warm_start", "collect", "preferences", "reward_model"),
    *("critic", "policy", "evaluation", "promotion"),
)
ALARMS = (*("zero_tool", "held_out", "hacking", "tools", "turns", "tokens", "entropy", "kl", "mixture", "granularity"),)
"""Names in `algorithms.validity.ALARMS`, which needs torch; a test holds this to it."""
FAILURE_KINDS = (
    *("raised", "wrong_count", "not_an_outcome", "verdict_not_boolean", "progress_out_of_range", "not_a_number"),
    *("not_finite", "not_scored", "unknown_task", "too_long"),
)
STAGE = Label("stage", "stages of the pipeline", STAGES)
FAMILY = Label("family", "task families of the environment, the first 12", most=12)
CHANNEL = Label("channel", "channels of the reward mix", ("verified", "learned"))
GRAIN = Label("grain", "grains of credit", ("global", "step", "token"))
DECODING = Label("decoding", "ways of decoding", ("greedy", "sampled"))
SPLIT = Label("split", "task sets that are measured", ("test", "ood", "paraphrase"))
ROLE = Label("role", "models that are compared", ("before", "after"))
PHASE = Label("phase", "parts of an iteration", ("play", "train", "validate", "save"))
FAILURE = Label("kind", "why a channel failed; exceptions of any type are `raised`", FAILURE_KINDS)
NO_OPINION = Label("kind", "why a channel has no opinion", ("tied", "not_trusted"))
ALARM = Label("alarm", "alarms of algorithms.validity", ALARMS)
PROGRESS = Label("progress", "thirds of an episode, by sub-goals reached", ("early", "middle", "late"))
POINT = Label("point", "of the distribution over tokens", ("min", "p05", "median", "p95", "max"))
PARTNER = Label(
    "partner",
    "what credit is ranked against",
    ("later_reward", "advantage", "step_reward", "teacher_ratio_better", "teacher_ratio_worse"),
)
LEARNER = Label("learner", "what learns credit", ("explanation", "outcome", "value", "granularity", "critic"))
RANK = Label("rank", "ranks of this node, the first 8", most=8)
OUTCOME = Label("outcome", "how a stage may end", ("complete", "failed", "interrupted", "killed"))
BLAME = Label("blame", "kinds of errors: a person's to mend, disk or network, a bug", ("user", "infrastructure", "bug"))
CHECK = Label("check", "checks of the gate", ("gain_low", "invalid_calls", "zero_tool_share", "probe_successes"))
ATTACK = Label("attack", "kinds of forgery", ("off_topic", "nothing_delivered", "nothing_looked_up", "padded"))
PAIR_SPLIT = Label("split", "parts of the preference pairs", ("train", "validation"))
QUARANTINE = Label(
    "reason",
    "why a record is not used; rows that cannot be parsed are `malformed`",
    (
        *("unknown_task", "no_turns", "foreign_group", "verdict_not_boolean", "progress_out_of_range"),
        *("score_not_finite", "duplicate_record", "malformed"),
    ),
)
DROP = Label(
    "reason",
    "why two siblings are no pair",
    (
        *("margin_too_small", "tie", "over_the_limit_of_the_task", "contradiction", "duplicate"),
        *("episodes_of_same_text", "episodes_of_same_text_other_score"),
    ),
)
LEFT_OUT = Label("reason", "why a pair is not read", ("too_long", "equal_once_cut"))
REFERENCE_FAILURE = Label("kind", "types of exceptions, the first 8", most=8)
