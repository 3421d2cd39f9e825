"""Health of training as metrics: declarations, what live lines make of them, and the endpoint."""

from collections.abc import Mapping

from geartrain.telemetry.declaration import MAX_SERIES, OTHER, PREFIX, Label, Metric
from geartrain.telemetry.learning import CREDIT, ROLLOUTS, TRAINING
from geartrain.telemetry.outcomes import DATA, EVALUATION, EXPORTER, PIPELINE, PROCESS, REWARD

__all__ = ["GROUPS", "MAX_SERIES", "METRICS", "OTHER", "PREFIX", "Label", "Metric"]

GROUPS: Mapping[str, tuple[Metric, ...]] = {
    "Training": TRAINING,
    "Rollouts": ROLLOUTS,
    "Credit": CREDIT,
    "Reward": REWARD,
    "Data": DATA,
    "Evaluation and gate": EVALUATION,
    "Pipeline": PIPELINE,
    "Process and GPU": PROCESS,
    "Exporter": EXPORTER,
}
"""The metrics, by what they tell of."""
METRICS: Mapping[str, Metric] = {metric.name: metric for group in GROUPS.values() for metric in group}
"""All of them, by name; a counter's name ends in `_total`."""
