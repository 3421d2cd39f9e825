"""Signs in how the policy moves: its steps, its distance from the start, its entropy, its success.

Limits that also raise an alarm while a run goes on are those of `algorithms.validity`; all others are ours, between
what the injected faults and the healthy runs of `docs/diagnosis.md` have shown.
"""

from collections.abc import Mapping

from geartrain.algorithms import validity
from geartrain.diagnosis.reading import Points, Reading, Sign, beyond, highest, lasting, short_of
from geartrain.diagnosis.records import WINDOW, Records

FAR_STEP = 0.1
"""Nats per token by which one iteration's steps may move the policy; trainers with a target take 0.01 to 0.03."""
CLIPPED = 0.3
"""Share of the tokens of later minibatches outside the trust region."""
NARROW = 1e-3
"""Nats of movement in spite of which so many tokens are clipped: then the region is narrow, not the step far."""
DRIFTED = 0.2
"""Nats per token from the warm start; runs that paid for it stayed below."""
LARGE_GRADIENT = 1e4
"""Gradient norm over its clip: what is left of it is lost in Adam's epsilon."""
STILL = 0.01
"""Root mean square of the weights' movement, over the sum of the learning rates: Adam can go 1."""
UNGAINED, UNGAINED_ITERATIONS = 0.01, 10
"""Gain in success, training and held out, that is none; and how many iterations it takes to say so."""
GAP = 0.15
"""Rise of success on training tasks above that on `val`."""


def steps_of(records: Records) -> int:
    """Return the optimiser steps of an iteration."""
    return int(records.policy("minibatches", 1) or 1)


def several(records: Records) -> bool:
    """Return whether an iteration takes more than one step, so that its own tokens tell how far it moves."""
    return steps_of(records) > 1


def clipped_of_moved(records: Records) -> Points:
    """Return the share of clipped tokens among those of later minibatches; in the first none can be."""
    share = steps_of(records) / max(1, steps_of(records) - 1)
    return [(iteration, value * share) for iteration, value in records.points("clip_fraction")]


def drift(records: Records) -> Points:
    """Return the KL to the warm start, paid for or not."""
    return records.points("kl") or records.points("kl_unpaid")


def _clipped(records: Records) -> Reading | None:
    if records.policy("ratio") == "sequence":
        return None  # a share of rows, whose region is meant to be narrow
    return highest(clipped_of_moved(records), CLIPPED, "{value} of the tokens clipped after a step (limit {limit})")


def _narrow(records: Records) -> Reading | None:
    """Read tokens that are clipped though the policy has hardly moved."""
    moved = dict(records.points("update_kl"))
    near = [(i, value) for i, value in clipped_of_moved(records) if moved.get(i, NARROW) < NARROW]
    if records.policy("ratio") == "sequence" or len(near) < WINDOW:
        return None
    say = "{value} of the tokens clipped after a step (limit {limit}) that moved the policy by less than 0.001 nats,"
    return highest(near, CLIPPED, say)


def _lost_gradient(records: Records) -> Reading | None:
    clip = float(records.policy("gradient_clip", 1.0))
    ratios = [(i, value / clip) for i, value in records.points("gradient_norm")]
    return lasting(ratios, LARGE_GRADIENT, f"gradient norm {{value}} times its clip of {clip:g} (limit {{limit}})")


def _still(records: Records) -> Reading | None:
    rates, moved = dict(records.points("learning_rate")), records.points("model_distance_rms")
    total, found = 0.0, []
    for iteration, value in moved:
        total += rates.get(iteration, 0.0) * steps_of(records)
        if total > 0:
            found.append((iteration, value / total))
    return lasting(
        found,
        STILL,
        "the weights moved {value} of what the learning rate allows (limit {limit})",
        below=True,
        least=WINDOW,
    )


def _fell(records: Records) -> Reading | None:
    start, now = records.start("success"), records.now("success")
    if start is None or now is None:
        return None
    lost = validity.LOST_SUCCESS * start
    if now > lost or start - now < validity.LOST_SUCCESS_POINTS:
        return None
    onset = next(i for i, value in records.points("success") if value <= lost)
    text = f"success on training tasks {now:.0%} now, {start:.0%} at the start"
    return Reading(text, onset, short_of(now, lost))


def _held_out_fell(records: Records) -> Reading | None:
    found = records.validations()
    reason = validity.lost_success([value for _, value in found])
    if reason is None:
        return None
    lost = validity.LOST_SUCCESS * found[0][1]
    onset = next((done for done, value in found[1:] if value < lost), found[-1][0])
    return Reading(reason, onset, short_of(found[-1][1], lost))


def _entropy(records: Records, factor: float) -> Reading | None:
    points, start = records.points("entropy"), records.start("entropy")
    if start is None or start <= 0:
        return None
    say = "entropy {value} nats a token, {start} at the start (limit {limit})"
    return lasting(points, factor * start, say, below=factor < 1.0, least=4)


def _errors(records: Records) -> Reading | None:
    start, now = records.start("invalid_calls"), records.now("invalid_calls")
    if start is None or now is None or now <= validity.LOST_TOOLS or now - start <= validity.LOST_TOOLS_RISE:
        return None
    onset = next(i for i, value in records.points("invalid_calls") if value > validity.LOST_TOOLS)
    return Reading(
        f"{now:.0%} of the calls answered by errors, {start:.0%} at the start", onset, beyond(now, validity.LOST_TOOLS)
    )


def _lengths(records: Records) -> Reading | None:
    for unit in ("turns", "tokens"):
        points = records.points(unit)
        reason = validity.length_drift(unit, [value for _, value in points])
        if reason is not None:
            return Reading(reason, points[-WINDOW][0])
    return None


def _no_gain(records: Records) -> Reading | None:
    """Read a run that is no better for its training, neither on its own tasks nor on others."""
    start, now, found = records.start("success"), records.now("success"), records.validations()
    if start is None or now is None or len(records.history) < UNGAINED_ITERATIONS or now >= validity.SOLVED:
        return None
    later = [value for _, value in found[1:]]
    if now - start > UNGAINED or (found and later and max(later) - found[0][1] > UNGAINED):
        return None
    held = f", {max(later):.0%} at best on held-out tasks, {found[0][1]:.0%} before" if later else ""
    return Reading(f"success {now:.0%} now, {start:.0%} at the start{held}", 0)


def _gap(records: Records) -> Reading | None:
    start, now, found = records.start("success"), records.now("success"), records.validations()
    if start is None or now is None or len(found) < 3:
        return None
    held_out = (found[-1][1] + found[-2][1]) / 2 - found[0][1]
    gap = (now - start) - held_out
    if gap < GAP or held_out > 0.25 * (now - start) or now <= start:
        return None
    text = (
        f"success on training tasks rose by {100 * (now - start):.0f} points, on held-out tasks by {100 * held_out:.0f}"
    )
    return Reading(text, found[1][0], beyond(gap, GAP))


def _diverged(records: Records) -> Reading | None:
    skipped = [(i, value) for i, value in records.points("skipped_steps") if value > 0]
    if "training diverged" in records.reason:
        return Reading(f"stopped: {records.reason}", skipped[0][0] if skipped else len(records.history), 1.0)
    return (
        Reading(f"{sum(v for _, v in skipped):.0f} optimiser steps skipped: not finite", skipped[0][0])
        if skipped
        else None
    )


def _mismatch(records: Records) -> Reading | None:
    if "the sampler and the trainer disagree" in records.reason:
        return Reading(f"stopped: {records.reason}", len(records.history), 1.0)
    return highest(records.points("mismatch"), 1e-3, "sampler and trainer differ by {value} nats (limit {limit})")


STEPS: Mapping[str, Sign] = {
    "far_steps": Sign(
        "the steps of one iteration move the policy far",
        lambda records: highest(
            records.points("update_kl"), FAR_STEP, "steps moved the policy by {value} nats a token (limit {limit})"
        ),
        needs=("update_kl",),
        applies=several,
    ),
    "clipped": Sign("many tokens leave the trust region", _clipped, needs=("clip_fraction",), applies=several),
    "narrow": Sign(
        "tokens are clipped that have hardly moved", _narrow, needs=("clip_fraction", "update_kl"), applies=several
    ),
    "lost_gradient": Sign("the gradient is clipped to nothing", _lost_gradient, needs=("gradient_norm",)),
    "still": Sign("the weights hardly move", _still, needs=("model_distance_rms", "learning_rate")),
    "drifted": Sign(
        "the policy is far from the warm start",
        lambda records: lasting(drift(records), DRIFTED, "KL to the warm start {value} nats a token (limit {limit})"),
    ),
    "success_fell": Sign("training tasks are solved less often than at the start", _fell, needs=("success",)),
    "held_out_fell": Sign(validity.ALARMS["held_out"], _held_out_fell),
    "entropy_low": Sign(
        "the policy no longer explores", lambda records: _entropy(records, validity.DECIDED), needs=("entropy",)
    ),
    "entropy_high": Sign(
        "the policy is sure of nothing", lambda records: _entropy(records, validity.UNDECIDED), needs=("entropy",)
    ),
    "errors": Sign(validity.ALARMS["tools"], _errors, needs=("invalid_calls",)),
    "lengths": Sign("episodes have become far longer or shorter", _lengths, needs=("turns",)),
    "no_gain": Sign("nothing is learned", _no_gain, needs=("success",)),
    "gap": Sign("what is learned does not reach other tasks", _gap, needs=("success",)),
    "diverged": Sign("loss or gradient is not finite", _diverged),
    "mismatch": Sign("the trainer's log-probs are not the sampler's", _mismatch),
}
