"""A table of zeros must not pass for a finding."""

from collections.abc import Callable
from dataclasses import replace

from geartrain.study.collect import CellResult
from geartrain.study.compare import results
from geartrain.study.curves import Curve
from geartrain.study.floors import warnings
from geartrain.study.schema import Plan
from geartrain.study.table import markdown

Make = Callable[..., CellResult]


def test_cells_that_differ_are_not_warned_of(make_result: Make) -> None:
    assert warnings([make_result("plain", 0, "0101"), make_result("moved", 0, "0000")], "plain") == []
    assert warnings([], "plain") == []


def test_steps_that_are_not_equal_are_named_with_their_ratio(make_result: Make) -> None:
    plain = [make_result("plain", seed, "0101") for seed in range(2)]  # of 100 and 101 steps
    moved = [replace(make_result("moved", seed, "0100"), environment_steps=steps) for seed, steps in ((0, 200), (2, 9))]
    near = [replace(make_result("even", 0, "0100"), environment_steps=110)]
    (warning,) = warnings([*plain, *moved, *near], "plain")
    # seed 2 has no control to be held against
    assert warning.startswith("`moved` played 2.0 times the control's steps")
    assert warnings(moved, "plain") == []


def test_cells_of_a_seed_that_started_apart_are_named(make_result: Make) -> None:
    plain, moved = make_result("plain", 0, "01"), make_result("moved", 0, "01")
    here, there = replace(plain, ground="a"), replace(moved, ground="b")
    assert warnings([here, replace(moved, ground="a")], "plain") == []
    assert warnings([here, moved], "plain") == []  # an old record, which starts where the other does
    higher = replace(moved, curve=Curve(moved.curve.x, (moved.curve.y[0] + 0.1, *moved.curve.y[1:])))
    for apart in (there, higher):
        (warning,) = warnings([here, apart, make_result("plain", 1, "10")], "plain")
        assert warning.startswith("Cells of seed 0 started from different weights")


def test_a_kept_warm_start_is_counted(make_result: Make) -> None:
    cells = [replace(make_result("plain", 0, "01"), kept_iteration=0), make_result("moved", 0, "01")]
    (warning,) = warnings(cells, "plain")
    assert warning.startswith("In 1 of 2 cells the warm start itself was best")


def test_floors_ceilings_flat_curves_and_missing_credit_are_named_in_the_table(plan: Plan, make_result: Make) -> None:
    cells = []
    for variant in ("plain", "moved"):
        cell = make_result(variant, 0, "0000")
        success = {**cell.success, ("ood", "greedy"): {"o1": 1.0}}
        credit = {"after": replace(cell.credit["after"], credited=0.0)}
        cells.append(replace(cell, success=success, credit=credit, curve=Curve((0.0, 9.0), (0.0, 0.0))))
    text = markdown(results(plan, cells, {}))
    assert "- **Cannot tell**: Every task fails in every cell of test_sampled: no method can be told" in text
    assert "Every task is solved in every cell of ood_greedy" in text
    assert "Every learning curve stays at 0 %" in text
    assert "In 2 of 2 cells no turn has credit after training" in text
    assert text.index("Cannot tell") < text.index("### Success")
