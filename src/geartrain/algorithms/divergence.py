"""Estimators of KL(policy || reference) from sampled tokens, the divergence itself, and entropy.

Samples come from the policy; `delta = log ref - log policy` at the sampled
token; `full` sums over the vocabulary. All values have the right order of
magnitude near the policy, the gradients differ (checked by enumeration in the
tests). As a reward an estimate is a number: its gradient is E[estimate * grad
log policy], and should be that of the KL. At one position:

    estimator   E[value]     E[gradient], alone   with_score   as a reward
    k1          exact        0                    exact        exact
    k2          2nd order    exact                wrong        grad E[k2] - grad KL
    k3          exact        KL(ref || policy)'s  exact        grad KL - grad KL(ref || policy)
    full        exact        exact                exact        0

Near the reference the last column of k2 and k3 is 0 to first order too: what
is paid then hardly holds the policy. Over several positions a reward also pays
for the states that an action leads to, rightly with every estimator whose value
is exact; a loss does not. So `full` as loss and as reward are the two parts of
the gradient of a whole trajectory's KL, and k1 as reward is their sum.

Source: J. Schulman, "Approximating KL divergence" (2020); k3 in GRPO:
arXiv:2402.03300; the score term: ours, after public trainers' fault reports; the
last column: ours, by enumeration.

Legend: `...` any shape; V vocabulary.
"""

from typing import Literal

import torch
from torch import Tensor

Direction = Literal["reverse", "forward", "jsd"]
"""Of a divergence from student p to teacher q: KL(p || q), KL(q || p), or the mean of both to their mixture."""


Sampled = Literal["k1", "k2", "k3"]
"""Estimators that look at the sampled token alone."""


def sampled_kl(logprob: Tensor, reference: Tensor, estimator: Sampled) -> Tensor:
    """Return an estimate of KL(policy || reference) at each sampled token. Shapes [...], [...] -> [...]."""
    return {"k1": k1, "k2": k2, "k3": k3}[estimator](logprob, reference)


def k1(logprob: Tensor, reference: Tensor) -> Tensor:
    """Return log policy - log ref: unbiased, may be negative. Shapes [...], [...] -> [...]."""
    return logprob - reference


def k2(logprob: Tensor, reference: Tensor) -> Tensor:
    """Return half the squared log ratio: biased value, exact gradient. Shapes [...], [...] -> [...]."""
    return 0.5 * (logprob - reference).square()


def k3(logprob: Tensor, reference: Tensor) -> Tensor:
    """Return exp(delta) - 1 - delta: unbiased and never negative. Shapes [...], [...] -> [...]."""
    delta = reference - logprob
    return torch.expm1(delta) - delta


def with_score(estimate: Tensor, logprob: Tensor) -> Tensor:
    """Return `estimate` with the missing term of its gradient: estimate * grad log policy.

    The sample itself depends on the policy, which automatic differentiation of
    the estimate alone does not see. The value is unchanged. Shapes [...], [...] -> [...].
    """
    return estimate * torch.exp(logprob - logprob.detach())


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy in nats of softmax(logits). Shapes [..., V] -> [...]."""
    logprob = torch.log_softmax(logits, dim=-1)
    return -(logprob.exp() * logprob).sum(-1)


def categorical_divergence(student: Tensor, teacher: Tensor, direction: Direction) -> Tensor:
    """Return the exact divergence of two distributions in nats, with gradient to both; detach what is fixed.

    "reverse" seeks the teacher's modes, "forward" covers them, "jsd" is bounded by log 2.
    Entries of probability 0 count 0 where the other is 0 too.

    Shapes [..., V], [..., V] log-probs -> [...].
    Source: OPSD, arXiv:2601.18734, compares the three; the article on GEAR names one and codes another.
    """
    if direction == "reverse":
        return _relative(student, teacher)
    if direction == "forward":
        return _relative(teacher, student)
    middle = torch.logaddexp(student, teacher) - torch.log(torch.tensor(2.0, dtype=student.dtype))
    return 0.5 * (_relative(student, middle) + _relative(teacher, middle))


def _relative(p: Tensor, q: Tensor) -> Tensor:
    possible = p > -torch.inf
    # a twofold where: the branch not taken must not be inf - inf, or its gradient is NaN
    safe_p = torch.where(possible, p, 0.0)
    safe_q = torch.where(possible, q, 0.0)
    return torch.where(possible, safe_p.exp() * (safe_p - safe_q), 0.0).sum(-1)
