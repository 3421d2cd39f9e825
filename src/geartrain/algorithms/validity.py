"""Whether a run is still about what it claims to be about; every function returns a reason, or None.

Two kinds. *Faults* make a run worthless, whatever its success: weights that never weigh, features that say nothing,
a loss on tokens that the policy did not write, a gradient through the credit, weights outside their bounds. *Alarms*
are drifts that a rising success hides: successes without a tool call, calls that no tool takes, longer or shorter
episodes, an entropy that collapses or explodes, a reward that rises while held-out tasks are lost. Such an alarm
compares the latest iterations with the first ones and needs enough of both. Another is a policy far from its warm
start. Two more are about credit that is stuck: a mixture that stays even, a granularity that is the same
everywhere, in `INERT_ITERATIONS` in a row.

Source: zero-tool collapse: SGCD, arXiv:2606.12634, section 3; all else, and every limit: ours.

Legend: N trajectories, T positions, I iterations.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile

import torch
from torch import Tensor

ALARMS: Mapping[str, str] = {
    "zero_tool": "It succeeds without its tools: it guesses, or has found a way around the work.",
    "held_out": "Training does harm: tasks that it does not train on are solved half as often as before, or less. The "
    "weights that were best on them are kept, which may be those of the start.",
    "hacking": "The reward rises while tasks that it does not train on are lost: it pleases without doing the work. "
    "Look at what the best rewarded episodes do.",
    "tools": "It unlearns its tools: far more of its calls are answered by errors.",
    "turns": "Episodes take far more turns, or far fewer: it goes round in circles, or gives up early.",
    "tokens": "Episodes have become far longer or shorter, in tokens.",
    "entropy": "Near 0 it no longer explores, and siblings that all do the same teach nothing; far above the start it "
    "is sure of nothing.",
    "kl": "It is far from the warm start, token by token: it no longer writes what a model of language would. Raise "
    "policy.kl_coefficient or lower policy.learning_rate.",
    "mixture": "The network that mixes the grains has learned nothing: their weights stay even, as in `fixed_weights`. "
    "A teacher too close to the student explains nothing; see the method's grain_learning_rate and its teacher.",
    "granularity": "All turns count as equally coarse: what `granularity` goes by does not vary, so it weighs nothing.",
}
"""What each alarm means, by name; `training.watch.alarms` raises them."""
INERT_SPREAD = 1e-6
"""Standard deviation of W within trajectories below which it weighs nothing: rounding of float32."""
INERT_ITERATIONS = 5
"""Iterations in a row with inert weights that make a run plain GRPO; fewer may be batches without contrast."""
STUCK_EVEN = 0.005
"""Root mean square distance of grain weights from even below which a mixture has learned nothing."""
STUCK_GRANULARITY = 0.01
"""Standard deviation of granularity within an iteration below which it tells no turn from another."""
USELESS_CRITIC = 0.1
"""Correlation with labels of tasks not trained on below which a critic says nothing: a hundredth of their variance."""
BOUND_SLACK = 1e-5
"""What float32 may add to a bound."""
MIN_SUCCESSES = 30
"""Successes on either side of the comparison of zero-tool shares; the standard error of a share is below 0.1."""
ZERO_TOOL_LIMIT = 0.05
"""Share of successes without a tool call above which there may be an alarm; promotion's default limit."""
ZERO_TOOL_RISE = 0.2
"""How far the share must have risen besides: some tasks can be guessed from the start. Twice its standard error."""
LOST_TOOLS, LOST_TOOLS_RISE = 0.3, 0.2
"""Share of calls answered by an error above which there may be an alarm, and how far it must have risen besides."""
LOST_SUCCESS, LOST_SUCCESS_POINTS = 0.5, 0.1
"""Factor of the held-out success at the start, and how far it must have fallen besides: a small `val` wavers by less
over two validations."""
WINDOW = 3
"""Iterations that are averaged at the start and at the end, for lengths and entropies."""
LONGER, SHORTER = 2.0, 0.4
"""Factors of the mean length, in turns or tokens. A better policy takes a shorter way, so far less is asked of it."""
UNDECIDED, DECIDED = 3.0, 0.1
"""Factors of the mean entropy: explosion, collapse."""
HACKED_REWARD = 0.1
"""How far the mean reward must have risen for a fall of held-out success to be called hacking; a success earns 1."""
FAR = 1.0
"""Mean KL to the warm start in nats per token above which a policy is far from it: what it writes is e times likelier
to it than to the warm start, token by token."""
MAX_MISMATCH = 1e-3
"""Nats; in float32 the sampler's and the trainer's log-probs of one token differ by 1e-5."""
MAX_EMPTY_IN_A_ROW = 5
"""Iterations in a row without a group that carries a signal that end a run."""
SOLVED = 0.9
"""Success above which a batch without signal is no fault."""


def inert_iterations(spread_I: Sequence[float]) -> int:
    """Return in how many of the last iterations in a row W told no token of a trajectory from another. Source: ours.

    Args:
        spread_I: as `inert_weights` takes it.
    """
    return sum(1 for _ in takewhile(lambda spread: spread <= INERT_SPREAD, reversed(spread_I)))


def inert_weights(spread_I: Sequence[float]) -> str | None:
    """Return why a weighing recipe weighs nothing: no spread of W in any of the last iterations. Source: ours.

    Args:
        spread_I: standard deviation of W within trajectories, of the trained iterations in which W should not be 1.
    """
    if inert_iterations(spread_I) < INERT_ITERATIONS:
        return None
    return (
        f"no weight W told one token of a trajectory from another in {INERT_ITERATIONS} iterations: this is plain GRPO"
    )


def silent_features(name: str, feature: Tensor) -> str | None:
    """Return why features say nothing: all 0, or not finite. Source: ours.

    Args:
        name: what they are, for the message.
        feature: any shape.
    """
    if not bool(torch.isfinite(feature).all()):
        return f"{name}: {int((~torch.isfinite(feature)).sum())} of {feature.numel()} values are not finite"
    if feature.numel() and not bool(feature.any()):
        return f"{name}: all {feature.numel()} values are 0, from which nothing can be learned"
    return None


def trains_what_was_not_sampled(loss_T: Tensor, action_T: Tensor) -> str | None:
    """Return why a loss mask is wrong: it holds tokens of a prompt or an observation (rl-faults B6). Source: ours.

    Args:
        loss_T: bool, trained positions.
        action_T: bool, positions that the policy sampled.
    """
    strange = int((loss_T & ~action_T).sum())
    if not strange:
        return None
    return f"{strange} of {int(loss_T.sum())} trained tokens were not sampled by the policy: prompts or observations"


def marks_other_tokens(action_T: Tensor, ids_T: Tensor, sampled: Sequence[int]) -> str | None:
    """Return why an action mask is wrong: what it marks are not the ids that the turns say were sampled. Source: ours.

    Args:
        action_T: bool, positions that the policy sampled.
        ids_T: int64, all ids.
        sampled: the ids of all actions, in their order, as they were recorded.
    """
    marked = ids_T[action_T]
    if marked.tolist() == list(sampled):
        return None
    return f"the mask of actions marks {len(marked)} tokens that are not the {len(sampled)} that the policy sampled"


def carries_gradient(values: Mapping[str, Tensor]) -> str | None:
    """Return which inputs of the loss, all constants, require a gradient: credit must not be trained. Source: ours."""
    leaking = sorted(name for name, value in values.items() if value.requires_grad)
    return f"{', '.join(leaking)}: requires a gradient, so the loss would train the credit too" if leaking else None


def outside_bounds(weight_NT: Tensor, mask_NT: Tensor, *, low: float, high: float) -> str | None:
    """Return why weights are impossible: not finite, or outside [low, high] at a trained position. Source: ours."""
    weights = weight_NT[mask_NT]
    if not weights.numel():
        return None
    least, most = float(weights.min()), float(weights.max())
    if low - BOUND_SLACK <= least and most <= high + BOUND_SLACK:  # False for NaN
        return None
    return f"weights W from {least:.4g} to {most:.4g} leave their bounds {low:.4g} to {high:.4g}"


def zero_tool_collapse(zero_I: Sequence[int], success_I: Sequence[int]) -> str | None:
    """Return why successes have ceased to use tools: their share is above the limit and has risen.

    Latest iterations are pooled until they hold `MIN_SUCCESSES`, and so are the first; None while these overlap.
    Source: SGCD, arXiv:2606.12634, section 3; the rule: ours.

    Args:
        zero_I: successes without a tool call, per iteration.
        success_I: successes, per iteration.
    """
    first, last = _enough(success_I), _enough(success_I[::-1])
    if first is None or last is None or first + last > len(success_I):
        return None
    before = sum(zero_I[:first]) / sum(success_I[:first])
    now = sum(zero_I[-last:]) / sum(success_I[-last:])
    if now <= ZERO_TOOL_LIMIT or now - before <= ZERO_TOOL_RISE:
        return None
    return f"{now:.0%} of the successes used no tool, {before:.0%} at the start (zero-tool collapse)"


def lost_tools(invalid_I: Sequence[float]) -> str | None:
    """Return why the policy unlearns its tools: far more of its calls are answered by errors. Source: ours.

    Where no task can be solved without a tool, a collapse of tool use looks like this.

    Args:
        invalid_I: share of calls that were answered by an error, of each iteration.
    """
    pair = _start_and_now(invalid_I)
    if pair is None or pair[1] <= LOST_TOOLS or pair[1] - pair[0] <= LOST_TOOLS_RISE:
        return None
    return f"{pair[1]:.0%} of the calls were answered by errors, {pair[0]:.0%} at the start"


def lost_success(held_out_V: Sequence[float]) -> str | None:
    """Return why training does harm: held-out success stays below half of what it was at the start. Source: ours.

    A policy that hardly solves a task has not ten points to lose: one task more or less would raise the alarm.

    Args:
        held_out_V: success on `val` at each validation, the one before the first update included.
    """
    if len(held_out_V) < 3:
        return None
    start, now = held_out_V[0], sum(held_out_V[-2:]) / 2
    if now >= LOST_SUCCESS * start or start - now < LOST_SUCCESS_POINTS:
        return None
    return f"{now:.0%} success on held-out tasks in the last two validations, {start:.0%} before training"


def reward_hacking(reward_I: Sequence[float], held_out_V: Sequence[float]) -> str | None:
    """Return why the reward cannot be trusted: it has risen while held-out success has fallen. Source: ours.

    Args:
        reward_I: mean reward of each iteration.
        held_out_V: as `lost_success` takes it; success is the environment's own, which no reward can talk into it.
    """
    pair = _start_and_now(reward_I)
    if pair is None or len(held_out_V) < 3 or pair[1] - pair[0] <= HACKED_REWARD:
        return None
    start, now = held_out_V[0], sum(held_out_V[-2:]) / 2
    if start - now < LOST_SUCCESS_POINTS:
        return None
    return (
        f"the mean reward rose from {pair[0]:.2f} to {pair[1]:.2f}, while success on held-out tasks fell from "
        f"{start:.0%} to {now:.0%}"
    )


def distance(kl_I: Sequence[float]) -> str | None:
    """Return why a policy is far from its warm start: the KL of the last iterations. Source: ours.

    Args:
        kl_I: mean KL to the warm start in nats per sampled token, of each trained iteration that measured it.
    """
    now = sum(kl_I[-WINDOW:]) / WINDOW
    if len(kl_I) < WINDOW or now <= FAR:
        return None
    return f"{now:.2g} nats of KL to the warm start a token in the last {WINDOW} iterations (limit {FAR:g})"


def length_drift(name: str, length_I: Sequence[float]) -> str | None:
    """Return why episodes have become long or short, against the start. Source: ours.

    Args:
        name: of the unit, for the message: "turns", "tokens".
        length_I: mean per episode, of each iteration.
    """
    pair = _start_and_now(length_I)
    if pair is None or pair[0] <= 0 or SHORTER * pair[0] <= pair[1] <= LONGER * pair[0]:
        return None
    return f"{pair[1]:.1f} {name} an episode, {pair[0]:.1f} at the start"


def entropy_drift(entropy_I: Sequence[float]) -> str | None:
    """Return why the policy is too sure of itself, or no longer sure of anything, against the start. Source: ours.

    Args:
        entropy_I: mean entropy per sampled token in nats, of each trained iteration.
    """
    pair = _start_and_now(entropy_I)
    if pair is None or pair[0] <= 0 or DECIDED * pair[0] <= pair[1] <= UNDECIDED * pair[0]:
        return None
    kind = "collapse" if pair[1] < pair[0] else "explosion"
    return f"{pair[1]:.3g} nats of entropy a token, {pair[0]:.3g} at the start ({kind})"


def stuck_mixture(distance_I: Sequence[float]) -> str | None:
    """Return why a network that mixes grains is of no use: its weights stay even (GEAR-51). Source: ours.

    Args:
        distance_I: root mean square distance of the grains' weights from even, of each trained iteration.
    """
    if not _stays_below(distance_I, STUCK_EVEN):
        return None
    return f"the grains' weights were even in the last {INERT_ITERATIONS} iterations: the network has learned nothing"


def stuck_granularity(spread_I: Sequence[float]) -> str | None:
    """Return why granularity is of no use: it is the same for all turns. Source: ours.

    Args:
        spread_I: standard deviation of g over the trained tokens of each trained iteration.
    """
    if not _stays_below(spread_I, STUCK_GRANULARITY):
        return None
    return f"granularity told no turn from another in the last {INERT_ITERATIONS} iterations"


def _stays_below(value_I: Sequence[float], limit: float) -> bool:
    last = value_I[-INERT_ITERATIONS:]
    return len(last) == INERT_ITERATIONS and max(last) < limit


def _enough(count_I: Sequence[int]) -> int | None:
    """Return how many entries it takes from the start to hold `MIN_SUCCESSES`."""
    total = 0
    for index, count in enumerate(count_I):
        total += count
        if total >= MIN_SUCCESSES:
            return index + 1
    return None


def _start_and_now(value_I: Sequence[float]) -> tuple[float, float] | None:
    """Return the means of the first and of the last `WINDOW` values; None while they overlap."""
    if len(value_I) < 2 * WINDOW:
        return None
    return sum(value_I[:WINDOW]) / WINDOW, sum(value_I[-WINDOW:]) / WINDOW
