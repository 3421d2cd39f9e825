import itertools
import random
import statistics

import pytest

from geartrain.rewards.fusion import LIMIT_OF_MARGIN, SCALE_FLOOR, TIE_SPREAD, Opinion, fuse_group, soundness

MARGIN = 0.8


def fuse(verified, learned, *, weight=0.1, ties=False):  # type: ignore[no-untyped-def]
    return fuse_group(verified, [Opinion(learned, weight)], margin=MARGIN, ties=ties).totals


def two_channels(verified, learned, *, weight, margin, ties):  # type: ignore[no-untyped-def]
    """The fusion of two channels as it was when the demo's numbers were published."""
    valued = [value for value in verified if value is not None]
    if not valued:
        return [None] * len(verified)
    spread = statistics.pstdev(valued)
    if ties and spread == 0.0:
        spread = TIE_SPREAD
    limit = LIMIT_OF_MARGIN * margin
    both = [score for value, score in zip(verified, learned, strict=True) if value is not None and score is not None]
    zs = [0.0] * len(learned)
    if len(both) >= 2:
        mean, scale = statistics.fmean(both), max(statistics.pstdev(both), SCALE_FLOOR)
        zs = [
            0.0 if score is None or value is None else max(-2.0, min(2.0, (score - mean) / scale))
            for value, score in zip(verified, learned, strict=True)
        ]
    shifts = [max(-limit, min(limit, weight * spread * z)) for z in zs]
    return [None if value is None else value + shift for value, shift in zip(verified, shifts, strict=True)]


def test_with_one_opinion_it_is_what_it_was_bit_for_bit() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        size, ties, weight = rng.randrange(9), rng.random() < 0.5, rng.choice([0.0, 0.1, 1.0, 1e6, rng.random()])
        verified = [rng.choice([None, 1.0, 0.0, 0.2 * rng.random()]) for _ in range(size)]
        learned = [rng.choice([None, rng.gauss(0, 3), 0.0, 1e9]) for _ in range(size)]
        before = two_channels(verified, learned, weight=weight, margin=MARGIN, ties=ties)
        assert list(map(repr, fuse(verified, learned, weight=weight, ties=ties))) == list(map(repr, before))
        none = two_channels(verified, [None] * size, weight=weight, margin=MARGIN, ties=ties)
        assert fuse_group(verified, [], margin=MARGIN, ties=ties).totals == none


@pytest.mark.parametrize("opinions", [2, 5, 20])
def test_no_number_of_opinions_lets_a_failure_overtake_a_success(opinions: int) -> None:
    rng = random.Random(2)
    for _ in range(100):
        verified = [rng.choice([1.0, 0.2 * rng.random()]) for _ in range(6)]
        said = [Opinion([-1e6 * v + rng.gauss(0, 1) for v in verified], 10**k) for k in range(opinions)]
        totals = fuse_group(verified, said, margin=MARGIN).totals
        worst = min((t for v, t in zip(verified, totals, strict=True) if v == 1.0), default=2.0)  # type: ignore[type-var]
        assert all(t < worst for v, t in zip(verified, totals, strict=True) if v < 1.0)  # type: ignore[operator]


def test_each_opinion_is_normalised_before_they_are_added() -> None:
    verified = [1.0, 0.0, 1.0, 0.0]
    nats, shares = Opinion([300.0, 100.0, 200.0, 400.0], 0.1), Opinion([0.9, 0.1, 0.5, 0.2], 0.05, 0.05)
    fused = fuse_group(verified, [nats, shares], margin=MARGIN)
    assert [statistics.pstdev(share) for share in fused.shares] == pytest.approx([0.05, 0.025])
    for row, total in enumerate(fused.totals):
        assert total == pytest.approx(verified[row] + fused.shares[0][row] + fused.shares[1][row])


def test_what_a_gate_objects_to_is_a_failure_that_no_praise_lifts() -> None:
    sound = soundness([[1.0, 0.2, 0.6, None], [0.9, 1.0, 0.1, 0.5]], margin=MARGIN)
    assert sound == pytest.approx([1.0, 0.1, 0.1, 1.0])
    totals = fuse_group(sound, [Opinion([-9.0, 9.0, 9.0, -9.0], 1e9)], margin=MARGIN, ties=True).totals
    assert min(totals[0], totals[3]) > max(totals[1], totals[2])  # type: ignore[type-var, operator]
    assert soundness([], margin=MARGIN) == []


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
        totals = fuse(verified, learned, weight=weight, ties=ties)
        for (a, total_a), (b, total_b) in itertools.product(zip(verified, totals, strict=True), repeat=2):
            assert total_a is not None
            assert total_b is not None
            assert not (a == 1.0 and b < 1.0) or total_a > total_b


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_in_a_tied_group_the_learned_reward_is_silent_unless_asked_for(value: float) -> None:
    verified, learned = [value] * 4, [5.0, 1.0, -1.0, -5.0]
    assert fuse(verified, learned) == verified
    totals = fuse(verified, learned, ties=True)
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
