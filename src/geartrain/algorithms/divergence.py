"""Estimators of KL(policy || reference) from sampled tokens, and entropy.

Samples come from the policy; `delta = log ref - log policy` at the sampled
token. Values of all three estimators have the right order of magnitude near
the policy, their gradients differ (checked by enumeration in the tests):

    estimator   E[value]     E[gradient], alone    E[gradient], with_score
    k1          exact        0                     exact
    k2          2nd order    exact                 wrong
    k3          exact        biased                exact

Source: J. Schulman, "Approximating KL divergence" (2020); k3 in GRPO:
arXiv:2402.03300; the score term: ours, after public trainers' fault reports.

Legend: `...` any shape; V vocabulary.
"""

import torch
from torch import Tensor


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
