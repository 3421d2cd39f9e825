"""A study file: what it says, and what it is refused for before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geartrain.errors import UserError
from geartrain.study.schema import Cell, Plan, load_study

ROOT = Path(__file__).parents[3]


def test_cells_run_seed_by_seed_with_the_control_first(plan: Plan) -> None:
    names = [cell.name for cell in plan.cells()]
    assert len(names) == 3 * 2 * 3
    assert names[:4] == [
        "twophase/seed-0/plain",
        "twophase/seed-0/moved",
        "twophase/seed-0/even",
        "analyst/seed-0/plain",
    ]
    assert plan.bases()[0] == Cell("twophase", 0)


def test_a_cell_is_the_profile_with_all_settings_applied(write: Callable[..., Path]) -> None:
    environments = {"twophase": {"policy.learning_rate": 0.00001, "tasks.val": 7}, "analyst": None}
    plan = load_study(write(environments=environments, settings={"tasks.val": 5, "threads": 1}))
    moved = plan.config(Cell("twophase", 2, "moved"))
    assert (moved.seed, moved.environment.name, moved.threads, moved.tasks.val) == (2, "twophase", 1, 7)
    assert (moved.policy.learning_rate, moved.policy.settings) == (0.00001, {"gear_b": {"kappa": 0.5}})
    assert plan.config(Cell("analyst", 0, "moved")).tasks.val == 5
    # what the variants share is the same, whatever they are
    base, plain = plan.config(Cell("twophase", 2)), plan.config(Cell("twophase", 2, "plain"))
    assert (
        base.model_dump(exclude={"policy"})
        == plain.model_dump(exclude={"policy"})
        == moved.model_dump(exclude={"policy"})
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sedes": [1]}, "sedes: unknown key; did you mean 'seeds'?"),
        ({"seeds": None}, "seeds: is missing"),
        ({"seeds": [1, 1]}, "seeds: one comes twice"),
        ({"control": "plian"}, "no control: variant 'plian'; did you mean 'plain'?"),
        ({"environments": ["twophas"]}, "no environment 'twophas'; did you mean 'twophase'?"),
        ({"settings": {"policy.iterationz": 1}}, "policy.iterationz: unknown key; did you mean 'iterations'?"),
        ({"settings": {"tasks.train": 1}}, "exceeds tasks.train"),
        ({"profile": "smok"}, "no profile 'smok'"),
        ({"variants": {"plain": {}, "base": {}}}, "and not 'base'"),
        ({"variants": {"plain": {}, "../up": {}}}, "names a folder"),
        ({"variants": {"plain": {}, "b": {"policy.recipe": "gaer_b"}}}, "did you mean 'gear_b'?"),
        (
            {"variants": {"plain": {}, "b": {"policy.siblings": 9}}},
            "b.policy.siblings: variants play by the same rules",
        ),
        ({"variants": {"plain": {}, "b": {"policy.patience": 2}}}, "b.policy.patience: variants play by the same"),
        (
            {"variants": {"plain": {}, "b": {"policy.sampling.temperature": 0.1}}},
            "b.policy.sampling.temperature: variants play by the same",
        ),
        (
            {"settings": {"policy.validate_every": 1}, "variants": {"plain": {}, "b": {"policy.validate_every": 2}}},
            "b: policy.iterations / policy.validate_every: 1 looks at `val`, of plain 2. Set its policy.validate_",
        ),
        ({"variants": {"plain": {}, "b": {"collect.tasks": 2}}}, "b.collect.tasks: variants share everything"),
        ({"variants": {"plain": {}, "b": {"policy": {"siblings": 9}}}}, "b.policy: variants share everything"),
        ({"reach": [1.5]}, "reach.0: Input should be less than or equal to 1"),
    ],
)
def test_a_mistake_is_named_with_its_mend(write: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        load_study(write(**changes))
    assert message in str(refused.value)
    assert "tiny.yaml" in str(refused.value) or "profile" in message


def test_a_variant_may_play_its_steps_in_fewer_iterations(write: Callable[..., Path]) -> None:
    fewer = {"policy.recipe": "dapo", "policy.iterations": 2, "policy.validate_every": 1}
    settings = {"policy.iterations": 4, "policy.validate_every": 2}
    plan = load_study(write(settings=settings, variants={"plain": {}, "dapo": fewer}))
    assert [plan.config(Cell("analyst", 0, name)).policy.iterations for name in ("plain", "dapo")] == [4, 2]


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_committed_study_is_valid(path: Path) -> None:
    plan = load_study(path)
    for cell in (*plan.bases(), *plan.cells()):
        assert plan.config(cell).threads == 1  # cells side by side, and results that repeat bit for bit
