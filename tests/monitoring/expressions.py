"""Names in expressions: ours are declared, those of others are written down here."""

import re

from geartrain.monitoring.alert import Pace
from geartrain.monitoring.recordings import recordings
from geartrain.telemetry import METRICS

NAME = re.compile(r"\b(?:geartrain[_:]|DCGM_FI_|kueue_)[A-Za-z0-9_:]+")
OTHERS = {
    # dcgm-exporter, default-counters.csv
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    # Kueue
    "kueue_pending_workloads",
}
"""Metrics of other exporters that we read."""
TARGET_LABELS = {"geartrain_dev_run", "geartrain_dev_stage"}
"""What the PodMonitor makes of the pods' labels."""


def names(text: str) -> set[str]:
    """Return every name of a metric in a text, those of others included."""
    return {name.rstrip(":_") for name in NAME.findall(text)}


def unknown_names(text: str) -> set[str]:
    """Return the names that nobody declares."""
    computed = {rule["record"] for rule in recordings(Pace())}
    histograms = {
        f"{name}_{part}"
        for name, metric in METRICS.items()
        if metric.kind == "histogram"
        for part in ("sum", "count", "bucket")
    }
    return names(text) - METRICS.keys() - computed - histograms - OTHERS - TARGET_LABELS
