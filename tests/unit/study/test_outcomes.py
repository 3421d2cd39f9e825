"""Credit of successes and of failures, of two siblings written by hand."""

from typing import Any

import pytest

from geartrain.study.outcomes import score_outcomes


def _turn(action: str, weight: float, sign: int, critic: float | None = None) -> dict[str, Any]:
    return {
        "action": action,
        "observation": f"did {action}",
        "weight": weight,
        "credit": sign * weight,
        "critic": critic,
    }


def _episode(success: bool, *turns: dict[str, Any], task: str = "t") -> dict[str, Any]:
    advantage = turns[0]["credit"] / turns[0]["weight"]
    return {"task_id": task, "success": success, "advantage": advantage, "turns": list(turns)}


WON = _episode(True, _turn("look", 0.5, 1), _turn("plan a", 1.5, 1, 0.25), _turn("go", 1.0, 1, 0.75))
LOST = _episode(False, _turn("look", 0.75, -1), _turn("plan b", 1.25, -1))


def test_successes_and_failures_are_told_apart_and_so_are_the_turns_in_which_they_part() -> None:
    found = score_outcomes([WON, LOST])
    won, lost = found["success"], found["failure"]
    assert (won["turns"], won["credit_median"], won["weight_median"], won["largest"]) == (3, 1.0, 1.0, 1.5)
    assert (lost["credit_median"], lost["weight_p95"]) == (-1.0, pytest.approx(0.75 + 0.95 * 0.5))
    # both looked, then planned otherwise; what came then has no sibling in its state
    assert (won["parting"], lost["parting"]) == (1.5, 1.25)
    assert (won["critic"], lost["critic"]) == (0.5, None)


def test_siblings_without_a_difference_and_turns_without_a_token_do_not_count() -> None:
    flat = _episode(True, _turn("look", 9.0, 0), task="u")
    silent = {**_turn("", 1.0, -1), "weight": None, "credit": None}
    lost = {**LOST, "turns": [*LOST["turns"], silent]}
    assert score_outcomes([WON, lost, flat]) == score_outcomes([WON, LOST])
    assert score_outcomes([flat]) == {}
    other = {**LOST, "task_id": "another"}
    assert score_outcomes([WON, other])["failure"]["parting"] is None
