import pytest

from geartrain.algorithms.schedule import blended, linear, snapshot_due


def test_linear():
    assert [linear(0.5, 0.1, share) for share in (-1, 0, 0.5, 1, 2)] == pytest.approx([0.5, 0.5, 0.3, 0.1, 0.1])
    assert linear(0.5, None, 0.7) == 0.5


def test_blended():
    assert [blended(share, start=0.2, length=0.4) for share in (0, 0.2, 0.4, 0.6, 1)] == pytest.approx(
        [0, 0, 0.5, 1, 1]
    )
    assert [blended(share, start=0.2, length=0.0) for share in (0.19, 0.2)] == [0, 1]


def test_snapshots_start_after_the_warm_up_and_are_never_closer_than_an_iteration():
    due = [i for i in range(20) if snapshot_due(i, 20, share=0.2, warm_share=0.1)]
    assert due == [2, 6, 10, 14, 18]
    assert all(snapshot_due(i, 5, share=0.0, warm_share=0.0) for i in range(5))
