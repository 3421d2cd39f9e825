"""What earlier runs have learned: as of the time of the run that goes on from it, and not a row later."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geartrain.environments.environment import Task
from geartrain.features.earlier import keep, recall
from geartrain.features.errors import TableError
from geartrain.features.statistics import Played
from geartrain.features.tables import path_of, read_table, write_tables
from tests.unit.features.conftest import at, row

TASKS = [Task(f"t{number}", "analyst", "f", "train", "ask", "w", 2) for number in range(3)]


def seen(tick, key="t0", created=None, **values):
    counts = {"attempts": 6, "successes": 3, "success_rate": 0.5, "progress": 0.5}
    counts |= {"recent_attempts": 6.0, "recent_successes": 3.0}
    return row("task_history", key, tick, created, **{**counts, **values})


def version(tick, number):
    return row("policy_rewards", number, tick, policy_episodes=6)


@pytest.fixture
def run_of(tmp_path):
    """Return a function from rows to a folder of one run's tables."""

    def make(name, rows):
        write_tables(tmp_path / name, rows)
        return tmp_path / name

    return make


def test_only_what_was_known_before_the_run_counts(run_of, tmp_path):
    rows = [
        seen(1),
        seen(3, attempts=12),
        seen(2, created=9, attempts=99),  # a verdict that was corrected later
        seen(5, attempts=100),  # at the very moment, and after it
        seen(8, attempts=200),
        seen(7, "t1"),
    ]
    folder = run_of("kept", {"task_history": rows})
    earlier = recall(folder, TASKS, 4, known_from=at(5), work=tmp_path / "work")
    assert earlier.told == {"rows": 2, "later_rows": 4}
    assert earlier.history.newest("task_history", "t0")["attempts"] == 12
    assert earlier.history.newest("task_history", "t1") is None
    past = {name: [r for r in rows if max(r["event_timestamp"], r["created_timestamp"]) < at(5)] for name in ("then",)}
    before = run_of("then", {"task_history": past["then"]})
    assert recall(before, TASKS, 4, known_from=at(5), work=tmp_path / "again").history.state_dict() == (
        earlier.history.state_dict()
    ), "a run of then can be repeated with all that is known now"


def test_a_run_goes_on_counting(run_of, tmp_path):
    earlier = recall(run_of("kept", {"task_history": [seen(1)]}), TASKS, 4, known_from=at(9), work=tmp_path / "work")
    episode = Played("t0", "f", 0, True, 1.0, 1.0, 1.0, 1.0, None, 3, 30)
    earlier.history.observe(0, [episode, episode])
    told = earlier.history.newest("task_history", "t0")
    assert (told["attempts"], told["successes"]) == (8, 5)
    earlier.history.write(tmp_path / "new", at(9))
    assert len(read_table(path_of(tmp_path / "new", "task_history"))) == 1, "what is known already is not written again"


def test_policies_of_another_run_are_not_ours(run_of, tmp_path):
    folder = run_of("one", {"task_history": [seen(1)], "policy_rewards": [version(1, 0), version(2, 1)]})
    assert keep([folder], tmp_path / "kept")["policy_rewards"] == 0
    recall(folder, TASKS, 4, known_from=at(9), work=tmp_path / "work")
    assert len(read_table(path_of(tmp_path / "work/tables", "policy_rewards"))) == 0


@pytest.mark.parametrize(("rows", "said"), [([seen(3)], "the first of them is of 2000-01-01T03"), ([], "are empty")])
def test_a_history_of_the_future_is_refused(rows, said, run_of, tmp_path):
    folder = run_of("kept", {"task_history": rows})
    with pytest.raises(TableError, match=f"nothing in these tables was known before this run.*{said}.*known_from"):
        recall(folder, TASKS, 4, known_from=at(3), work=tmp_path / "work")


def test_runs_that_claim_the_same_time_are_refused_where_they_contradict_each_other(run_of, tmp_path):
    one, other = (run_of(name, {"task_history": [seen(1, attempts=n)]}) for name, n in (("a", 6), ("b", 7)))
    assert keep([one, one], tmp_path / "kept")["task_history"] == 1
    with pytest.raises(TableError, match="give each its own"):
        keep([one, other], tmp_path / "kept")


def test_tables_of_another_version_are_named(run_of, tmp_path):
    folder = run_of("kept", {"task_history": [seen(1)]})
    path = path_of(folder, "task_history")
    pq.write_table(pq.read_table(path).drop_columns(["recent_attempts"]), path)
    with pytest.raises(TableError, match="not a table of this version"):
        recall(folder, TASKS, 4, known_from=at(9), work=tmp_path / "work")
    table = pa.table({"task_id": ["t0"]})
    pq.write_table(table, path)
    with pytest.raises(TableError, match="no column event_timestamp"):
        recall(folder, TASKS, 4, known_from=at(9), work=tmp_path / "work")
