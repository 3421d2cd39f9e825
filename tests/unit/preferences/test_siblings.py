import json
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geartrain.environments.environment import Task
from geartrain.preferences.pairs import Pair, read_pairs, split_of, write_pairs
from geartrain.preferences.sibling_report import length_bias, quality_report, to_markdown
from geartrain.preferences.siblings import Built, build_pairs, read_siblings
from geartrain.rewards.verified import verified_score
from geartrain.trajectory import SCHEMA, ToolCall, ToolResult, Trajectory, Turn, to_record


def task(name: str, prompt: str | None = None) -> Task:
    return Task(name, "analyst", "join", "train", prompt or f"Do {name}.", "w", 2)


TASKS = {name: task(name) for name in ("t1", "t2", "t3")}


def episode(task_id: str, sibling: int, says: str, **fields: Any) -> Trajectory:
    turns = [Turn([1], [2], [0.0], "x", ToolCall("query_database", {"sql": says}), ToolResult("q1"))]
    values = {"group_id": task_id, "success": False, "progress": 0.0, "turns": turns, **fields}
    return Trajectory(task_id, "join", values.pop("group_id"), sibling, 0, 0, 1.0, end="finished", **values)


def build(trajectories: list[Trajectory], tasks: dict[str, Task] = TASKS, **options: Any) -> Built:
    settings = {"pairs_per_task": 4, "min_margin": 0.1, "validation_share": 0.2, **options}
    return build_pairs(trajectories, tasks, score=lambda t: verified_score(t.success, t.progress), **settings)


def test_the_verifier_says_which_is_chosen() -> None:
    built = build(
        [
            episode("t1", 0, "bad"),
            episode("t1", 1, "good", success=True),
            episode("t1", 2, "half", progress=0.5),
        ],
        min_margin=0.05,
    )
    ranked = {(pair.chosen_id, pair.rejected_id, pair.margin) for pair in built.pairs}
    assert ranked == {("t1/1", "t1/0", 1.0), ("t1/1", "t1/2", 0.9), ("t1/2", "t1/0", 0.1)}
    pair = built.pairs[0]
    assert (pair.prompt, pair.family, pair.chosen) == ("Do t1.", "join", "query good\nfinished")


def test_siblings_of_different_tasks_are_never_compared() -> None:
    built = build([episode("t1", 0, "good", success=True), episode("t2", 0, "bad")])
    assert built.pairs == []


def test_the_order_of_the_records_decides_nothing() -> None:
    rng = random.Random(0)
    records = [
        episode(name, i, f"say {i}", success=rng.random() < 0.5, progress=rng.random())
        for name in TASKS
        for i in range(8)
    ]
    first = build(records)
    rng.shuffle(records)
    assert build(records).pairs == first.pairs
    assert len(first.pairs) == 12


def test_no_task_gives_more_than_its_share_and_every_episode_is_used_before_one_is_used_again() -> None:
    records = [episode("t1", i, f"say {i}", success=i < 3) for i in range(6)]
    built = build(records, pairs_per_task=3)
    assert len(built.pairs) == 3
    used = Counter(name for pair in built.pairs for name in (pair.chosen_id, pair.rejected_id))
    assert set(used.values()) == {1}
    assert built.dropped["over_the_limit_of_the_task"] == 6


def test_wide_margins_come_first() -> None:
    scores = {0: 1.0, 1: 0.9, 2: 0.5, 3: 0.0}
    records = [episode("t1", i, f"say {i}", progress=p) for i, p in scores.items()]
    (pair,) = build(records, pairs_per_task=1, min_margin=0.0).pairs
    assert (pair.chosen_id, pair.rejected_id) == ("t1/0", "t1/3")


def test_ties_and_small_margins_make_no_pair() -> None:
    built = build([episode("t1", 0, "a"), episode("t1", 1, "b"), episode("t1", 2, "c", progress=0.3)])
    assert built.pairs == []
    assert built.dropped == {
        "tie": 1,
        "margin_too_small": 2,
        "over_the_limit_of_the_task": 0,
        "episodes_of_same_text": 0,
    }


def test_a_margin_of_zero_makes_no_pair_even_when_allowed() -> None:
    assert build([episode("t1", 0, "a"), episode("t1", 1, "b")], min_margin=0.0).pairs == []


def test_equal_texts_are_one_and_a_text_with_two_verdicts_is_none() -> None:
    built = build(
        [
            episode("t1", 0, "same", success=True),
            episode("t1", 1, "same"),  # the rendering cut away what told them apart
            episode("t1", 2, "good", success=True),
            episode("t1", 3, "good", success=True),
            episode("t1", 4, "bad"),
        ]
    )
    assert [(pair.chosen_id, pair.rejected_id) for pair in built.pairs] == [("t1/2", "t1/4")]
    assert built.dropped["episodes_of_same_text_other_score"] == 2
    assert built.dropped["episodes_of_same_text"] == 1


def test_tasks_of_one_prompt_that_contradict_each_other_lose_both_pairs_and_repeats_stay_once() -> None:
    tasks = {name: task(name, "Same prompt.") for name in TASKS}
    agree = [episode("t1", 0, "a", success=True), episode("t1", 1, "b")]
    repeat = [episode("t2", 0, "a", success=True), episode("t2", 1, "b")]
    contradict = [episode("t3", 0, "b", success=True), episode("t3", 1, "a")]
    once = build([*agree, *repeat], tasks)
    assert [pair.task_id for pair in once.pairs] == ["t1"]
    assert once.dropped["duplicate"] == 1
    none = build([*agree, *repeat, *contradict], tasks)
    assert none.pairs == []
    assert none.dropped["contradiction"] == 3


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (episode("nowhere", 0, "a"), "unknown_task"),
        (episode("t1", 0, "a", turns=[]), "no_turns"),
        (episode("t1", 0, "a", group_id="t2"), "foreign_group"),
        (episode("t1", 0, "a", success=-1), "verdict_not_boolean"),
        (episode("t1", 0, "a", progress=math.nan), "progress_out_of_range"),
        (episode("t1", 0, "a", progress=1.5), "progress_out_of_range"),
        (episode("t1", 1, "a", success=True), "duplicate_record"),
    ],
)
def test_an_unusable_record_is_quarantined_with_its_reason_and_the_rest_is_used(
    record: Trajectory, reason: str
) -> None:
    good = [episode("t1", 1, "good", success=True), episode("t1", 2, "bad")]
    built = build([*good, record])
    assert built.quarantined == [{"source": f"{record.task_id}/{record.sibling}", "reason": reason}]
    assert built.records == 3
    assert [pair.chosen_id for pair in built.pairs] == ["t1/1"]


def test_a_score_that_is_not_finite_is_quarantined() -> None:
    settings = {"pairs_per_task": 4, "min_margin": 0.1, "validation_share": 0.2}
    built = build_pairs([episode("t1", 0, "a")], TASKS, score=lambda t: math.inf, **settings)  # type: ignore[arg-type]
    assert built.quarantined == [{"source": "t1/0", "reason": "score_not_finite"}]


def test_rows_that_are_no_trajectory_are_quarantined_one_by_one(tmp_path: Path) -> None:
    rows = [to_record(episode("t1", i, "a")) for i in range(4)]
    rows[1]["turns"][0]["call"] = "{not json"
    rows[2]["turns"] = None
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path / "x.parquet")
    trajectories, malformed = read_siblings(tmp_path / "x.parquet")
    assert [t.sibling for t in trajectories] == [0, 3]
    assert [entry["source"] for entry in malformed] == ["row 1", "row 2"]


def test_a_task_keeps_its_split_when_others_join() -> None:
    names = [f"task-{i}" for i in range(2000)]
    before = {name: split_of(name, 0.2) for name in names[:500]}
    after = {name: split_of(name, 0.2) for name in names}
    assert all(after[name] == before[name] for name in before)
    assert 0.17 < sum(value == "validation" for value in after.values()) / len(names) < 0.23


def test_a_larger_share_only_adds_to_the_held_out_tasks() -> None:
    names = [f"task-{i}" for i in range(500)]
    small, large = ({name for name in names if split_of(name, share) == "validation"} for share in (0.1, 0.3))
    assert small < large


def test_pairs_of_one_task_are_in_one_split() -> None:
    records = [episode(name, i, f"say {i}", success=i % 2 == 0) for name in TASKS for i in range(6)]
    pairs = build(records, validation_share=0.5).pairs
    assert len({(pair.task_id, pair.split) for pair in pairs}) == len(TASKS)


def test_pairs_come_back_as_they_were_written(tmp_path: Path) -> None:
    pairs = build([episode("t1", 0, "good", success=True), episode("t1", 1, "bäd")]).pairs
    write_pairs(tmp_path / "pairs.parquet", pairs)
    assert read_pairs(tmp_path / "pairs.parquet") == pairs


def pair(chosen: str, rejected: str, margin: float = 1.0) -> Pair:
    return Pair("t", "f", "train", "p", chosen, rejected, margin, "t/0", "t/1")


def test_length_bias_is_seen() -> None:
    biased = [pair("long " * 5, "short", 1.0), pair("long " * 3, "short", 0.5), pair("long " * 2, "short", 0.25)]
    found = length_bias(biased)
    assert found["chosen_longer"] == 1.0
    assert found["margin_correlation"] == pytest.approx(1.0, abs=0.02)
    assert length_bias([pair("aa", "b"), pair("b", "aa")])["chosen_longer"] == 0.5
    assert length_bias([pair("a", "b")]) == {"chosen_longer": 0.5, "mean_difference": 0.0, "margin_correlation": None}
    assert length_bias([])["chosen_longer"] is None


def test_the_report_accounts_for_everything_and_is_json() -> None:
    records = [
        *[episode("t1", i, f"say {i}", success=i == 0) for i in range(4)],
        episode("nowhere", 0, "a"),
        episode("t2", 0, "a"),
    ]
    report = quality_report(build(records))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["records"] == 6
    assert report["quarantined"] == {"unknown_task": 1}
    assert report["pairs"] == 3
    assert sum(report["pairs_by_split"].values()) == 3
    assert report["pairs_per_task"] == {"3": 1}
    page = to_markdown(report)
    assert "| unknown_task | 1 |" in page
    assert "| tie | 3 |" in page
    assert to_markdown(quality_report(build([])))
