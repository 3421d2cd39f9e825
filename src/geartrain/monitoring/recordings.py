"""Series that the rules compute for alerts and dashboards, named `geartrain:what:how`."""

from typing import Any

from geartrain.monitoring.alert import Pace

ITERATION = "geartrain:iteration_seconds:mean"
JUDGING = "geartrain:judge_seconds:share"
GPU_BY_POD = "geartrain:gpu_busy_by_pod:ratio"
GPU_BY_NODE = "geartrain:gpu_busy_by_node:ratio"
SMOOTHED_SECONDS = 600.0
"""A GPU waits while episodes are played: its work is averaged over so long."""


def recordings(pace: Pace) -> list[dict[str, Any]]:
    """Return the recording rules as Prometheus reads them, in the order in which they are computed."""
    busy = _busy(pace.span(SMOOTHED_SECONDS))
    rules = {
        # over the life of the process: a window would have to know how long an iteration takes
        ITERATION: "geartrain_train_iteration_seconds_sum / (geartrain_train_iteration_seconds_count > 0)",
        JUDGING: (
            "geartrain_reward_judge_seconds_total\n  / (sum without (phase) (geartrain_train_phase_seconds_total) > 0)"
        ),
        GPU_BY_POD: f"avg by (namespace, pod) ({_owned(busy)})",
        GPU_BY_NODE: f"avg by (node) ({_renamed(busy, 'node', 'Hostname')})",
    }
    return [{"record": name, "expr": expr} for name, expr in rules.items()]


def _busy(span: str) -> str:
    """How busy each GPU is, 0 to 1; parts of a GPU (MIG) have no utilisation, old ones no profiling."""
    return f"avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE[{span}]) or avg_over_time(DCGM_FI_DEV_GPU_UTIL[{span}]) / 100"


def _owned(expr: str) -> str:
    """Name a GPU's series after the pod that uses it, where the DCGM exporter says which.

    Scraped without `honorLabels`, `pod` is the exporter's own. On MIG and before 4.6 nobody says (dcgm-exporter#577);
    then the pod is the exporter's too, and none of ours.
    """
    return _renamed(_renamed(expr, "pod", "exported_pod"), "namespace", "exported_namespace")


def _renamed(expr: str, name: str, source: str) -> str:
    return f'label_replace({expr}, "{name}", "$1", "{source}", "(.+)")'
