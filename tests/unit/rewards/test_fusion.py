import itertools
import random
import statistics

import pytest

from geartrain.rewards.fusion import fuse_group

MARGIN = 0.8


def fuse(verified: list[float | None], learned: list[float | None], **options: object) -> list[float | None]:
    return fuse_group(verified, learned, **{"weight": 0.1, "margin": MARGIN, **options})  # type: ignore[arg-type]


def test_the_learned_share_has_the_stated_spread() -> None:
    verified, learned = [1.0, 0.0, 1.0, 0.0], [3.0, 3.0, -3.0, -3.0]
    shift = [total - value for total, value in zip(fuse(verified, learned), verified, strict=True)]
    assert statistics.pstdev(shift) == pytest.approx(0.1 * statistics.pstdev(verified))
    assert shift[0] > 0 > shift[2]


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize("weight", [0.1, 1.0, 1e9])
@pytest.mark.parametrize("ties", [False, True])
def test_no_weight_and_no_scale_lets_a_failure_overtake_a_success(scale: float, weight: float, ties: bool) -> None:
    rng = random.Random(0)
    for _ in range(200):
        verified = [rng.choice([1.0, 0.2 * rng.randrange(6) / 5]) for _ in range(8)]
        learned = [scale * rng.gauss(0, 1) - 10 * scale * value for value in verified]  # loves failures
        totals = fuse(verified, learned, weight=weight, learned_in_ties=ties)
        for (a, total_a), (b, total_b) in itertools.product(zip(verified, totals, strict=True), repeat=2):
            assert total_a is not None
            assert total_b is not None
            assert not (a == 1.0 and b < 1.0) or total_a > total_b


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_in_a_tied_group_the_learned_reward_is_silent_unless_asked_for(value: float) -> None:
    verified, learned = [value] * 4, [5.0, 1.0, -1.0, -5.0]
    assert fuse(verified, learned) == verified
    totals = fuse(verified, learned, learned_in_ties=True)
    assert totals == sorted(totals, key=lambda total: -(total or 0.0))
    assert len(set(totals)) > 1


def test_the_learned_scale_does_not_matter_once_it_is_above_the_floor() -> None:
    verified = [1.0, 0.0, 0.2, 1.0]
    learned = [1.0, 4.0, -2.0, 3.0]
    assert fuse(verified, learned) == pytest.approx(fuse(verified, [1000 * x + 7 for x in learned]))


def test_differences_that_mean_nothing_are_not_blown_up() -> None:
    verified = [1.0, 0.0, 1.0, 0.0]
    totals = fuse(verified, [1e-6, -1e-6, -1e-6, 1e-6])
    assert totals == pytest.approx(verified, abs=1e-6)


def test_who_has_no_learned_value_keeps_the_verified_one() -> None:
    verified = [1.0, 0.0, 0.0]
    totals = fuse(verified, [2.0, None, -2.0])
    assert totals[1] == 0.0
    assert totals[0] is not None
    assert totals[0] > 1.0


def test_who_has_no_verified_value_has_no_total_and_moves_no_one_else() -> None:
    totals = fuse([None, 1.0, 0.0], [1000.0, 1.0, -1.0])
    assert totals[0] is None
    assert totals[1:] == fuse([1.0, 0.0], [1.0, -1.0])


@pytest.mark.parametrize("learned", [[None, None], [1.0, None]])
def test_one_opinion_is_compared_with_nothing(learned: list[float | None]) -> None:
    assert fuse([1.0, 0.0], learned) == [1.0, 0.0]


def test_groups_without_any_verdict() -> None:
    assert fuse([None, None], [1.0, 2.0]) == [None, None]
    assert fuse([], []) == []
