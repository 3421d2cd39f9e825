"""Findings of made-up cells: pairs of the same tasks and seeds, corrected; the table, the CSV and the picture."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from geartrain.study.collect import CellResult
from geartrain.study.compare import results
from geartrain.study.figures import learning_figure
from geartrain.study.schema import Plan
from geartrain.study.table import csv_text, markdown

Make = Callable[..., CellResult]
MISSING = {"analyst/seed-0/plain": "failed in stage policy: diverged\nat once"}


@pytest.fixture
def found(plan: Plan, make_result: Make) -> dict:
    cells = [make_result("plain", seed, "0101") for seed in range(3)]
    cells += [make_result("moved", seed, "1111", end=0.9) for seed in range(3)]
    cells += [make_result("even", 1, "0111", end=0.4)]
    return results(plan, cells, MISSING)


def test_pairs_are_the_same_tasks_of_the_same_seeds(found: dict) -> None:
    compared = found["environments"]["twophase"]["comparisons"]["test_sampled"]
    assert set(compared) == {"moved", "even"}
    moved, even = compared["moved"], compared["even"]
    assert (moved["over_tasks"]["pairs"], moved["over_seeds"]["pairs"], even["over_tasks"]["pairs"]) == (12, 3, 4)
    assert (moved["over_tasks"]["estimate"], even["over_tasks"]["estimate"]) == (0.5, 0.25)
    assert moved["over_tasks"]["p_value"] == pytest.approx(2 / 2**6)  # six pairs differ, all the same way
    assert moved["over_seeds"]["p_value"] == pytest.approx(2 / 2**3)
    # two variants are tested: the smaller p-value counts twice
    assert moved["over_tasks"]["p_holm"] == pytest.approx(2 * 2 / 2**6)
    assert even["over_tasks"]["p_holm"] == even["over_tasks"]["p_value"] == 1.0
    assert 0 < moved["over_tasks"]["minimum_detectable_effect"] < even["over_tasks"]["minimum_detectable_effect"]


def test_tasks_are_paired_by_name_not_by_place(plan: Plan, make_result: Make) -> None:
    plain, moved = make_result("plain", 0, "0011"), make_result("moved", 0, "0011")
    (measure,) = moved.success
    swapped = {measure: dict(reversed(moved.success[measure].items()))}
    object.__setattr__(moved, "success", swapped)
    gain = results(plan, [plain, moved], {})["environments"]["twophase"]["comparisons"]["test_sampled"]["moved"]
    assert (gain["over_tasks"]["low"], gain["over_tasks"]["p_value"]) == (pytest.approx(-0.602365, abs=1e-4), 1.0)


def test_areas_are_over_the_steps_that_every_cell_has_played(found: dict) -> None:
    here = found["environments"]["twophase"]
    assert here["common_environment_steps"] == 100.0
    assert here["variants"]["plain"]["area"]["high"] == pytest.approx((0.3 + 0.6) / 2)
    assert here["comparisons"]["area"]["moved"]["over_seeds"]["estimate"] > 0
    assert "over_tasks" not in here["comparisons"]["area"]["moved"]


def test_levels_that_some_or_all_seeds_missed_are_told_apart(found: dict) -> None:
    plain, even = (found["environments"]["twophase"]["variants"][name]["reach"] for name in ("plain", "even"))
    assert plain["0.5"] == {"median": pytest.approx(50 + 51 / 4), "seeds_reached": 3}
    assert plain["0.95"] == even["0.5"] == {"median": None, "seeds_reached": 0}


def test_the_way_to_where_the_control_ended_is_read_off_the_mean_curves(found: dict) -> None:
    plain, moved, even = (
        found["environments"]["twophase"]["variants"][name]["beside_control"] for name in ("plain", "moved", "even")
    )
    # three seeds that end at 0.8 after 100, 101 and 102 steps: their mean at the common end
    level = (0.8 + (0.4 + 0.4 * 50 / 51) + (0.4 + 0.4 * 50 / 52)) / 3
    assert plain["level"] == moved["level"] == pytest.approx(level, abs=1e-6)
    assert plain["steps"] == plain["control_steps"] == pytest.approx(100.0, abs=1e-3)
    assert moved["steps"] == pytest.approx(50 + 50 * 0.4 / 0.5, abs=1.0)
    assert even["steps"] is None
    first = markdown(found).split("### Other splits")[0]
    assert f"{moved['steps']:,.0f}, {moved['steps'] / plain['steps']:.2f} x" in first
    assert "> 101" in next(line for line in first.splitlines() if line.startswith("| `even`"))


def test_a_variant_with_fewer_seeds_stands_beside_the_control_of_those_seeds(found: dict) -> None:
    variants = found["environments"]["twophase"]["variants"]
    even = variants["even"]["beside_control"]
    assert even["seeds"] == [1]
    assert even["level"] == pytest.approx(0.4 + 0.4 * 50 / 51, abs=1e-6)
    assert even["band"]["low"] == even["band"]["high"] == even["band"]["mean"]
    assert variants["plain"]["beside_control"]["band"] == variants["plain"]["band"]


def test_results_are_json_without_the_folder_they_lie_in(found: dict, plan: Plan) -> None:
    text = json.dumps(found, allow_nan=False)
    assert str(plan.output) not in text
    assert found["detectable"] == {"20": 0.3132, "168": 0.1081, "417": 0.0686}
    assert found["environments"]["analyst"]["variants"]["plain"] == {"seeds": []}


def test_the_table_says_what_was_found_and_what_was_not(found: dict) -> None:
    text = markdown(found)
    row = next(line for line in text.splitlines() if line.startswith("| `moved`"))
    assert "100.0 % (100.0 to 100.0)" in row
    assert any(line.startswith("| `even`") and line.endswith("tools 1/1 |") for line in text.splitlines())
    assert "+50.0 [" in row
    assert "p 0.062" in row
    assert "> 100 (0 of 3 seeds)" in row
    assert "- `analyst/seed-0/plain`: failed in stage policy: diverged at once" in text
    assert "20 tasks 31.3, 168 tasks 10.8, 417 tasks 6.9 points" in text
    assert "Nothing is finished." in text
    widths = {len(line.replace("\\|", "").split("|")) for line in text.split("### ")[1].splitlines() if "|" in line}
    assert len(widths) == 1  # every row has every column


def test_the_csv_has_a_row_per_environment_and_variant(found: dict) -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert [(row["environment"], row["variant"], row["seeds"]) for row in rows] == [
        *(("twophase", name, count) for name, count in (("plain", "3"), ("moved", "3"), ("even", "1"))),
        *(("analyst", name, "0") for name in ("plain", "moved", "even")),
    ]
    assert (rows[0]["steps_to_0.95"], rows[1]["test_sampled_over_tasks_estimate"]) == ("", "0.5")
    assert rows[1]["credit_after_all_rank_correlation"] == "1.0"


def test_what_other_words_cost_is_paired_with_the_very_task_that_is_reworded(plan: Plan, make_result: Make) -> None:
    def cell(variant: str, seed: int, **reworded: float) -> CellResult:
        made = make_result(variant, seed, "")
        test = {"test-0000-a": 1.0, "test-0001-b": 0.5, "test-0002-c": 0.0}
        asked = {name.replace("_", "-"): share for name, share in reworded.items()}
        return replace(made, success={("test", "sampled"): test, ("paraphrase", "sampled"): asked})

    cells = [cell("plain", seed, paraphrase_0001_x=0.0, paraphrase_0000_y=0.5) for seed in (0, 1)]
    cells.append(cell("moved", 0, other_words=1.0))
    found = results(plan, cells, {})
    plain, moved = (found["environments"]["twophase"]["variants"][name] for name in ("plain", "moved"))
    assert (plain["paraphrase_drop"]["sampled"]["estimate"], plain["paraphrase_drop"]["sampled"]["pairs"]) == (-0.5, 4)
    assert plain["paraphrase_drop"]["greedy"] is moved["paraphrase_drop"]["sampled"] is None
    (row,) = [line for line in _section(markdown(found), "Other splits") if line.startswith("| `plain`")]
    assert "-50.0 [" in row
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    assert [row["paraphrase_drop_sampled_estimate"] for row in rows[:2]] == ["-0.5", ""]


def _section(text: str, title: str) -> list[str]:
    return text.split(f"### {title}")[1].split("###")[0].splitlines()


def test_how_credit_was_given_is_told_and_unknown_of_cells_that_are_older(plan: Plan, make_result: Make) -> None:
    new = replace(make_result("plain", 0, "01"), training={"weight_advantage": 0.25, "weight_ratio_worse": -0.75})
    old = replace(make_result("moved", 0, "01"), training={"kl": 0.5}, critic={}, outcomes={}, phase_curves={})
    found = results(plan, [new, old], {})
    here = found["environments"]["twophase"]
    assert here["critic"] == {"correlation": {"mean": 0.5, "low": 0.5, "high": 0.5, "deviation": None}}
    assert here["variants"]["plain"]["phase_bands"]["plan_success"]["mean"][-1] == 0.8
    assert here["variants"]["moved"]["phase_bands"] == here["variants"]["moved"]["outcomes"] == {}
    text = markdown(found)
    plain, moved = _section(text, "Weights in training")[4:6]
    assert [cell.strip() for cell in plain.split("|")[4:8]] == ["0.25", "", "", "-0.75"]
    assert set(moved.replace("`moved`", "")) == {"|", " "}
    assert "| 25.0 to 80.0 % " in _section(text, "Planning and doing")[4]
    credited = _section(text, "Credit of successes")
    assert credited[2] == "Correlation of the sibling critic on held-out tasks, times 100: 50.0 with its labels."
    assert [line[:9] for line in credited if line.startswith("| `")] == ["| `plain`"]
    rows = list(csv.DictReader(io.StringIO(csv_text(found))))
    names = (
        "training_plan_success_last",
        "training_weight_ratio_worse",
        "failure_before_parting",
        "critic_correlation",
    )
    assert [[row[name] for name in names] for row in rows[:2]] == [
        ["0.8", "-0.75", "0.125", "0.5"],
        ["", "", "", "0.5"],
    ]


def test_the_picture_has_a_panel_per_variant_and_names_both_lines(found: dict) -> None:
    picture = learning_figure(found)
    assert picture is not None
    texts = [element.text for element in ET.fromstring(picture).iter() if element.tag.endswith("}text")]
    assert [texts.count(name) for name in ("moved", "even", "plain", "twophase, 3 seeds")] == [1, 1, 2, 1]
    assert "var(--" not in picture
    assert "#00000" not in picture


def test_without_a_finished_cell_there_is_a_table_and_no_picture(plan: Plan) -> None:
    nothing = results(plan, [], {cell.name: "not run yet" for cell in plan.cells()})
    assert learning_figure(nothing) is None
    assert "not run yet" in markdown(nothing)
    assert len(csv_text(nothing).splitlines()) == 7
