"""The clipped surrogate and the KL penalty: masked sums over one denominator.

Source: PPO's clipping, arXiv:1707.06347; one advantage per token from a group:
GRPO, arXiv:2402.03300; a higher upper clip: DAPO, arXiv:2503.14476. The
denominator is that of the whole optimiser step and is always passed in: a mean
taken here would depend on how a batch is split.

Legend: B rows, T positions; position t of every tensor speaks of token t.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from geartrain.algorithms.divergence import Direction, Sampled, categorical_divergence, k3, sampled_kl, with_score
from geartrain.algorithms.masked import keep, masked_mean, masked_sum

MAX_LOG_RATIO = 20.0
"""Log ratios are cut here: exp of more is no number to train on, and carries no gradient beyond."""


def clipped_surrogate(
    logprob_BT: Tensor,
    behaviour_BT: Tensor,
    advantage_BT: Tensor,
    mask_BT: Tensor,
    *,
    denominator: float,
    clip_low: float,
    clip_high: float,
    whole_sequence: bool = False,
) -> Tensor:
    """Return -sum(min(ratio A, clip(ratio, 1 - clip_low, 1 + clip_high) A)) / denominator, a scalar.

    Args:
        logprob_BT: policy's log-prob of each token, with gradient.
        behaviour_BT: sampler's log-prob of the same token at the same temperature.
        advantage_BT: the weighted advantage; detached here.
        mask_BT: bool, trained positions; anything may lie elsewhere.
        denominator: of the whole optimiser step.
        clip_low: how far the ratio may fall before a negative advantage stops pushing.
        clip_high: how far it may rise before a positive one does.
        whole_sequence: one ratio per row, see `log_ratio`.
    """
    ratio_BT = log_ratio(logprob_BT, behaviour_BT, mask_BT, whole_sequence=whole_sequence).exp()
    advantage_BT = keep(advantage_BT.detach(), mask_BT)
    clipped_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -masked_sum(torch.minimum(ratio_BT * advantage_BT, clipped_BT * advantage_BT), mask_BT) / denominator


def kl_penalty(
    logprob_BT: Tensor,
    reference_BT: Tensor,
    mask_BT: Tensor,
    *,
    denominator: float,
    weight_BT: Tensor | None = None,
    estimator: Sampled = "k3",
) -> Tensor:
    """Return sum(weight * estimate) / denominator of KL(policy || reference), with the gradient of the KL itself.

    Args:
        logprob_BT: policy's log-prob of each token, with gradient.
        reference_BT: reference's log-prob of the same token; detached here.
        mask_BT: bool, trained positions; anything may lie elsewhere.
        denominator: of the whole optimiser step.
        weight_BT: of each token; detached here, None weighs all alike. `masked.row_share` for a mean over rows; the
            ratio to the sampler, without which the penalty is that of the policy only while both are the same. The
            surrogate needs no such argument: a positive weight folds into its advantage, and here there is none.
        estimator: see `divergence`.
    """
    logprob_BT, reference_BT = keep(logprob_BT, mask_BT), keep(reference_BT.detach(), mask_BT)
    penalty_BT = sampled_kl(logprob_BT, reference_BT, estimator)
    if estimator != "k2":  # the one whose own gradient is that of the KL
        penalty_BT = with_score(penalty_BT, logprob_BT)
    return full_kl_penalty(penalty_BT, mask_BT, denominator=denominator, weight_BT=weight_BT)


def full_kl_penalty(kl_BT: Tensor, mask_BT: Tensor, *, denominator: float, weight_BT: Tensor | None = None) -> Tensor:
    """Return sum(weight * kl) / denominator of a divergence that has its own gradient, see `scoring.token_logprobs`.

    Args:
        kl_BT: KL(policy || reference) over the vocabulary at each position, with gradient.
        mask_BT: bool, trained positions; anything may lie elsewhere.
        denominator: of the whole optimiser step.
        weight_BT: of each token; detached here, None weighs all alike. No ratio to the sampler: whichever token was
            sampled, the divergence at its position is the same.
    """
    penalty_BT = keep(kl_BT, mask_BT)
    if weight_BT is not None:
        penalty_BT = penalty_BT * keep(weight_BT.detach(), mask_BT)
    return masked_sum(penalty_BT, mask_BT) / denominator


def kl_as_reward(kl_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Return what a reward is lowered by where the KL is paid in rewards: minus an estimate; 0 at masked positions.

    With k1 its expectation's policy gradient is that of -KL; of other estimators, see `divergence`. Detached: a
    reward has no gradient. Masked before anything is summed: an observation's log-probs must not reach a return
    (rl-faults B21).
    Source: PPO for language models, arXiv:1909.08593, with k1.
    """
    return keep(-kl_BT.detach(), mask_BT)


def entropy_bonus(entropy_BT: Tensor, mask_BT: Tensor, *, denominator: float) -> Tensor:
    """Return sum(entropy) / denominator; *subtract* it from a loss to keep the policy undecided. Source: PPO."""
    return masked_sum(entropy_BT, mask_BT) / denominator


def distillation(
    student_BTK: Tensor,
    teacher_BTK: Tensor,
    pull_BT: Tensor,
    mask_BT: Tensor,
    *,
    denominator: float,
    direction: Direction,
) -> Tensor:
    """Return sum(pull * divergence(student, teacher)) / denominator, with gradient to the student alone.

    Args:
        student_BTK: log-probs over a support and the rest, see `saliency.with_tail`; with gradient.
        teacher_BTK: the same of the teacher; detached here.
        pull_BT: how hard each token is pulled; detached here.
        mask_BT: bool, trained positions.
        denominator: of the whole optimiser step.
        direction: "reverse" is KL(student || teacher).
    """
    # at masked positions both are even: a divergence of garbage would be NaN before it is masked
    even = -math.log(student_BTK.shape[-1])
    student_BTK = torch.where(mask_BT[..., None], student_BTK, even)
    teacher_BTK = torch.where(mask_BT[..., None], teacher_BTK.detach(), even)
    divergence_BT = categorical_divergence(student_BTK, teacher_BTK, direction)
    return masked_sum(keep(pull_BT.detach(), mask_BT) * divergence_BT, mask_BT) / denominator


OF_MOVED = ("update_kl", "followed")
"""What is counted over tokens alone that were scored after a step."""


@dataclass
class LossTally:
    """Metrics of an iteration, pooled over tokens: sums and counts, never means of means."""

    sums: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    nonfinite: int = 0
    """Tokens whose log-prob or advantage is no number; they are in none of the sums."""
    moved: int = 0
    """Tokens that were scored after a step had changed the policy that sampled them."""

    @torch.no_grad()
    def add(
        self,
        logprob_BT: Tensor,
        behaviour_BT: Tensor,
        advantage_BT: Tensor,
        mask_BT: Tensor,
        *,
        clip_low: float,
        clip_high: float,
        reference_BT: Tensor | None = None,
        kl_BT: Tensor | None = None,
        entropy_BT: Tensor | None = None,
        whole_sequence: bool = False,
        moved: bool = False,
    ) -> None:
        """Count one micro-batch; arguments as those of the losses.

        `kl_BT` is the divergence where it is known. `moved` says that the policy is not the one that sampled any more:
        such tokens tell how far the steps before have moved it (`update_kl`, an estimate of KL(sampler || policy) in
        nats), and whether they moved the way that advantages push (`followed`, the mean of sign(A) times log ratio).
        """
        finite_BT = torch.isfinite(logprob_BT) & torch.isfinite(advantage_BT)
        self.nonfinite += int((mask_BT & ~finite_BT).sum())
        mask_BT = mask_BT & finite_BT
        log_ratio_BT = log_ratio(logprob_BT, behaviour_BT, mask_BT, whole_sequence=whole_sequence)
        ratio_BT = log_ratio_BT.exp()
        pushed_up_BT = (advantage_BT > 0) & (ratio_BT > 1.0 + clip_high)
        pushed_down_BT = (advantage_BT < 0) & (ratio_BT < 1.0 - clip_low)
        values = {"clip_fraction": (pushed_up_BT | pushed_down_BT).float(), "ratio_mean": ratio_BT}
        if kl_BT is not None:
            values["kl"] = kl_BT
        elif reference_BT is not None:
            values["kl"] = k3(keep(logprob_BT, mask_BT), keep(reference_BT, mask_BT))
        if entropy_BT is not None:
            values["entropy"] = entropy_BT
        if moved:
            values["update_kl"] = torch.expm1(log_ratio_BT) - log_ratio_BT
            values["followed"] = advantage_BT.sign() * log_ratio_BT
            self.moved += int(mask_BT.sum())
        for name, value_BT in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(masked_sum(value_BT, mask_BT))
        top = float(keep(ratio_BT, mask_BT).max())
        self.maxima["ratio_max"] = max(self.maxima.get("ratio_max", 0.0), top)
        self.tokens += int(mask_BT.sum())

    def merge(self, other: "LossTally") -> None:
        """Count what another tally has counted."""
        for name, total in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + total
        for name, top in other.maxima.items():
            self.maxima[name] = max(self.maxima.get(name, 0.0), top)
        self.tokens += other.tokens
        self.nonfinite += other.nonfinite
        self.moved += other.moved

    def summary(self) -> Mapping[str, float]:
        """Return means over tokens, of some over those that had moved, maxima, and how many tokens were no numbers."""
        counts = {name: self.moved if name in OF_MOVED else self.tokens for name in self.sums}
        means = {name: total / max(1, counts[name]) for name, total in self.sums.items()}
        return {**means, **self.maxima, "nonfinite": self.nonfinite}


@torch.no_grad()
def mismatch(logprob_BT: Tensor, behaviour_BT: Tensor, mask_BT: Tensor) -> float:
    """Return the largest difference between trainer's and sampler's log-prob of a trained token, in nats.

    Before the first update of an iteration both are the same weights, so it measures nothing but the
    difference between two implementations.
    """
    difference_BT = keep((logprob_BT - behaviour_BT).abs(), mask_BT)
    return float(difference_BT.max()) if difference_BT.numel() else math.nan


def log_ratio(logprob_BT: Tensor, behaviour_BT: Tensor, mask_BT: Tensor, *, whole_sequence: bool = False) -> Tensor:
    """Return log policy - log behaviour, [B, T], 0 at masked positions, within +-`MAX_LOG_RATIO`.

    With `whole_sequence` every token has the mean over its row, and the gradient
    of its own log-prob: summed over a row, that is the gradient of the row's
    length-normalised ratio times its length (GSPO, arXiv:2507.18071, its token form).
    """
    token_BT = keep(logprob_BT, mask_BT) - keep(behaviour_BT.detach(), mask_BT)
    if whole_sequence:
        mean_B1 = masked_mean(token_BT.detach(), mask_BT, dim=1)[:, None]
        token_BT = keep(mean_B1 + token_BT - token_BT.detach(), mask_BT)
    return token_BT.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
