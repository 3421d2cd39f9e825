"""Reasons are readable, and come from what the cluster said."""

import pytest

from geartrain.cluster.interface import Event, PodState
from geartrain.cluster.reasons import duration, why_failed, why_not_started, why_queued

GPUS = "insufficient unused quota for nvidia.com/gpu in flavor gpu, 16 more needed"


def _pending(message: str, reason: str = "Pending") -> Event:
    return Event("Workload", reason, message, "")


@pytest.mark.parametrize(
    ("events", "queue", "words"),
    [
        ([_pending(f"couldn't assign flavors to pod set node: {GPUS}")], "geartrain",
         "ClusterQueue geartrain-gpu short of 16 nvidia.com/gpu"),
        ([_pending(f"{GPUS}, insufficient unused quota for cpu in flavor gpu, 2 more needed. Pending the preemption")],
         "geartrain", "ClusterQueue geartrain-gpu short of 16 nvidia.com/gpu, 2 cpu"),
        ([_pending(GPUS), _pending("x is inactive")], "team", "LocalQueue team: x is inactive"),
        ([_pending(GPUS), _pending("Preempted", "Evicted")], "geartrain",
         "ClusterQueue geartrain-gpu short of 16 nvidia.com/gpu"),
        ([_pending("Preempted to accommodate x", "Evicted")], "geartrain",
         "ClusterQueue geartrain-gpu: Preempted to accommodate x"),
        ([Event("TrainJob", "Pending", GPUS, "")], "geartrain", ""),
        ([], "geartrain", ""),
    ],
)  # fmt: skip
def test_why_a_job_queues(events: list[Event], queue: str, words: str) -> None:
    assert why_queued(events, queue) == words


def test_why_pods_do_not_start() -> None:
    pods = [PodState("a", 0, None, "", ""), PodState("b", 1, None, "Unschedulable", "0/5 nodes\nare available")]
    assert why_not_started(pods) == "pod b (rank 1) did not run (Unschedulable: 0/5 nodes are available)"
    assert why_not_started(pods[:1]) == ""


def test_why_a_job_failed() -> None:
    pods = [PodState(str(rank), rank, 1, "Error", "") for rank in range(5)] + [PodState("x", None, 0, "Completed", "")]
    words = why_failed("JobsFailed", "a job failed", pods)
    assert words.startswith("JobsFailed: a job failed; pod 0 (rank 0) exited with 1; pod 1")
    assert words.endswith("; 2 more")
    assert why_failed("", "", []) == "no reason given"


def test_of_a_long_message_the_end_is_kept() -> None:
    words = why_failed("X", f"{'word ' * 1000}ValueError: the point", [])
    assert words.endswith("ValueError: the point")
    assert len(words) < 400


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (89.4, "89 s"), (90, "2 min"), (3540, "59 min"), (3600, "1 h"), (5400, "1 h 30 min"), (7214, "2 h"),
     (86400, "1 d"), (100_000, "1 d 3 h")],
)  # fmt: skip
def test_durations_are_said_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words
