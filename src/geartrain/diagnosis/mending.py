"""What to change in `params.yaml`: the exact key, its present value, and one derived from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from geartrain.diagnosis.records import Records
from geartrain.diagnosis.signs_of_rewards import starved_families
from geartrain.methods import METHODS

WANTED_STEP = 0.01
"""Nats per token that one iteration's steps should move a policy."""
HELD_KL = 0.1
"""Coefficient of a KL that holds (RLAR-65); a tenth of it lets a policy go."""
USUAL_CLIP = {"clip_low": 0.2, "clip_high": 0.28}


@dataclass(frozen=True)
class Change:
    """One line of advice."""

    key: str
    """Of `params.yaml`; empty where no setting mends it."""
    present: Any
    proposed: Any
    why: str

    def text(self) -> str:
        """Return it for people."""
        if not self.key:
            return self.why
        return f"{self.key}: {_shown(self.present)} → {_shown(self.proposed)}   {self.why}"


def rounded(value: float) -> float:
    """Return a number in one digit, as people write settings."""
    if value <= 0 or not math.isfinite(value):
        return value
    power = 10.0 ** math.floor(math.log10(value))
    return float(f"{round(value / power) * power:.3g}")


def elsewhere(why: str) -> Change:
    """Return advice that no setting carries out."""
    return Change("", None, None, why)


def policy_change(records: Records, key: str, proposed: Any, why: str) -> Change:
    """Return a change of a value of the section `policy`."""
    return Change(f"policy.{key}", records.policy(key), proposed, why)


def method_change(records: Records, key: str, proposed: Any, why: str) -> Change:
    """Return a change of a setting of the recipe."""
    return Change(f"policy.settings.{records.recipe}.{key}", records.method(key), proposed, why)


def default_of(records: Records, key: str) -> Any:
    """Return a method's own value of a setting."""
    return METHODS[records.recipe].settings[key].default


def slower(records: Records) -> Sequence[Change]:
    """Divide the learning rate by how much too far its steps go: the divergence grows with its square."""
    rate = float(records.policy("learning_rate", 3e-4))
    far = max((value for _, value in records.points("update_kl")), default=0.0)
    factor = min(100.0, max(2.0, math.sqrt(far / WANTED_STEP)))
    return [
        policy_change(
            records, "learning_rate", rounded(rate / factor), f"divide by {factor:.0f}: steps of {WANTED_STEP:g} nats"
        )
    ]


def faster(records: Records) -> Sequence[Change]:
    """Raise a learning rate at which nothing moves."""
    rate = float(records.policy("learning_rate", 3e-4))
    return [policy_change(records, "learning_rate", rounded(3 * rate), "three times as fast, and look again")]


def hold(records: Records) -> Sequence[Change]:
    """Pay for the distance to the warm start."""
    present = float(records.policy("kl_coefficient", 0.0))
    proposed = HELD_KL if present == 0 else rounded(max(HELD_KL, 3 * present))
    found = [policy_change(records, "kl_coefficient", proposed, "pay for the distance to the warm start")]
    final = records.policy("kl_final")
    if final is not None and float(final) < proposed:
        found.append(policy_change(records, "kl_final", None, "and go on paying"))
    return found


def loosen(records: Records) -> Sequence[Change]:
    """Hold a policy less that is held where it was."""
    present = float(records.policy("kl_coefficient", 0.0))
    return [policy_change(records, "kl_coefficient", rounded(present / 10), "a tenth")]


def explore(records: Records) -> Sequence[Change]:
    """Keep a policy undecided."""
    present = float(records.policy("entropy_coefficient", 0.0))
    sampling = records.policy("sampling") or {}
    temperature = float(sampling.get("temperature", 1.0))
    found = [
        policy_change(
            records, "entropy_coefficient", rounded(3 * present) if present else 0.003, "a bonus for being undecided"
        )
    ]
    if temperature < 1.0:
        found.append(Change("policy.sampling.temperature", temperature, 1.0, "siblings that differ more"))
    return found


def slow_and_hold(records: Records) -> Sequence[Change]:
    """Go slower, and pay for the distance to the warm start."""
    return [*slower(records), *hold(records)]


def seek(records: Records) -> Sequence[Change]:
    """Explore more, and go faster."""
    return [*explore(records), *faster(records)]


def decide(records: Records) -> Sequence[Change]:
    """Take away what keeps a policy random."""
    present = float(records.policy("entropy_coefficient", 0.0))
    bonus = (
        [policy_change(records, "entropy_coefficient", rounded(present / 10), "a tenth of the bonus")]
        if present
        else []
    )
    return [*bonus, *slower(records)]


def widen_clip(records: Records) -> Sequence[Change]:
    """Open what cuts the update off: the trust region, or the bound on the gradient."""
    found = [
        policy_change(records, key, usual, "as usual")
        for key, usual in USUAL_CLIP.items()
        if float(records.policy(key, usual)) < 0.25 * usual
    ]
    norms = [value for _, value in records.points("gradient_norm")]
    clip = float(records.policy("gradient_clip", 1.0))
    if norms and sum(norms) / len(norms) > 100 * clip:
        middle = sorted(norms)[len(norms) // 2]
        found.append(policy_change(records, "gradient_clip", rounded(min(1.0, middle)), "cut outliers, not every step"))
    return found or [policy_change(records, "clip_high", USUAL_CLIP["clip_high"], "as usual")]


def rescale(records: Records) -> Sequence[Change]:
    """Bring rewards back to the size that the loss is made for."""
    highest = max(
        (abs(value) for name in ("reward_high", "reward_low") for _, value in records.points(name)), default=1.0
    )
    found = [elsewhere(f"divide the reward channel's values by {rounded(highest):g}: a success earns 1")]
    if records.recipe in ("dr_grpo", "rloo", "ppo"):
        found.append(policy_change(records, "recipe", "grpo", "its advantages are scaled by their group's deviation"))
    return found


def distrust(records: Records) -> Sequence[Change]:
    """Let the learned reward have no say where the verdict has none, and less elsewhere."""
    weight = float(records.policy("reward_model_weight", 0.0))
    found = []
    if records.policy("learned_in_ties"):
        found.append(
            policy_change(
                records, "learned_in_ties", False, "where the verdict is tied the model is all there is to please"
            )
        )
    if weight:
        found.append(
            policy_change(
                records, "reward_model_weight", rounded(weight / 10), "a tenth of its say, until it is mended"
            )
        )
    found.append(
        elsewhere("read the episodes of highest reward that failed; forge such ones: preferences.forgeries_per_task")
    )
    return found


def play_family(records: Records) -> Sequence[Change]:
    """Bring a starved family back."""
    names = ", ".join(sorted(starved_families(records))) or "it"
    found = []
    if records.policy("task_sampling", "uniform") != "uniform":
        found.append(
            policy_change(records, "task_sampling", "uniform", f"every task once an epoch, those of {names} too")
        )
    found.append(elsewhere(f"tasks.train: draw more tasks of {names}; its share of `train` should be that of `val`"))
    return found


def remember_family(records: Records) -> Sequence[Change]:
    """Hold a policy that forgets a family."""
    return [
        *hold(records),
        policy_change(records, "task_sampling", "headroom", "play more of what is solved half of the time"),
    ]


def renew_teacher(records: Records) -> Sequence[Change]:
    """Let a past self follow the student, and neither be it nor stay behind."""
    averages = records.method("teacher_decay") is not None and records.method("teacher") != "snapshot"
    key = "teacher_decay" if averages else "snapshot_share"
    present = records.method(key)
    if present is None or present == default_of(records, key):
        return [elsewhere(f"{key} is {present} and the past self does not follow: see training.teachers.Teachers.end")]
    return [method_change(records, key, default_of(records, key), "follow the student, some iterations behind")]


def wake_critic(records: Records) -> Sequence[Change]:
    """Let a critic learn the siblings of the policy that it is asked about."""
    found = []
    if float(records.method("critic_steps") or 0) <= 0:
        found.append(
            method_change(records, "critic_steps", 4, "learn each iteration's siblings after they are weighed")
        )
    if float(records.method("critic_decay") or 0) > 0.95:
        found.append(
            method_change(records, "critic_decay", default_of(records, "critic_decay"), "query what has been learned")
        )
    if float(records.method("critic_learning_rate") or 0) < 1e-5:
        found.append(
            method_change(records, "critic_learning_rate", default_of(records, "critic_learning_rate"), "let it learn")
        )
    return found or [
        Change("critic.epochs", None, 30, "train it longer, on more rollouts: collect.tasks, collect.siblings")
    ]


def strengthen(records: Records) -> Sequence[Change]:
    """Give a method something to say."""
    for key in ("strength", "kappa", "alpha", "gamma"):
        present = records.method(key)
        if present is not None:
            return [
                method_change(records, key, max(2 * float(present), float(default_of(records, key))), "weigh more"),
                *renew_teacher(records),
            ]
    return [policy_change(records, "recipe", "grpo", "what it is anyway")]


def more_signal(records: Records) -> Sequence[Change]:
    """Make siblings differ."""
    siblings = int(records.policy("siblings", 8))
    sampling = records.policy("sampling") or {}
    temperature = float(sampling.get("temperature", 1.0))
    return [
        policy_change(records, "siblings", 2 * siblings, "more chances to differ"),
        Change(
            "policy.sampling.temperature",
            temperature,
            min(1.2, round(temperature + 0.2, 1)),
            "siblings that differ more",
        ),
        policy_change(records, "task_sampling", "headroom", "tasks whose siblings are likely to differ"),
    ]


def harder_tasks(records: Records) -> Sequence[Change]:
    """Stop, or ask for more."""
    return [
        policy_change(records, "patience", 3, "end it when held-out tasks gain no more"),
        policy_change(records, "task_sampling", "headroom", "or play what is not solved yet"),
    ]


def other_granularity(records: Records) -> Sequence[Change]:
    """Tell coarse turns from fine ones by something that varies."""
    other = "entropy" if records.method("granularity") != "entropy" else "progress"
    return [method_change(records, "granularity", other, "something that varies")]


def pull_less(records: Records) -> Sequence[Change]:
    """Weaken a pull to a teacher, first to 0 as a test (GEAR-47)."""
    return [method_change(records, "distil", 0.0, "as a test; then raise it from a tenth of what it was")]


def keep_mixture(records: Records) -> Sequence[Change]:
    """Keep a mixture of grains open, or let it learn."""
    entropy = float(records.method("grain_entropy") or 0.01)
    return [method_change(records, "grain_entropy", rounded(3 * entropy), "a bonus for an even mixture")]


def learn_mixture(records: Records) -> Sequence[Change]:
    """Let a mixture learn."""
    rate = float(records.method("grain_learning_rate") or 1e-3)
    return [method_change(records, "grain_learning_rate", rounded(10 * rate), "ten times")]


def stop_early(records: Records) -> Sequence[Change]:
    """End a run that learns its tasks by heart, and show it more of them."""
    tasks = (
        (records.parameters.get("tasks") or {}).get("train")
        if isinstance(records.parameters.get("tasks"), dict)
        else None
    )
    return [
        policy_change(records, "patience", 3, "end it when held-out tasks gain no more"),
        Change("tasks.train", tasks, 2 * tasks if tasks else "twice as many", "tasks that differ more"),
        *hold(records),
    ]


def same_sampler(records: Records) -> Sequence[Change]:
    """Say where two implementations of one policy part."""
    return [
        elsewhere(
            "play and train with the same weights, precision and temperature; change no trajectory once it is sampled"
        )
    ]


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
