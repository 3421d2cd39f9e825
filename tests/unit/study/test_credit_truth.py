"""Every recipe's credit against the exact advantage of a policy that is known, on episodes that were played with it."""

import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from geartrain.algorithms.carrier import of_trajectory
from geartrain.algorithms.recipe import RECIPES
from geartrain.config import EnvironmentSection
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.environments.twophase.exact import Mdp, State, evaluate, expert_action, tilted, uniform
from geartrain.environments.twophase.replay import trace
from geartrain.methods import settings_of
from geartrain.study.credit_truth import (
    LIMITS,
    PAST,
    Played,
    credit_of,
    play_groups,
    shuffled,
    stand_ins,
    why_unscored,
    with_credit,
)
from geartrain.study.exact import CreditMoment, score_steps
from geartrain.study.known_policy import WIDTH, Table, features, play, reread, speech

EDGE = 2.0
SCORED = [name for name, recipe in RECIPES.items() if why_unscored(recipe) is None]
ALIKE = [name for name in SCORED if RECIPES[name].weigh is None and RECIPES[name].carrier is of_trajectory]
"""Recipes that give every turn of an episode the same credit."""


class Truth:
    """Episodes with their exact advantages, and what each recipe makes of them; asked once per recipe."""

    def __init__(self, played: Played, practice: Played):
        self.played, self.exact = played, played.exact()
        self._practice, self._found = practice, {}

    def records(self, name, behind=PAST, **given):
        key = (name, behind, *given.items())
        if key not in self._found:
            self._found[key] = credit_of(name, self.played, [self._practice], given=given, behind=behind)
        return self._found[key]

    def score(self, name, **options) -> CreditMoment:
        return score_steps(self.records(name, **options), self.exact)

    def rank(self, name, phase="all") -> float:
        return self.score(name).scores[phase].rank_correlation


@pytest.fixture(scope="module")
def environment():
    return TwoPhaseEnvironment(Path(), EnvironmentSection(name="twophase", prompt="brief"))


@pytest.fixture(scope="module")
def sets(environment):
    return environment.build_tasks(seed=0, sizes={"train": 6, "val": 12})


@pytest.fixture(scope="module")
def chat(environment, sets):
    return speech(environment, sets["train"])


@pytest.fixture(scope="module")
def truth(environment, sets, chat):
    practice, played = (
        play_groups(environment, sets[split], chat, edge=EDGE, siblings=8, seed=0) for split in ("train", "val")
    )
    return Truth(played, practice)


@pytest.fixture(scope="module")
def table(sets, chat):
    task = min(sets["val"], key=lambda task: task.necessary_steps)
    mdp = Mdp.of(task, horizon=LIMITS.turns(task))
    return task, Table(mdp, tilted(uniform(mdp), partial(expert_action, mdp), EDGE), chat)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_scored_or_says_why_not(truth, name):
    recipe = RECIPES[name]
    if (reason := why_unscored(recipe)) is not None:
        assert not recipe.policy_gradient, reason
        return
    found = truth.score(name)
    assert found.scores["all"].steps == sum(len(steps) for steps in truth.exact)
    assert set(found.scores) == {"all", "plan", "do"}
    for score in found.scores.values():
        assert -1.0 <= score.rank_correlation <= 1.0
        assert 0.0 <= score.key_recall <= 1.0
    assert found.scores["all"].rank_correlation > 0.1, "credit that knows nothing of the outcome"
    assert found.scores["all"].sign_agreement > 0.55
    assert (recipe.teacher != "none") is ("teacher" in stand_ins(recipe, settings_of(name, {})))
    coarse = settings_of(name, {}).get("granularity", "none") != "none"
    assert (found.coarser is not None) is coarse


@pytest.mark.parametrize("name", SCORED)
def test_credit_is_the_same_throughout_an_episode_only_where_nothing_tells_turns_apart(truth, name):
    spreads = [
        max(row) - min(row) for record in truth.records(name) for row in [[t["credit"] for t in record["turns"]]]
    ]
    if name in ALIKE:
        assert max(spreads) == 0.0
        assert max(len({t["weight"] for t in record["turns"]}) for record in truth.records(name)) == 1
    else:
        assert sum(spread > 0 for spread in spreads) > len(spreads) / 4


def test_the_truth_scores_one_and_what_is_dealt_out_anew_nothing(truth):
    records = truth.records("grpo")
    best = score_steps(with_credit(records, [[s.advantage for s in steps] for steps in truth.exact]), truth.exact)
    none = score_steps(with_credit(records, shuffled(truth.exact, seed=0)), truth.exact)
    for phase in ("all", "plan", "do"):
        assert best.scores[phase].rank_correlation == pytest.approx(1.0)
        assert best.scores[phase].sign_agreement == 1.0
    assert best.scores["all"].key_recall > 0.9
    assert abs(none.scores["all"].rank_correlation) < 4 / math.sqrt(none.scores["all"].steps)
    assert none.scores["all"].sign_agreement == pytest.approx(0.5, abs=0.1)
    assert best.scores["all"].key_recall > none.scores["all"].key_recall


@pytest.mark.parametrize("name", ["sgcd_s", "single_grain", "gear_b", "gear_p", "fixed_weights"])
def test_what_weighs_turns_ranks_them_better_than_the_episode_alone_does(truth, name):
    for phase in ("all", "do"):
        assert truth.rank(name, phase) > truth.rank("grpo", phase) + 0.02


@pytest.mark.parametrize("name", ["ppo", "gigpo"])
def test_what_compares_turns_finds_more_of_those_that_matter(truth, name):
    assert truth.score(name).scores["all"].key_recall > truth.score("grpo").scores["all"].key_recall + 0.1


def test_a_network_that_explains_its_teacher_is_as_good_as_the_teacher(truth):
    behind, ahead = (truth.score("gear_a", behind=nats).scores["all"].rank_correlation for nats in (PAST, -PAST))
    assert ahead > truth.rank("grpo") + 0.02
    assert ahead > truth.rank("fixed_weights") > behind


def test_granularity_by_progress_knows_planning_from_doing(truth):
    assert truth.score("gear_b").coarser > 0.8
    assert truth.score("gear_b", granularity="entropy").coarser != truth.score("gear_b").coarser


def test_a_recipe_with_a_teacher_that_nobody_stands_in_for_says_so():
    assert "'oracle'" in why_unscored(replace(RECIPES["gear_p"], teacher="oracle"))


def test_the_tokens_of_a_message_multiply_to_its_chance(table):
    _, own = table
    for state in own.mdp.states[:40]:
        if not own.mdp.actions(state):
            continue
        said = own.said(state)
        assert sum(said.values()) == pytest.approx(1.0)
        for ids, chance in said.items():
            rows = own.rows(state, ids)
            assert all(sum(row.values()) == pytest.approx(1.0) for row in rows)
            assert math.prod(row[i] for row, i in zip(rows, ids, strict=True)) == pytest.approx(chance)


def test_episodes_are_those_of_the_table(environment, table):
    task, own = table
    count = 150
    played = [play(environment, task, own, sibling=n, seed=3, limits=LIMITS) for n in range(count)]
    chance = evaluate(own.mdp, own.policy).v[State()]
    won = sum(t.success for t in played) / count
    assert 0.2 < chance < 0.8
    assert abs(won - chance) < 4 * math.sqrt(chance * (1 - chance) / count)
    assert played[0] == play(environment, task, own, sibling=0, seed=3, limits=LIMITS)


def test_the_table_itself_says_what_the_episode_says_and_another_diverges(environment, table):
    task, own = table
    trajectory = play(environment, task, own, sibling=0, seed=0, limits=LIMITS)
    told = reread(own, own, trajectory, direction="reverse")
    assert told.logprob_T.tolist() == pytest.approx(trajectory.behaviour_logprobs(), abs=1e-6)
    assert told.divergence_T.abs().max() < 1e-6
    nearer = Table(own.mdp, tilted(own.policy, partial(expert_action, own.mdp), 1.0), own.chat)
    other = reread(own, nearer, trajectory, direction="reverse")
    gains = other.logprob_T - told.logprob_T
    for (state, action), (start, stop) in zip(trace(own.mdp, trajectory.turns), trajectory.action_spans(), strict=True):
        right = action == expert_action(own.mdp, state)
        assert (float(gains[start:stop].sum()) > 0) is right
    assert other.divergence_T.min() >= 0 < other.divergence_T.max()
    read = features(own, trajectory)
    assert read.state_SH.shape == read.action_SH.shape == (len(trajectory.turns), WIDTH)
