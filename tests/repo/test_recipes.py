"""The table that people configure and the table of functions are one; settings are checked before anything starts."""

import inspect
import re

import pytest

from geartrain.algorithms import carrier, recipe, weighing
from geartrain.algorithms.recipe import RECIPES
from geartrain.config import parse_config
from geartrain.errors import UserError
from geartrain.methods import METHODS, setting_problems, settings_of

KINDS = {"baseline", "credit", "control"}


def test_every_method_has_functions_and_every_recipe_a_row() -> None:
    assert list(METHODS) == list(RECIPES)


@pytest.mark.parametrize("name", METHODS)
def test_a_row_tells_its_source_its_settings_and_what_low_and_high_do(name: str) -> None:
    method = METHODS[name]
    assert method.kind in KINDS
    assert method.what
    assert re.search(r"arXiv:\d{4}\.\d{5}|ours|article", method.source), "name the paper, the article, or say ours"
    for key, setting in method.settings.items():
        assert setting.what, key
        assert setting.problem(setting.default) is None, f"{key}: its own default is impossible"
        assert setting.problem(float("inf")), f"{key}: an infinite value breaks the run in the middle"
        explained = setting.choices or setting.low or setting.high or key.endswith("_final")
        assert explained, f"{key}: what does a low value do?"


@pytest.mark.parametrize("name", METHODS)
def test_a_weighing_method_has_a_neutral_setting_and_bounds(name: str) -> None:
    weighs = RECIPES[name].weigh is not None
    assert bool(METHODS[name].neutral) is weighs
    if weighs:
        low, high = RECIPES[name].bounds(settings_of(name, {}))
        assert 0 < low <= 1 <= high


@pytest.mark.parametrize("name", METHODS)
def test_a_row_tells_whether_rewards_reach_the_loss(name: str) -> None:
    assert METHODS[name].rewarded is RECIPES[name].policy_gradient


def test_every_setting_that_the_maths_reads_exists() -> None:
    read = set()
    for module in (carrier, recipe, weighing):
        read |= set(re.findall(r'settings\["(\w+)"\]', inspect.getsource(module)))
    known = {key for method in METHODS.values() for key in method.settings}
    assert read <= known, read - known
    assert len(read) > 15


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"recipe": "gear_c"}, r"policy.recipe: no method 'gear_c'; did you mean 'gear_"),
        ({"recipe": "sarsa_1"}, r"there is grpo, grpo_rows"),
        ({"settings": {"gear": {}}}, r"settings.gear: no method 'gear'; did you mean 'gear_"),
        ({"settings": {"gear_b": {"kapa": 1}}}, r"settings.gear_b: kapa: no setting of gear_b; did you mean 'kappa'"),
        ({"settings": {"gear_b": {"kappa": -1}}}, r"kappa is -1.0, expected 0 to 10"),
        ({"settings": {"gear_b": {"kappa": True}}}, r"kappa is True, expected a number"),
        ({"settings": {"gear_b": {"normalise": 1.0}}}, r"normalise is 1.0, expected true or false"),
        ({"settings": {"gear_b": {"failures": "damp"}}}, r"failures is 'damp', expected one of dampen, amplify; did"),
        ({"settings": {"gear_p": {"alpha": float("nan")}}}, r"alpha is nan, expected 0 to 1.9"),
        ({"settings": {"gear_p": {"longest": 12.5}}}, r"longest is 12.5, expected a whole number"),
        ({"reference_url": "notaurl"}, r"reference_url: 'notaurl' is no http\(s\) address, such as http://127"),
        ({"settings": {"grpo": {"x": 1.0}}}, r"x: no setting of grpo; it has none"),
    ],
)
def test_what_is_wrong_is_named_with_the_nearest_right_name(policy: dict[str, object], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse_config({"policy": policy}, source="params.yaml")


def test_settings_are_defaults_and_what_is_given() -> None:
    config = parse_config({"policy": {"recipe": "gear_b", "settings": {"gear_b": {"kappa": 0.5}}}}, source="x")
    assert config.policy.method_settings == settings_of("gear_b", {}) | {"kappa": 0.5}
    assert setting_problems("gear_b", {"kappa": 0.5}) == []
