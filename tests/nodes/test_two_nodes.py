"""The whole policy stage on two nodes: what one process makes of the same episodes; killed or told to end, the same."""

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.nodes.conftest import Job

pytestmark = pytest.mark.slow
RTOL = 1e-4
"""Float32, sums in another order."""


def _assert_same(found: list[dict[str, Any]], expected: list[dict[str, Any]], tolerance: float) -> None:
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.keys() == other.keys()
        for name, value in other.items():
            if isinstance(value, float) and tolerance:
                assert one[name] == pytest.approx(value, rel=tolerance, abs=tolerance), (number, name)
            else:
                assert one[name] == value, (number, name)


@pytest.fixture(scope="module")
def alone() -> dict[str, list[dict[str, Any]]]:
    """What one process made, once it has."""
    return {}


@pytest.mark.parametrize(
    "sharding",
    [None, *({"zero": stage} for stage in range(4)), {"zero": 3, "offload": True, "recompute": True}],
    ids=["none", "zero-0", "zero-1", "zero-2", "zero-3", "zero-3-offload-recompute"],
)
def test_two_nodes_are_one_process(
    sharding: dict[str, Any] | None, job: Callable[..., Job], alone: dict[str, Any]
) -> None:
    if not alone:  # two workers of one process play the shares that two nodes would
        single = job("one", nodes=1, threads=2).start()
        assert single.wait() == [0], single.logs()
        alone["history"], alone["episodes"] = single.history(), single.episodes()
    double = job("two", **({} if sharding is None else {"sharding": sharding})).start()
    assert double.wait() == [0, 0], double.logs()
    expected = alone["history"]
    assert sum(record.get("trained_tokens", 0) for record in expected) > 0
    assert any(record.get("gradient_norm") for record in expected)
    _assert_same(double.history(), expected, RTOL)
    assert len(alone["episodes"]) == sum(record["episodes"] for record in expected)
    # one rank records what both have played; the files of a round lie as the ranks had them
    without_place = [[{**row, "place": 0} for row in rows] for rows in (double.episodes(), alone["episodes"])]
    _assert_same(*without_place, RTOL)


def test_two_nodes_ask_the_whole_warm_start_beside_a_policy_in_parts(job: Callable[..., Job]) -> None:
    policy = {"kl_estimator": "full", "kl_coefficient": 0.5, "iterations": 2}
    single = job("one", nodes=1, threads=2, **policy).start()
    assert single.wait() == [0], single.logs()
    double = job("two", sharding={"zero": 3}, **policy).start()
    assert double.wait() == [0, 0], double.logs()
    assert single.history()[-1]["kl"] > 0
    _assert_same(double.history(), single.history(), RTOL)


@pytest.mark.parametrize("zero", [2, 3])
def test_bfloat16_trains_on_two_nodes(zero: int, job: Callable[..., Job]) -> None:
    run = job("narrow", iterations=1, sharding={"zero": zero, "precision": "bfloat16"}).start()
    assert run.wait() == [0, 0], run.logs()
    (record,) = run.history()
    assert record["trained_tokens"] > 0
    assert 0 < record["gradient_norm"] < 100


def _until(condition: Callable[[], bool], running: Job) -> None:
    """Wait for something to happen to a job; a job that ends first, or a minute too many, is a failure."""
    deadline = time.monotonic() + 280
    while not condition():
        assert time.monotonic() < deadline, running.logs()
        assert running.processes[0].poll() is None, running.logs()
        time.sleep(0.02)


@pytest.fixture
def whole(job: Callable[..., Job]) -> list[dict[str, Any]]:
    """What nobody disturbed."""
    undisturbed = job("whole", sharding={"zero": 2}).start()
    assert undisturbed.wait() == [0, 0], undisturbed.logs()
    return undisturbed.history()


def test_a_run_that_lost_a_node_or_was_told_to_end_ends_as_one_that_did_not(
    job: Callable[..., Job], whole: list[dict[str, Any]]
) -> None:
    disturbed = job("killed", sharding={"zero": 2}).start()
    _until(lambda: disturbed.checkpoints() == 1, disturbed)
    time.sleep(random.Random(0).random())  # somewhere in the next iteration
    disturbed.lose(1)
    disturbed.end()  # what a controller does to the other, which waits for an answer
    assert not (disturbed.folder / "models/policy").exists()
    disturbed.start()
    _until(lambda: disturbed.checkpoints() == 2, disturbed)
    disturbed.tell(0, 1)
    assert 0 not in disturbed.wait()
    assert "stopped by SIGTERM" in disturbed.logs()
    disturbed.start()
    assert disturbed.wait() == [0, 0], disturbed.logs()
    _assert_same(disturbed.history(), whole, 0.0)


def test_another_number_of_nodes_is_refused_with_the_way_out(job: Callable[..., Job]) -> None:
    run = job("shrunk", sharding={"zero": 2}).start()
    _until(lambda: run.checkpoints() >= 1, run)
    run.end()
    run.nodes = 1
    assert run.start().wait() == [2]
    assert "the checkpoint is of 2 rank(s) under ZeRO 2, this run has 1 under ZeRO 2" in run.logs()
    assert "Go on with as many ranks and policy.sharding.zero as they were, or move the folder away" in run.logs()
