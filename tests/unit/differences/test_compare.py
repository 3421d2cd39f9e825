"""Two versions compared by row: the answer is that of a plain loop, and of what a person sees in a small example."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain import artifacts
from geartrain.differences import rows as reading
from geartrain.differences.compare import Difference, compare
from geartrain.differences.kinds import KINDS, Kind, choose_kind
from geartrain.errors import UserError
from geartrain.preferences import pairs as preferences
from geartrain.trajectory import Trajectory, write_trajectories

ROW = st.fixed_dictionaries(
    {"id": st.integers(0, 5), "x": st.none() | st.integers(0, 2), "y": st.lists(st.sampled_from("pq"), max_size=2)}
)
PLAIN = Kind("rows", ("*.jsonl",), ("id",))


def write(folder: Path, rows: list[dict[str, Any]], name: str = "rows.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(ROW, min_size=1, max_size=12), st.lists(ROW, min_size=1, max_size=12))
def test_counts_are_those_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, a: list[dict[str, Any]], b: list[dict[str, Any]]
) -> None:
    root = tmp_path_factory.mktemp("versions")
    found = compare(write(root / "a", a), write(root / "b", b), PLAIN)

    def numbered(rows: list[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
        seen: dict[tuple[int, int], dict[str, Any]] = {}
        for row in rows:
            seen[row["id"], sum(key[0] == row["id"] for key in seen)] = row
        return seen

    left, right = numbered(a), numbered(b)
    changed = [key for key in left.keys() & right.keys() if left[key] != right[key]]
    assert (found.added, found.removed) == (len(right.keys() - left.keys()), len(left.keys() - right.keys()))
    assert (found.changed, found.unchanged) == (len(changed), len(left.keys() & right.keys()) - len(changed))
    assert found.columns.get("x", 0) == sum(left[key]["x"] != right[key]["x"] for key in changed)
    assert found.a.repeated == len(a) - len({row["id"] for row in a})
    assert found.same == (not (found.added or found.removed or found.changed))
    shown = found.examples
    assert [row["id"] for row in shown["removed"]] == [row["id"] for key, row in left.items() if key not in right][
        : len(shown["removed"])
    ]


def test_order_and_file_format_mean_nothing(tmp_path: Path) -> None:
    rows = [{"id": number, "x": number / 2} for number in range(40)]
    a = write(tmp_path / "a", rows)
    pq.write_table(pa.Table.from_pylist(rows[::-1]), tmp_path / "b.parquet")
    found = compare(a / "rows.jsonl", tmp_path / "b.parquet", PLAIN)
    assert found.same
    assert found.unchanged == 40


def test_a_new_column_is_named_and_changes_no_row(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [{"id": 1}, {"id": 2}])
    b = write(tmp_path / "b", [{"id": 1, "note": "x"}, {"id": 2, "note": None}])
    found = compare(a, b, PLAIN)
    assert (found.changed, found.only_b, found.same) == (0, ("note",), False)


def trajectory(task: str, sibling: int, *, success: bool, progress: float = 0.5) -> Trajectory:
    return Trajectory(
        task, "drill_down", task, sibling, 7, 0, 1.0, (), success, progress, "finished", {"verified": 1.0}
    )


def rollouts(folder: Path, trajectories: list[Trajectory]) -> Path:
    folder.mkdir(parents=True)
    write_trajectories(folder / "trajectories.parquet", trajectories)
    artifacts.write_manifest(folder, stage="collect", parameters={}, inputs={}, metrics={})
    return folder


def test_rollouts_tell_flips_and_shifts_per_task(tmp_path: Path) -> None:
    pairs = [(f"t{task}", sibling) for task in range(4) for sibling in range(4)]
    a = rollouts(tmp_path / "a", [trajectory(*pair, success=pair[1] == 0) for pair in pairs])
    better = {("t0", 1), ("t0", 2), ("t0", 3)}
    worse = {("t1", 0)}
    after = [trajectory(*pair, success=pair in better or (pair[1] == 0 and pair not in worse)) for pair in pairs]
    b = rollouts(tmp_path / "b", [*after, trajectory("t9", 0, success=True)])
    found = compare(a, b, choose_kind(a, b))
    assert found.kind == "rollouts"
    assert (found.added, found.removed, found.changed, found.unchanged) == (1, 0, 4, 12)
    assert found.columns == {"success": 4}
    assert (found.flips, found.flipped_up) == (4, 3)
    groups = found.groups
    assert groups is not None
    assert (groups.common, groups.only_b, groups.up, groups.down) == (4, 1, 1, 1)
    assert groups.mean_shift == pytest.approx((0.75 - 0.25) / 4)
    assert dict(groups.largest[0]) == {"group": "t0", "a": 0.25, "b": 1.0, "rows_a": 4, "rows_b": 4}
    assert found.strata == {"drill_down": (16, 17)}
    assert found.shifts[0].column == "success"


def test_a_preference_that_was_turned_round_is_a_flip_and_no_new_row(tmp_path: Path) -> None:
    def pair(number: int, *, turned: bool = False, margin: float = 0.5) -> preferences.Pair:
        ids = (f"t{number}/0", f"t{number}/1")
        first, second = ids[::-1] if turned else ids
        return preferences.Pair(f"t{number}", "share", "train", "p", first, second, margin, first, second)

    folders = []
    for name, made in (("a", [pair(0), pair(1), pair(2)]), ("b", [pair(2, margin=0.9), pair(1, turned=True), pair(3)])):
        folder = tmp_path / name
        folder.mkdir()
        preferences.write_pairs(folder / "pairs.parquet", made)
        folders.append(folder / "pairs.parquet")
    found = compare(*folders, choose_kind(*folders))
    assert (found.added, found.removed, found.changed, found.unchanged) == (1, 1, 2, 0)
    assert found.flips == 1
    assert {row["task_id"] for row in found.examples["changed"]} == {"t1", "t2"}


def test_tasks_that_moved_to_another_split_changed(tmp_path: Path) -> None:
    def tasks(folder: Path, splits: dict[str, list[str]]) -> Path:
        for split, names in splits.items():
            write(folder, [{"task_id": name, "split": split, "family": "f"} for name in names], f"{split}.jsonl")
        return folder

    a = tasks(tmp_path / "a", {"train": ["1", "2"], "test": ["3"]})
    b = tasks(tmp_path / "b", {"train": ["1"], "test": ["2", "3"]})
    found = compare(a, b, KINDS["tasks"])
    assert (found.changed, dict(found.columns)) == (1, {"split": 1})
    assert found.examples["changed"] == ({"task_id": "2", "split": ["train", "test"]},)


@pytest.mark.parametrize(
    ("a", "b", "options", "said"),
    [
        ("nowhere", "rows", {}, "which columns name a row"),
        ("rows", "rows", {}, "--id COLUMN"),
        ("rows", "rows", {"key": "none"}, r"no column 'none' \(--id\); it has id"),
        ("rows", "rows", {"key": "id", "label": "none"}, r"no column 'none' \(--label\)"),
        ("rows", "empty", {"key": "id"}, "0 files of rows in common"),
        ("rows", "rows", {"key": "id", "file": "other.jsonl"}, "no other.jsonl there; it has rows.jsonl"),
        ("torn", "torn", {"key": "id"}, r"rows\.jsonl:2: not JSON"),
        ("numbers", "numbers", {"key": "id"}, r"rows\.jsonl:1: expected a JSON object, found int"),
        ("blank", "blank", {"key": "id"}, "holds no row"),
        ("parquet.parquet", "parquet.parquet", {"key": "id"}, "not a Parquet file"),
        ("tasks", "rollouts", {}, "holds tasks.*holds collect"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_says_what_to_do(
    a: str, b: str, options: dict[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("rows"), [{"id": 1}])
    for name, text in (("torn", '{"id": 1}\n{"id"'), ("numbers", "1\n"), ("blank", "\n")):
        write(Path(name), [])
        Path(name, "rows.jsonl").write_text(text)
    Path("empty").mkdir()
    Path("parquet.parquet").write_text("PAR1")
    write(Path("tasks"), [{"task_id": "1"}])
    artifacts.write_manifest(Path("tasks"), stage="tasks", parameters={}, inputs={}, metrics={})
    rollouts(Path("rollouts"), [trajectory("t", 0, success=True)])
    places = Path(a), Path(b)
    if a == "nowhere":
        places = Path("rows/rows.jsonl"), Path("rows/rows.jsonl")
    with pytest.raises(UserError, match=said):
        compare(*places, choose_kind(*places, **options))


def test_numbers_that_moved_are_told_from_chance(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [{"id": i, "same": i % 7, "moved": i % 7} for i in range(700)])
    b = write(tmp_path / "b", [{"id": i, "same": (i + 3) % 7, "moved": i % 7 + 2} for i in range(700)])
    shifts = {shift.column: shift for shift in compare(a, b, PLAIN).shifts}
    assert shifts["same"].p_value > 0.99
    assert shifts["same"].effect == 0
    assert shifts["moved"].p_value < 1e-6
    assert shifts["moved"].effect == pytest.approx(1.0, abs=0.01), "two, in deviations of 2"
    assert shifts["moved"].statistic == pytest.approx(2 / 7)


MANY = """
import re, sys
from pathlib import Path
from geartrain.differences.compare import compare
from geartrain.differences.kinds import KINDS
found = compare(Path(sys.argv[1]), Path(sys.argv[2]), KINDS["preferences"])
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]  # ru_maxrss would be the parent's
print(found.changed, found.added, int(peak) // 1024)
"""


def test_memory_grows_with_hashes_and_not_with_text(tmp_path: Path) -> None:
    """100,000 rows of 2 kB each are 200 MB a side; their hashes and numbers are 20."""
    count, text = 100_000, "x" * 2000
    for name, extra in (("a", 0), ("b", 10)):
        folder = tmp_path / name
        folder.mkdir()
        with pq.ParquetWriter(folder / "pairs.parquet", preferences.SCHEMA, compression="zstd") as writer:
            for start in range(0, count + extra, 5000):
                size = min(5000, count + extra - start)
                columns = {
                    column: [f"{column}-{start + row}" for row in range(size)] for column in preferences.SCHEMA.names
                }
                columns |= {"margin": [0.5] * size, "chosen": [f"{text}{start + row}" for row in range(size)]}
                writer.write_table(pa.Table.from_pydict(columns, schema=preferences.SCHEMA))
    command = [sys.executable, "-c", MANY, str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    changed, added, megabytes = map(int, done.stdout.split())
    assert (changed, added) == (0, 10)
    assert megabytes < 450


def test_a_difference_is_json_ready(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", [{"id": 1, "x": 1}]), write(tmp_path / "b", [{"id": 1, "x": 2}])
    found: Difference = compare(a, b, PLAIN)
    assert json.loads(json.dumps(found.record()))["changed"] == 1
    assert reading.list_tables(a) == ["rows.jsonl"]
