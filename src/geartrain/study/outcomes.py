"""How a method credits the turns of successes and of failures, and of the places where siblings part (SGCD-52).

Read from `credit_before.jsonl` and `credit_after.jsonl`, which every policy stage
writes, whatever the environment. Siblings of equal reward have no credit to
spread and are left out.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from geartrain.algorithms.sibling import state_keys
from geartrain.stages.stage import FOLDERS

MOMENTS = ("before", "after")
OUTCOMES = ("success", "failure")
Numbers = Mapping[str, float | None]
Record = Mapping[str, Any]


def read_credit(folder: Path, moment: str) -> list[Record]:
    """Return a cell's credit records of a moment, one per episode."""
    path = folder / FOLDERS["policy"] / f"credit_{moment}.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def score_outcomes(records: Sequence[Record]) -> dict[str, Numbers]:
    """Return outcome -> numbers of the turns of such episodes; an outcome that never came is left out.

    `turns` that were counted. `credit_*`, `weight_*`: quantiles of A * W and of W. `largest`: mean over episodes of the
    largest weight of a turn; 1 is flat. `parting`: mean weight of the turns in which siblings stood in the same state
    and did different things; None where there is none. `critic`: mean score of the sibling critic; None without one.
    """
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record["task_id"]].append(record)
    parting = {id(turn) for siblings in groups.values() for turn in _parting(siblings)}
    found: dict[str, Numbers] = {}
    for outcome in OUTCOMES:
        credited = [r for r in records if r["success"] is (outcome == "success") and r["advantage"] != 0]
        episodes = [[turn for turn in record["turns"] if turn["credit"] is not None] for record in credited]
        turns = [turn for episode in episodes for turn in episode]
        if turns:
            found[outcome] = {
                "turns": float(len(turns)),
                **_quantiles("credit", [turn["credit"] for turn in turns]),
                **_quantiles("weight", [turn["weight"] for turn in turns]),
                "largest": fmean(max(turn["weight"] for turn in episode) for episode in episodes if episode),
                "parting": _mean([turn["weight"] for turn in turns if id(turn) in parting]),
                "critic": _mean([turn["critic"] for turn in turns if turn["critic"] is not None]),
            }
    return found


def _parting(siblings: Sequence[Record]) -> list[Record]:
    stood: dict[str, list[Record]] = defaultdict(list)
    for record in siblings:
        actions = [turn["action"] for turn in record["turns"]]
        answers = [turn["observation"] for turn in record["turns"]]
        for state, turn in zip(state_keys(actions, answers), record["turns"], strict=True):
            stood[state].append(turn)
    return [turn for turns in stood.values() if len({t["action"] for t in turns}) > 1 for turn in turns]


def _quantiles(name: str, values: Sequence[float]) -> dict[str, float]:
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95)).tolist()
    return {f"{name}_p05": low, f"{name}_median": middle, f"{name}_p95": high}


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
