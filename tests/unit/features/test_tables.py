from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from geartrain.features.errors import NaiveTimeError, TableError
from geartrain.features.tables import CREATED, EVENT, TABLES, TIME, freshness, gather, path_of, read_table, write_tables
from tests.unit.features.conftest import at, row


def test_no_two_tables_have_a_value_of_the_same_name():
    names = [name for schema in TABLES.values() for name in schema.names[1:] if name not in (EVENT, CREATED)]
    assert len(names) == len(set(names))


def test_any_zone_is_written_as_the_instant_that_it_means(tmp_path):
    tokyo = at(1).astimezone(timezone(timedelta(hours=9)))
    write_tables(tmp_path, {"task_history": [{**row("task_history", "t", 1), EVENT: tokyo}]})
    assert read_table(path_of(tmp_path, "task_history")).column(EVENT).to_pylist() == [at(1)]


@pytest.mark.parametrize("column", [EVENT, CREATED])
def test_a_time_without_zone_is_refused_when_it_is_written(tmp_path, column):
    naive = datetime(2000, 1, 1)
    with pytest.raises(NaiveTimeError, match=rf"column {column} has no time zone \(2000-01-01 00:00:00\)"):
        write_tables(tmp_path, {"task_history": [{**row("task_history", "t", 1), column: naive}]})


def test_a_value_of_the_wrong_kind_names_its_table(tmp_path):
    with pytest.raises(TableError, match="a row does not fit the table task_history"):
        write_tables(tmp_path, {"task_history": [row("task_history", "t", 1, attempts="many")]})


def test_equal_rows_are_one_and_rows_that_contradict_each_other_are_refused(tmp_path):
    told = row("task_history", "t", 1, attempts=6)
    write_tables(tmp_path, {"task_history": [told, told, row("task_history", "t", 1, 2, attempts=7)]})
    assert read_table(path_of(tmp_path, "task_history")).column("attempts").to_pylist() == [6, 7]
    with pytest.raises(TableError, match=r"1 key\(s\) have two different rows.*'task_id': 't'.*A correction has"):
        write_tables(tmp_path, {"task_history": [told, {**told, "attempts": 7}]})
    with pytest.raises(TableError, match="1 rows have no task_id"):
        write_tables(tmp_path, {"task_history": [{**told, "task_id": None}]})


def test_tables_of_several_folders_are_put_together(tmp_path):
    write_tables(tmp_path / "a", {"task_history": [row("task_history", "t", 0)]})
    write_tables(tmp_path / "b", {"task_history": [row("task_history", "t", 1), row("task_history", "u", 3)]})
    counts = gather([tmp_path / "a", tmp_path / "b", tmp_path / "absent"], tmp_path / "c")
    assert {name: count for name, count in counts.items() if count} == {"task_history": 3}
    facts = freshness(tmp_path / "c")
    assert (facts["task_history"].rows, facts["task_history"].keys) == (3, 2)
    assert facts["task_history"].newest == at(3)
    assert facts["task_rewards"].newest is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "no such table"),
        (lambda path: path.write_text("task_id,attempts\n"), "not Parquet"),
        (lambda path: _rewrite(path, lambda t: t.drop_columns([CREATED])), "no column created_timestamp"),
        (lambda path: _rewrite(path, lambda t: _replaced(t, EVENT, pa.array([1]))), "is int64, not a time"),
        (
            lambda path: _rewrite(path, lambda t: _replaced(t, EVENT, pa.array([None], TIME))),
            "1 rows have no",
        ),
    ],
)
def test_a_spoiled_table_is_named_with_what_is_wrong(tmp_path, spoil, message):
    write_tables(tmp_path, {"task_history": [row("task_history", "t", 1)]})
    path = path_of(tmp_path, "task_history")
    spoil(path)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_a_table_of_another_shape_is_not_gathered(tmp_path):
    write_tables(tmp_path, {"task_history": [row("task_history", "t", 1)]})
    _rewrite(path_of(tmp_path, "task_history"), lambda t: t.drop_columns(["attempts"]))
    with pytest.raises(TableError, match="not the table task_history"):
        gather([tmp_path], tmp_path / "all")


def _rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path)


def _replaced(table, column, values):
    return table.set_column(table.column_names.index(column), column, values)
