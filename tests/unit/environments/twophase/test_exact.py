"""Exact values are values: they obey the identities of the theory, and match enumeration and differences."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from geartrain.environments.environment import Task
from geartrain.environments.twophase.exact import (
    FINISH,
    INVALID,
    LOOK,
    REPAIR,
    RIGHT,
    SLIP,
    Mdp,
    Policy,
    State,
    evaluate,
    expert_action,
    key_steps,
    policy_gradient,
    softmax,
    tilted,
    uniform,
    visit,
)

Small = Callable[..., Task]
FAMILIES = ("route", "recipe", "convoy", "order")


def random_logits(mdp: Mdp, seed: int) -> dict[tuple[State, str], float]:
    rng = random.Random(seed)
    return {(state, action): rng.gauss(0, 1) for state in mdp.states for action in mdp.actions(state)}


def episodes(mdp: Mdp, policy: Policy, state: State = State()) -> Iterator[tuple[float, list[tuple[State, str]], bool]]:  # noqa: B008
    """Every episode with its probability, by plain enumeration."""
    if not mdp.actions(state):
        yield 1.0, [], mdp.success(state)
    for action in mdp.actions(state):
        for chance, pairs, success in episodes(mdp, policy, mdp.next(state, action)):
            yield policy(state)[action] * chance, [(state, action), *pairs], success


@pytest.mark.parametrize("family", FAMILIES)
def test_advantages_of_a_state_average_to_zero(smallest: Small, family: str) -> None:
    mdp = Mdp.of(smallest(family))
    policy = softmax(mdp, random_logits(mdp, 0))
    values = evaluate(mdp, policy)
    for state, actions in values.q.items():
        mean = sum(policy(state)[action] * values.advantage(state, action) for action in actions)
        assert abs(mean) < 1e-12
        assert 0 <= values.stake(state) <= 1
    assert all(0 <= value <= 1 for value in values.v.values())


@pytest.mark.parametrize("family", ["route", "recipe"])
def test_values_and_gradient_match_enumeration_of_all_episodes(smallest: Small, family: str) -> None:
    mdp = Mdp.of(smallest(family), horizon=4)
    policy = softmax(mdp, random_logits(mdp, 1))
    total, won, scores = 0.0, 0.0, dict[tuple[State, str], float]()
    for chance, pairs, success in episodes(mdp, policy):
        total += chance
        won += chance * success
        if success:  # REINFORCE: sum of P * R * d log pi, where d log pi(a) / d logit(b) = [a = b] - pi(b)
            for state, action in pairs:
                for other, probability in policy(state).items():
                    slope = (action == other) - probability
                    scores[state, other] = scores.get((state, other), 0.0) + chance * slope
    gradient = policy_gradient(mdp, policy)
    assert total == pytest.approx(1.0)
    assert 0 < won == pytest.approx(evaluate(mdp, policy).v[State()], abs=1e-14)
    for state, row in gradient.items():
        for action, slope in row.items():
            assert slope == pytest.approx(scores.get((state, action), 0.0), abs=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_matches_finite_differences(smallest: Small, family: str) -> None:
    mdp = Mdp.of(smallest(family), horizon=8)
    logits, rng, width = random_logits(mdp, 2), random.Random(3), 1e-5
    gradient = policy_gradient(mdp, softmax(mdp, logits))
    flat = {(state, action): slope for state, row in gradient.items() for action, slope in row.items()}
    largest = sorted(flat, key=lambda pair: -abs(flat[pair]))[:8]
    directions: list[dict[tuple[State, str], float]] = [{pair: 1.0} for pair in largest]
    directions += [{pair: rng.gauss(0, 1) for pair in flat} for _ in range(3)]

    def success(step: float, direction: dict[tuple[State, str], float]) -> float:
        moved = {pair: logit + step * direction.get(pair, 0.0) for pair, logit in logits.items()}
        return evaluate(mdp, softmax(mdp, moved)).v[State()]

    for direction in directions:
        slope = (success(width, direction) - success(-width, direction)) / (2 * width)
        assert slope == pytest.approx(sum(flat[pair] * weight for pair, weight in direction.items()), abs=1e-9)
    assert abs(flat[largest[0]]) > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_visits_conserve_probability_and_explain_a_change_of_policy(smallest: Small, family: str) -> None:
    """Performance difference lemma: the gain of a new policy is the old one's advantage along the new one's visits."""
    mdp = Mdp.of(smallest(family))
    old, new = softmax(mdp, random_logits(mdp, 4)), softmax(mdp, random_logits(mdp, 5))
    chance = visit(mdp, new)
    over = [state for state in mdp.states if not mdp.actions(state)]
    assert sum(chance[state] for state in over) == pytest.approx(1.0)
    before, after = evaluate(mdp, old), evaluate(mdp, new)
    assert sum(chance[state] for state in over if mdp.success(state)) == pytest.approx(after.v[State()])
    gain = sum(
        chance[state] * probability * before.advantage(state, action)
        for state in before.q
        for action, probability in new(state).items()
    )
    assert gain == pytest.approx(after.v[State()] - before.v[State()], abs=1e-12)


def hand_made() -> Mdp:
    """One decision (0 right, 1 wrong, 2 right with a detour), one stop that is fragile, 5 calls."""
    spec: dict[str, Any] = {
        "truth": {"ok": [[True, False, True]], "detour": [[False, False, True]], "after": [[]] * 3, "ordered": False},
        "decisions": [{"name": "route", "options": [{"name": name, "facts": []} for name in "abc"]}],
        "stops": [{"name": "gate", "state": "shut", "fragile": True}],
        "detour": {"name": "ford", "state": "wet", "fragile": False},
    }  # fmt: skip
    return Mdp(spec, 5)


def test_a_case_worked_by_hand() -> None:
    """A careful policy that plans by coin between right and wrong, and slips one time in four."""
    mdp = hand_made()

    def policy(state: State) -> dict[str, float]:
        actions = mdp.actions(state)
        if "plan:0" in actions:
            return {"plan:0": 0.5, "plan:1": 0.5}
        if RIGHT in actions:
            return {RIGHT: 0.75, SLIP: 0.25}
        return {next(action for action in actions if action in (REPAIR, FINISH)): 1.0}

    values = evaluate(mdp, policy)
    start, after = State(), mdp.next(State(), "plan:0")
    # A slip at the fragile gate breaks it, and nothing wins from there.
    assert values.v[after] == 0.75
    assert values.q[after][SLIP] == 0.0
    assert values.v[start] == 0.375
    assert values.advantage(start, "plan:0") == 0.375
    assert values.advantage(start, "plan:1") == -0.375
    # With the detour 3 of the 4 calls left are needed, so a slip at the ford, 2 calls more, is too late.
    detour = mdp.next(start, "plan:2")
    assert [stop["name"] for stop in mdp.stops(detour)] == ["ford", "gate"]
    assert values.v[detour] == 0.75**2
    assert values.q[start][LOOK] == values.v[start._replace(calls=1, seen=True)] == 0.375
    assert values.q[start][INVALID] == 0.375
    assert mdp.next(detour, SLIP).jammed
    assert mdp.actions(mdp.next(detour, SLIP)) == (REPAIR, LOOK, INVALID)
    assert values.stake(start) == 0.75


def test_key_steps_are_plans_and_fragile_stops_of_a_careful_policy() -> None:
    mdp = Mdp({**hand_made().spec, "stops": [{"name": "gate", "state": "shut", "fragile": False}]}, 8)
    fragile = Mdp(hand_made().spec, 8)

    def careful(process: Mdp) -> Policy:
        def chances(state: State) -> dict[str, float]:
            first = [a for a in process.actions(state) if a in ("plan:0", RIGHT, REPAIR, FINISH)]
            return {action: 1 / len(first) for action in first}

        return chances

    for process, matters in ((mdp, False), (fragile, True)):
        values = evaluate(process, careful(process))
        keys = key_steps(process, values, 0.5)
        assert State() in keys
        assert (process.next(State(), "plan:0") in keys) is matters
        assert [state.calls for state in keys] == sorted(state.calls for state in keys)


def test_a_policy_that_is_none_is_refused(smallest: Small) -> None:
    mdp = Mdp.of(smallest("route"))
    for wrong in ({"finish": 1.0}, {"look": 0.5}, {"look": 1.5, "invalid": -0.5}, {"look": float("nan")}):
        with pytest.raises(ValueError, match="not a distribution"):
            evaluate(mdp, lambda state, wrong=wrong: wrong)
    with pytest.raises(ValueError, match="not legal"):
        mdp.next(State(), FINISH)


def test_tasks_are_small(tasks: dict[str, list[Task]]) -> None:
    sizes = [len(Mdp.of(task).states) for task in [*tasks["train"][:24], *tasks["ood"][:4]]]
    assert min(sizes) > 100
    assert max(sizes) < 4000
    chances = [evaluate(mdp, uniform(mdp)).v[State()] for mdp in map(Mdp.of, tasks["train"][:12])]
    assert 0.0001 < np.min(chances) < np.max(chances) < 0.3


def test_an_expert_that_hardly_errs_succeeds_and_a_tilt_of_nothing_changes_nothing(smallest: Small) -> None:
    for family in FAMILIES:
        mdp = Mdp.of(smallest(family))
        wanted = partial(expert_action, mdp)
        assert evaluate(mdp, tilted(uniform(mdp), wanted, 40.0)).v[State()] == pytest.approx(1.0)
        assert expert_action(mdp, State()) == LOOK
        for state in mdp.states:
            assert (action := wanted(state)) is None or action in mdp.actions(state)
            if mdp.actions(state):
                assert tilted(uniform(mdp), wanted, 0.0)(state) == pytest.approx(uniform(mdp)(state))


def test_a_tilt_raises_one_logit(smallest: Small) -> None:
    mdp = Mdp.of(smallest("route"))
    plain, raised = uniform(mdp), tilted(uniform(mdp), lambda state: LOOK, 1.5)
    row = raised(State())
    assert math.log(row[LOOK] / row["invalid"]) == pytest.approx(1.5)
    assert sum(row.values()) == pytest.approx(1.0)
    assert tilted(plain, lambda state: None, 1.5)(State()) == plain(State())
