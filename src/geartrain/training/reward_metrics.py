"""How good a reward model is, and whether it may be trusted.

Legend: P pairs; columns of `raw_P2` are chosen and rejected.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor

from geartrain.algorithms.preference import (
    bradley_terry_loss,
    calibration_error,
    fit_temperature,
    pair_accuracy,
)
from geartrain.models.reward_model import Calibration
from geartrain.preferences.pairs import FILES, SIBLINGS, Pair

FEW_PAIRS = 8
"""Below this many held-out pairs the metrics say little, and `few_pairs` says so."""
ONE_SIDED_90 = 1.282


def calibrate(train_P2: Tensor, validation_P2: Tensor) -> Calibration:
    """Return the centre that makes the mean training reward 0, and the temperature that fits the held-out pairs."""
    centre = float(train_P2.double().mean())
    return Calibration(centre, fit_temperature(_differences(validation_P2)))


def is_trusted(pairs: Sequence[Pair], raw_P2: Tensor) -> bool:
    """Return whether the held-out pairs show, with 90 % confidence, that the model beats a coin.

    The bar is low on purpose: it stops a model that learned nothing, which
    would add noise to every reward. Never passed without held-out pairs.
    """
    return accuracy_at_least(pairs, raw_P2) > 0.5


def accuracy_at_least(pairs: Sequence[Pair], raw_P2: Tensor) -> float:
    """Return the one-sided 90 % lower bound of the accuracy over tasks; 0 for no pairs.

    The task is the unit, not the pair: pairs of one task share its episodes.
    One task all right and one all wrong are added, so that few tasks that
    agree are no proof (after Agresti and Coull 1998; for means it is ours).
    """
    right_by_task: dict[str, list[float]] = defaultdict(list)
    for pair, difference in zip(pairs, _differences(raw_P2).tolist(), strict=True):
        right_by_task[pair.task_id].append(float(difference > 0) + 0.5 * float(difference == 0))
    shares = [fmean(right) for right in right_by_task.values()]
    if not shares:
        return 0.0
    padded = [*shares, 0.0, 1.0]
    return max(0.0, fmean(padded) - ONE_SIDED_90 * stdev(padded) / math.sqrt(len(padded)))


def summarise(
    train: Sequence[Pair], validation: Sequence[Pair], train_P2: Tensor, validation_P2: Tensor
) -> dict[str, Any]:
    """Return held-out accuracy with its counts, loss, calibration, accuracy by family and the length baseline.

    Early stopping looks at the held-out pairs too, so they flatter a little.
    The error after calibration is cross-fitted: each half of the pairs is
    judged at the temperature of the other.
    """
    difference_P = _differences(validation_P2)
    siblings = [pair for pair in train if pair.origin == SIBLINGS]
    files = sum(pair.origin.startswith(FILES) for pair in train)
    forged = len(train) - len(siblings) - files
    counts = {"train": len(siblings), "forged": forged, "validation": len(validation)}
    return {
        "pairs": {**counts, **({"files": files} if files else {})},
        "validation_tasks": len({pair.task_id for pair in validation}),
        "few_pairs": len(validation) < FEW_PAIRS,
        "train_accuracy": _rounded(pair_accuracy(_differences(train_P2))),
        "validation_accuracy": _rounded(pair_accuracy(difference_P)),
        "validation_accuracy_at_least": _rounded(accuracy_at_least(validation, validation_P2)),
        "validation_loss": _rounded(float(bradley_terry_loss(validation_P2[:, 0], validation_P2[:, 1]).mean())),
        "calibration_error_before": _rounded(calibration_error(difference_P)),
        "calibration_error_after": _rounded(_cross_fitted_error(difference_P)),
        "validation_by_family": _grouped([pair.family for pair in validation], difference_P),
        "length_baseline_accuracy": _rounded(length_baseline(siblings, validation)),
    }


def resistance(probes: Sequence[Pair], raw_P2: Tensor) -> dict[str, dict[str, float | int | None]]:
    """Return, by kind of forgery, the share of held-out tasks whose honest transcript scores higher.

    Near one half, or below, a policy could please the model that way.
    """
    return _grouped([pair.origin for pair in probes], _differences(raw_P2))


def by_file(pairs: Sequence[Pair], raw_P2: Tensor) -> dict[str, dict[str, float | int | None]]:
    """Return the accuracy on held-out pairs of each file."""
    return _grouped([pair.origin.removeprefix(FILES) for pair in pairs], _differences(raw_P2))


def length_baseline(train: Sequence[Pair], validation: Sequence[Pair]) -> float:
    """Return the held-out accuracy of "the longer is better", or of its opposite if that fits the training pairs.

    A reward model that is no better than this may have learned length alone.
    """

    def longer(pairs: Sequence[Pair]) -> Tensor:
        return torch.tensor([float(len(pair.chosen) - len(pair.rejected)) for pair in pairs])

    prefers_long = not train or pair_accuracy(longer(train)) >= 0.5
    return pair_accuracy(longer(validation) * (1.0 if prefers_long else -1.0))


def _grouped(names: Sequence[str], difference_P: Tensor) -> dict[str, dict[str, float | int | None]]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, name in enumerate(names):
        rows[name].append(row)
    return {
        name: {"accuracy": _rounded(pair_accuracy(difference_P[chosen])), "pairs": len(chosen)}
        for name, chosen in sorted(rows.items())
    }


def _cross_fitted_error(difference_P: Tensor) -> float:
    halves = (difference_P[0::2], difference_P[1::2])
    if min(len(half) for half in halves) == 0:
        return math.nan
    scaled = [half / fit_temperature(other) for half, other in zip(halves, reversed(halves), strict=True)]
    return calibration_error(torch.cat(scaled))


def _differences(raw_P2: Tensor) -> Tensor:
    return (raw_P2[:, 0] - raw_P2[:, 1]).double()


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
