"""Every setting of every method, at the ends of what it may be: an iteration of learning ends with finite weights."""

import math

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import METHODS
from tests.fakes.parity import make_config, make_policy
from tests.fakes.synthetic import episodes, lesson_of, near_the_policy, trainer_of


def _ends(setting):
    """Return the values of a setting that its neighbours do not test: its least and its most, every choice."""
    if setting.choices:
        return setting.choices
    if isinstance(setting.default, bool):
        return (False, True)
    most = setting.maximum if math.isfinite(setting.maximum) else 1e3
    kind = type(setting.default)
    return (kind(setting.minimum), kind(most))


CASES = [
    (name, key, value)
    for name in RECIPES
    for key, setting in METHODS[name].settings.items()
    for value in _ends(setting)
    if value != setting.default
]


@pytest.fixture(scope="module")
def played():
    policy = make_policy()
    return {name: lesson_of(name, near_the_policy(policy.model, episodes(), spread=0.0)) for name in RECIPES}


@pytest.mark.parametrize(("name", "key", "value"), CASES)
def test_a_setting_at_its_end_trains(name, key, value, played, tmp_path):
    policy = make_policy()
    section = make_config(minibatches=1, microbatch_tokens=9999, iterations=8).policy
    trainer = trainer_of(name, policy, section, tmp_path, {key: value})
    trainer._train(played[name], 4)
    assert all(bool(torch.isfinite(weight).all()) for weight in policy.model.parameters())


@pytest.mark.parametrize("name", RECIPES)
def test_a_learner_that_does_not_learn_is_refused(name):
    """Its schedule is told as a share of the rate; what shall stay as it is has 0 steps, or another recipe."""
    rates = [key for key in METHODS[name].settings if key.endswith("learning_rate")]
    assert all(METHODS[name].settings[key].problem(0.0) for key in rates)
