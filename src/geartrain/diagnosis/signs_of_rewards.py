"""Signs in what is paid for and in what is trained on: rewards, advantages, masks, groups, families of tasks."""

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from geartrain.algorithms import validity
from geartrain.diagnosis.reading import Reading, Sign, beyond, highest, lasting, short, short_of
from geartrain.diagnosis.records import WINDOW, Record, Records

REWARD_RANGE = 10.0
"""A verified reward lies in [0, 1], a learned one moves it by less than one half."""
ADVANTAGE_RANGE, ADVANTAGE_FLOOR = 10.0, 1e-3
"""Of the standard deviation of advantages; 1 where groups are scaled, 0.5 at most where they are not."""
REVERSED = 0.2
"""Correlation below whose negative an advantage has the wrong sign."""
UNRELATED = 0.4
"""Correlation of reward and outcome within groups below which something else is paid for; 0.9 and more is usual."""
PAID_MORE = 0.1
"""Rise of the mean reward that success must explain at least in part."""
TRAINED_SHARE = 0.9
"""Of the sampled tokens of trained trajectories; every recipe here trains all of them."""
FLAT = 0.9
"""Share of groups without a signal."""
ALIKE = 0.5
"""Share of the groups of both outcomes whose rewards are all the same."""
HOPELESS = 0.02
"""Success at which groups of one outcome are no wonder; at `validity.SOLVED` they are no fault."""
STARVED = 0.25
"""Share of a family's fair part of the episodes below which it is starved; fair is its share of `val`."""
FEW_TASKS = 3
"""Held-out tasks of a family below which its share of `val` is chance."""
FORGOTTEN, FORGOTTEN_POINTS = 0.5, 0.15
"""Factor and fall of a family's success while the others' does not fall."""
FAMILY_EPISODES = 60
"""Episodes of a family on either side of a comparison: siblings of one task are alike, and this may be ten tasks."""
UNSCORED = 0.1
"""Share of trajectories without a reward."""


def _reward_range(records: Records) -> Reading | None:
    if records.policy("kl_place") == "reward":
        return None  # a reward that pays for a whole trajectory's distance may be any number
    found = [(i, abs(value)) for name in ("reward_low", "reward_high", "reward") for i, value in records.points(name)]
    return highest(sorted(found), REWARD_RANGE, "a reward of size {value} (limit {limit})")


def _advantage_range(records: Records) -> Reading | None:
    trained = {i for i, value in records.points("trained_trajectories") if value > 0}
    points = [(i, value) for i, value in records.points("advantage_spread") if i in trained]
    say = "advantages spread by {value} (limit {limit})"
    return lasting(points, ADVANTAGE_RANGE, say) or lasting(points, ADVANTAGE_FLOOR, say, below=True)


def _reversed(records: Records) -> Reading | None:
    points = [(i, -value) for i, value in records.points("advantage_reward")]
    say = "advantage and reward of siblings correlate at minus {value} (limit: minus {limit})"
    return lasting(points, REVERSED, say)


def _backwards(records: Records) -> Reading | None:
    """Read whether tokens move against their advantages, over the run: a mean below 0 by three standard errors."""
    values = [value for _, value in records.points("followed")]
    if len(values) < 2 * WINDOW:
        return None
    error = stdev(values) / len(values) ** 0.5
    if fmean(values) >= -3.0 * error:
        return None
    text = f"log-probs moved against the advantages, by {-fmean(values):.2g} nats a token (standard error {error:.2g})"
    return Reading(f"{text} over {len(values)} iterations", records.points("followed")[0][0])


def _unrelated(records: Records) -> Reading | None:
    points = records.points("reward_outcome")
    say = "reward and verified outcome of siblings correlate at {value} (limit {limit})"
    return lasting(points, UNRELATED, say, below=True, least=2)


def _paid_without_success(records: Records) -> Reading | None:
    before, after = records.start("reward"), records.now("reward")
    start, now = records.start("success"), records.now("success")
    if before is None or after is None or start is None or now is None:
        return None
    rise, gain = after - before, now - start
    if rise < PAID_MORE or gain >= 0.25 * rise:
        return None
    onset = next((i for i, value in records.points("reward") if value >= before + 0.5 * rise), 0)
    text = (
        f"mean reward {short(after)} now, {short(before)} at the start; success {now:.0%} now, {start:.0%} at the start"
    )
    return Reading(text, onset, beyond(rise, PAID_MORE))


def _fooled(records: Records) -> Reading | None:
    """Read what the reward model's own probes say: kinds of forged transcript that it likes as well as honest ones."""
    probes = records.metrics.get("reward_model", {}).get("resistance")
    if not isinstance(probes, Mapping) or not float(records.policy("reward_model_weight", 0.0)):
        return None
    weak = {
        str(kind): float(found["accuracy"])
        for kind, found in probes.items()
        if isinstance(found, Mapping) and isinstance(found.get("accuracy"), int | float) and found["accuracy"] < 0.5
    }
    if not weak or not records.metrics.get("reward_model", {}).get("trusted"):
        return None
    kind = min(weak, key=weak.__getitem__)
    return Reading(f"the reward model prefers honest work to {kind} in {weak[kind]:.0%} of its probes", 0)


def _masked(records: Records) -> Reading | None:
    for words in ("tokens were not sampled by the policy", "the mask of actions marks"):
        if words in records.reason:
            return Reading(f"stopped: {records.reason}", len(records.history), 1.0)
    points = records.points("trained_share")
    return lasting(points, TRAINED_SHARE, "{value} of the sampled tokens are trained (limit {limit})", below=True)


def _shares(records: Records, part: Any) -> list[tuple[int, float]]:
    found = []
    for i, record in enumerate(records.history):
        numbers = [record.get(name) for name in ("groups", "filtered_groups", "groups_of_one_outcome")]
        if all(isinstance(value, int) for value in numbers) and numbers[0]:
            share = part(*numbers)
            found += [] if share is None else [(int(record.get("iteration", i)), share)]
    return found


def _flat(records: Records) -> Reading | None:
    points = _shares(records, lambda groups, filtered, alike: min(1.0, filtered / groups))
    return lasting(points, FLAT, "{value} of the groups without a difference in reward (limit {limit})", least=WINDOW)


def _alike(records: Records) -> Reading | None:
    """Read groups that hold both successes and failures, and one reward."""

    def mixed_and_flat(groups: int, filtered: int, alike: int) -> float | None:
        mixed = groups - alike
        return max(0, filtered - alike) / mixed if mixed > 0 else None

    points = _shares(records, mixed_and_flat)
    say = "{value} of the groups with both outcomes have one reward (limit {limit})"
    return lasting(points, ALIKE, say, least=2)


def _one_outcome(records: Records, *, success: bool) -> Reading | None:
    now = records.now("success")
    if now is None or (now < validity.SOLVED if success else now > HOPELESS):
        return None
    points = records.points("success")
    onset = next(
        i for i, value in points if (value >= validity.SOLVED if success else value <= HOPELESS) or i == points[-1][0]
    )
    return Reading(f"success {now:.0%} in the last iterations", onset)


def _zero_tool(records: Records) -> Reading | None:
    told = [r for r in records.history if isinstance(r.get("successes"), int)]
    zero = [round((r.get("zero_tool_share") or 0.0) * r["successes"]) for r in told]
    reason = validity.zero_tool_collapse(zero, [r["successes"] for r in told])
    if reason is not None:
        return Reading(reason, len(told) // 2)
    share = records.now("zero_tool_share")
    return None if share is None or share < 0.5 else Reading(f"{share:.0%} of the successes used no tool", 0)


def _unscored(records: Records) -> Reading | None:
    found = []
    for i, value in records.points("unscored"):
        episodes = records.history[min(i, len(records.history) - 1)].get("episodes")
        if isinstance(episodes, int) and episodes:
            found.append((i, value / episodes))
    reading = lasting(found, UNSCORED, "{value} of the episodes have no reward (limit {limit})")
    if reading is None:
        return None
    kinds: dict[str, int] = {}
    for record in records.history:
        for kind, count in (record.get("scoring_failures") or {}).items():
            kinds[kind] = kinds.get(kind, 0) + (0 if kind.startswith("n/a ") else count)
    most = max(kinds, key=kinds.__getitem__, default="")
    return Reading(f"{reading.text}; most often {most}" if most else reading.text, reading.iteration, reading.strength)


def families_of(records: Records) -> dict[str, list[tuple[int, Record]]]:
    """Return (iteration, what was played of it) by family."""
    found: dict[str, list[tuple[int, Record]]] = {}
    for place, record in enumerate(records.history):
        told = record.get("families")
        for family, numbers in told.items() if isinstance(told, Mapping) else ():
            if isinstance(numbers, Mapping):
                found.setdefault(str(family), []).append((int(record.get("iteration", place)), numbers))
    return found


def starved_families(records: Records) -> dict[str, tuple[float, float]]:
    """Return the families that get far less than their part: (share of the episodes, share of `val`)."""
    found = families_of(records)
    played = {family: sum(int(n.get("episodes") or 0) for _, n in rows) for family, rows in found.items()}
    wanted = {family: max(int(n.get("held_out") or 0) for _, n in rows) for family, rows in found.items()}
    episodes, held_out = sum(played.values()), sum(wanted.values())
    if not episodes or not held_out:
        return {}
    known = [family for family in found if wanted[family] >= FEW_TASKS]
    shares = {family: (played[family] / episodes, wanted[family] / held_out) for family in known}
    return {family: (got, fair) for family, (got, fair) in shares.items() if got < STARVED * fair}


def _starved(records: Records) -> Reading | None:
    found = starved_families(records)
    if not found:
        return None
    family, (got, fair) = max(found.items(), key=lambda entry: entry[1][1] - entry[1][0])
    limit = STARVED * fair
    text = f"family {family}: {got:.1%} of the episodes, {fair:.0%} of the held-out tasks (limit {limit:.1%})"
    return Reading(text, 0, short_of(got, limit))


def forgotten_family(records: Records) -> tuple[str, float, float, int] | None:
    """Return (family, success at first, success now, iteration) of the one that lost most while others did not."""
    worst: tuple[str, float, float, int] | None = None
    others: dict[str, float] = {}
    for family, rows in families_of(records).items():
        known = [(i, int(n["episodes"]), float(n["success"])) for i, n in rows if n.get("success") is not None]
        first, last = _pooled(known), _pooled(known[::-1])
        if first is None or last is None or first[1] + last[1] > len(known):
            continue
        others[family] = last[0] - first[0]
        fell = first[0] - last[0]
        if last[0] < FORGOTTEN * first[0] and fell > FORGOTTEN_POINTS and (worst is None or fell > worst[1] - worst[2]):
            worst = (family, first[0], last[0], known[-last[1]][0])
    rest = [change for family, change in others.items() if worst is None or family != worst[0]]
    return worst if worst is not None and rest and fmean(rest) > -0.05 else None


def _pooled(known: list[tuple[int, int, float]]) -> tuple[float, int] | None:
    """Return success over the first entries that hold `FAMILY_EPISODES`, and how many entries these are."""
    episodes, successes = 0, 0.0
    for index, (_, count, share) in enumerate(known):
        episodes, successes = episodes + count, successes + count * share
        if episodes >= FAMILY_EPISODES:
            return successes / episodes, index + 1
    return None


def _forgotten(records: Records) -> Reading | None:
    found = forgotten_family(records)
    if found is None:
        return None
    family, before, now, onset = found
    text = f"family {family}: {before:.0%} success at first, {now:.0%} now, while the others' did not fall"
    return Reading(text, onset, short_of(now, FORGOTTEN * before))


REWARDS: Mapping[str, Sign] = {
    "reward_range": Sign("rewards of another size than the loss is made for", _reward_range, needs=("reward",)),
    "advantage_range": Sign("advantages far too large, or too small", _advantage_range, needs=("advantage_spread",)),
    "reversed": Sign("advantages have the wrong sign", _reversed, needs=("advantage_reward",)),
    "backwards": Sign(
        "steps go against the advantages",
        _backwards,
        needs=("followed",),
        applies=lambda r: int(r.policy("minibatches", 1) or 1) > 1,
    ),
    "unrelated": Sign("the reward follows something else than the verdict", _unrelated, needs=("reward_outcome",)),
    "paid_without_success": Sign(
        "the reward rises and success does not", _paid_without_success, needs=("reward", "success")
    ),
    "fooled": Sign(
        "the reward model can be pleased by forged work", _fooled, applies=lambda r: "reward_model" in r.metrics
    ),
    "masked": Sign("the loss is on other tokens than those that were sampled", _masked, needs=("trained_share",)),
    "flat": Sign("hardly a group carries a signal", _flat, needs=("filtered_groups",)),
    "alike": Sign(
        "siblings that differ get the same reward", _alike, needs=("filtered_groups", "groups_of_one_outcome")
    ),
    "solved": Sign("the tasks are solved", lambda records: _one_outcome(records, success=True), needs=("success",)),
    "hopeless": Sign(
        "the tasks are never solved", lambda records: _one_outcome(records, success=False), needs=("success",)
    ),
    "zero_tool": Sign(validity.ALARMS["zero_tool"], _zero_tool, needs=("successes",)),
    "unscored": Sign("rewards are missing", _unscored, needs=("unscored",)),
    "starved": Sign("a family of tasks is hardly played", _starved, needs=("families",)),
    "forgotten": Sign("a family of tasks is forgotten", _forgotten, needs=("families",)),
}
