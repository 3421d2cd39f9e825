"""SGCD-S: credit of a step from the contrast of siblings that stood in the same state.

    c(s, a) = (mean outcome(s, a) - mean outcome(s, other actions)) * n / (n + n0)
              + credit of a sub-goal reached by the step

with n the smaller of the two counts. A state where every sibling did the same
says nothing about the action: its contrast is 0.

Source: a widely read article on SGCD (a learned sibling critic; the paper,
arXiv:2606.12634, has none), repaired by us: the article takes the
number of a dict's keys for the horizon, multiplies a factor per sibling
without bound, and ignores which action was taken; see the tests.

Legend: S turns of all siblings of one task.
"""

import hashlib
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SiblingLabels:
    """Credit labels of one task's turns."""

    credit_S: Tensor
    """float32, within [-clip, clip]."""
    support_S: Tensor
    """float32: n of the contrast; 0 where there was none."""


def state_keys(actions: Sequence[str], results: Sequence[str]) -> list[str]:
    """Return the exact state before each turn of one trajectory: a digest of all that was done and answered.

    Two turns share a key if and only if their histories are the same, whatever
    the steps in between read like; the opening is not part of it, so keys
    compare within one task.
    """
    keys, digest = [], hashlib.sha256()
    for action, result in zip(actions, results, strict=True):
        keys.append(digest.hexdigest())
        for part in (action, result):
            encoded = part.encode()
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return keys


def match_exactly(state_S: Sequence[Hashable]) -> Tensor:
    """Return bool [S, S]: whether two turns stood in the same state. Every turn matches itself."""
    number = {state: index for index, state in enumerate(dict.fromkeys(state_S))}
    index_S = torch.tensor([number[state] for state in state_S], dtype=torch.int64)
    return index_S[:, None] == index_S[None, :]


def match_by_similarity(embedding_SH: Tensor, trajectory_S: Tensor, *, threshold: float) -> Tensor:
    """Return bool [S, S]: of each other trajectory the one most similar turn, if its cosine reaches `threshold`.

    Embeddings are centred first: hidden states of a language model share a
    large common direction, which makes every cosine high. Row s holds what turn
    s may be compared with; the relation need not be symmetric.
    """
    centred_SH = embedding_SH.double() - embedding_SH.double().mean(0)
    unit_SH = torch.nn.functional.normalize(centred_SH, dim=-1)
    cosine_SS = unit_SH @ unit_SH.T
    matched_SS = torch.eye(len(embedding_SH), dtype=torch.bool)
    rows_S = torch.arange(len(embedding_SH))
    for trajectory in sorted(set(trajectory_S.tolist())):
        inside_S = trajectory_S == trajectory
        best_S = cosine_SS.masked_fill(~inside_S, -2.0).argmax(1)
        reached_S = ~inside_S & (cosine_SS[rows_S, best_S] >= threshold)
        matched_SS[rows_S[reached_S], best_S[reached_S]] = True
    return matched_SS


def sibling_labels(
    match_SS: Tensor,
    action_S: Sequence[Hashable],
    outcome_S: Tensor,
    subgoal_S: Tensor,
    *,
    shrinkage: float,
    subgoal_credit: float,
    clip: float,
) -> SiblingLabels:
    """Label every turn of one task's siblings.

    Args:
        match_SS: bool, from `match_exactly` or `match_by_similarity`.
        action_S: what was done; equal values are the same action.
        outcome_S: verified outcome of the trajectory that the turn belongs to.
        subgoal_S: bool, whether the turn reached a sub-goal for the first time.
        shrinkage: n0; high distrusts contrasts of few siblings.
        subgoal_credit: added where a sub-goal was reached, whatever the outcome.
        clip: bound on the absolute label.
    """
    outcome_S = outcome_S.double()
    same_SS = match_exactly(action_S)
    alike, other = (match_SS & same_SS).double(), (match_SS & ~same_SS).double()
    n_alike_S, n_other_S = alike.sum(1), other.sum(1)
    contrast_S = alike @ outcome_S / n_alike_S.clamp(min=1) - other @ outcome_S / n_other_S.clamp(min=1)
    support_S = torch.minimum(n_alike_S, n_other_S)
    shrunk_S = torch.where(support_S > 0, contrast_S * support_S / (support_S + shrinkage), 0.0)
    credit_S = (shrunk_S + subgoal_credit * subgoal_S.double()).clamp(-clip, clip)
    return SiblingLabels(credit_S.float(), support_S.float())
