"""The schema refuses an unknown recipe before anything starts; the table of recipes is the maths'."""

from typing import get_args

from geartrain.algorithms.recipe import RECIPES
from geartrain.config import PolicySection


def test_the_schema_knows_every_recipe() -> None:
    assert set(get_args(PolicySection.model_fields["recipe"].annotation)) == set(RECIPES)
