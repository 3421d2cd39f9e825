"""Signs in the credit: weights, teachers, critics, mixtures of grains."""

from collections.abc import Mapping

from geartrain.algorithms import validity
from geartrain.diagnosis.reading import Reading, Sign, lasting, short
from geartrain.diagnosis.records import WINDOW, Records

SAME = 1e-6
"""Relative distance of the weights, and spread of the ratio, at which teacher and student are one."""
NEVER_RENEWED, RENEWAL_ITERATIONS = 0.8, 6
"""Distance from a past self over that from the warm start at which it still is the warm start; and from which iteration
on that means something."""
FAR_TEACHER = 0.8
"""Spread of the ratio to a teacher above which it is too old (GEAR-94)."""
CRITIC_STILL = 1e-9
"""Relative distance of the critic's weights from its start."""
ONE_GRAIN = 0.95
"""Mean weight of a grain at which the others do not count."""
GRAINS = ("grain_global", "grain_step", "grain_token")


def _column(records: Records, name: str) -> list[float]:
    return [value for _, value in records.points(name)]


def _inert(records: Records) -> Reading | None:
    if "no weight W told one token" in records.reason:
        return Reading(f"stopped: {records.reason}", max(0, len(records.history) - validity.INERT_ITERATIONS), 1.0)
    points = records.points("weight_spread_within")
    reason = validity.inert_weights([value for _, value in points])
    return None if reason is None else Reading(reason, points[-validity.INERT_ITERATIONS][0])


def _past_self(records: Records) -> bool:
    return records.method("teacher_decay") is not None or records.method("snapshot_share") is not None


def _same_teacher(records: Records) -> Reading | None:
    """Read a past self that is the student; not in the first iterations, in which every past self is."""
    for name, what in (("teacher_distance", "weights"), ("teacher_ratio_spread", "ratio")):
        points = [(i, value) for i, value in records.points(name) if i >= WINDOW]
        say = (
            "the past self's weights are {value} from the student's"
            if what == "weights"
            else "the ratio to the teacher spreads by {value}"
        )
        reading = lasting(points, SAME, f"{say} (limit {{limit}})", below=True, least=2)
        if reading is not None:
            return reading
    return None


def _old_teacher(records: Records) -> Reading | None:
    moved = dict(records.points("model_distance"))
    # the student's distance is recorded after its step, the teacher's before: the pair is of one moment
    points = [
        (i, value / moved[i - 1])
        for i, value in records.points("teacher_distance")
        if i >= RENEWAL_ITERATIONS and moved.get(i - 1, 0.0) > 0
    ]
    say = "the past self is as far away as the warm start: {value} of that distance (limit {limit})"
    return lasting(points, NEVER_RENEWED, say, least=WINDOW)


def _far_teacher(records: Records) -> Reading | None:
    say = "the ratio to the teacher spreads by {value} (limit {limit})"
    return lasting(records.points("teacher_ratio_spread"), FAR_TEACHER, say, least=WINDOW)


def _critic(records: Records) -> bool:
    return records.method("critic_steps") is not None


def _learns(records: Records) -> bool:
    return _critic(records) and float(records.method("critic_steps") or 0) > 0


def _still_critic(records: Records) -> Reading | None:
    points = records.points("critic_distance")
    return lasting(
        points, CRITIC_STILL, "the critic's weights moved by {value} (limit {limit})", below=True, least=WINDOW
    )


def _blind_critic(records: Records) -> Reading | None:
    points = [(i, max(0.0, value)) for i, value in records.points("critic_correlation")]
    say = "the critic's scores and what siblings say correlate at {value}, {start} at first (limit {limit})"
    return lasting(points, validity.USELESS_CRITIC, say, below=True, least=WINDOW)


def _silent_critic(records: Records) -> Reading | None:
    return lasting(
        records.points("critic_spread"),
        SAME,
        "the critic's scores spread by {value} (limit {limit})",
        below=True,
        least=2,
    )


def _poor_critic(records: Records) -> Reading | None:
    found, shuffled = records.metric("critic", "correlation"), records.metric("critic", "correlation_shuffled")
    if found is None or found > max(validity.USELESS_CRITIC, shuffled or 0.0):
        return None
    return Reading(f"on held-out tasks the critic correlates at {short(found)} with its labels", 0)


def _mixed(records: Records) -> bool:
    return records.method("grain_learning_rate") is not None


def _even(records: Records) -> Reading | None:
    reason = validity.stuck_mixture(_column(records, "mixture_spread"))
    return None if reason is None else Reading(reason, len(records.history) - validity.INERT_ITERATIONS)


def _one_grain(records: Records) -> Reading | None:
    for name in GRAINS:
        reading = lasting(
            records.points(name),
            ONE_GRAIN,
            f"{name.removeprefix('grain_')} has {{value}} of the mixture (limit {{limit}})",
            least=WINDOW,
        )
        if reading is not None:
            return reading
    return None


def _flat_granularity(records: Records) -> Reading | None:
    reason = validity.stuck_granularity(_column(records, "granularity_spread"))
    return None if reason is None else Reading(reason, len(records.history) - validity.INERT_ITERATIONS)


CREDIT: Mapping[str, Sign] = {
    "inert": Sign(
        "the weights weigh nothing: this is plain GRPO",
        _inert,
        needs=("weight_spread_within",),
        applies=lambda r: r.weighs,
    ),
    "same_teacher": Sign("the teacher is the student", _same_teacher, needs=("teacher_distance",), applies=_past_self),
    "old_teacher": Sign(
        "the teacher is never renewed", _old_teacher, needs=("teacher_distance", "model_distance"), applies=_past_self
    ),
    "far_teacher": Sign(
        "the teacher is far from the student", _far_teacher, needs=("teacher_ratio_spread",), applies=_past_self
    ),
    "still_critic": Sign(
        "the critic does not learn, though it should", _still_critic, needs=("critic_distance",), applies=_learns
    ),
    "blind_critic": Sign(
        "the critic knows nothing of this policy", _blind_critic, needs=("critic_correlation",), applies=_critic
    ),
    "silent_critic": Sign(
        "the critic says the same of every turn", _silent_critic, needs=("critic_spread",), applies=_critic
    ),
    "poor_critic": Sign(
        "the critic was of no use to begin with", _poor_critic, applies=lambda r: _critic(r) and "critic" in r.metrics
    ),
    "even_mixture": Sign(validity.ALARMS["mixture"], _even, needs=("mixture_spread",), applies=_mixed),
    "one_grain": Sign("one grain has taken the mixture", _one_grain, applies=_mixed),
    "flat_granularity": Sign(
        validity.ALARMS["granularity"],
        _flat_granularity,
        applies=lambda r: str(r.method("granularity") or "none") != "none",
    ),
}
