"""A study goes on from the records of cells that were finished elsewhere."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from geartrain.errors import UserError
from geartrain.study import run
from geartrain.study.collect import CellResult
from geartrain.study.records import read_records, write_record
from geartrain.study.report import write_results
from geartrain.study.schema import Cell, Plan, load_study

Make = Callable[..., CellResult]


def _written(plan: Plan, results: list[CellResult], folder: Path) -> None:
    for result in results:
        write_record(folder, result, plan.config(result.cell))


def test_a_record_reads_back_as_it_was(plan: Plan, make_result: Make, tmp_path: Path) -> None:
    made = [make_result("moved", 0, "0110"), make_result("plain", 1, "1", environment="analyst")]
    _written(plan, made, tmp_path / "kept")
    assert list(read_records([tmp_path / "kept"], plan).values()) == [made[1], made[0]]
    assert read_records([tmp_path / "kept/cells"], plan).keys() == {result.cell for result in made}


def test_a_record_that_is_older_than_a_metric_reads_as_not_known(plan: Plan, make_result: Make, tmp_path: Path) -> None:
    path = write_record(tmp_path, make_result("plain", 0, "01"), plan.config(Cell("twophase", 0, "plain")))
    record = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in record.items() if k not in ("critic", "outcomes", "phase_curves")}))
    (old,) = read_records([tmp_path], plan).values()
    assert (old.critic, old.outcomes, old.phase_curves) == ({}, {}, {})


def test_results_of_records_are_those_of_the_cells(plan: Plan, make_result: Make, tmp_path: Path) -> None:
    made = [make_result(name, seed, "0110") for name in ("plain", "moved") for seed in range(3)]
    made[0] = replace(made[0], code="another")
    write_results(plan, {result.cell: result for result in made})
    first = {path.name: path.read_bytes() for path in plan.output.rglob("*.*")}
    assert json.loads(first["results.json"])["code"] == ["another", "c0de"]
    assert b"made by 2 versions of the code: `another`, `c0de`" in first["results.md"]
    assert len([name for name in first if name.startswith("twophase.seed-")]) == 6
    write_results(plan, read_records([plan.output], plan))
    assert {path.name: path.read_bytes() for path in plan.output.rglob("*.*")} == first


def test_records_of_another_configuration_do_not_count(
    plan: Plan, make_result: Make, tmp_path: Path, write: Callable[..., Path]
) -> None:
    _written(plan, [make_result("plain", 0, "01"), make_result("plain", 1, "01")], tmp_path)
    changed = load_study(write(settings={"policy.iterations": 7}))
    with pytest.raises(UserError, match=r"no cell of .* of the configuration that it has now"):
        read_records([tmp_path], changed)
    fewer = load_study(write(seeds=[1, 2]))
    assert [cell.seed for cell in read_records([tmp_path], fewer)] == [1]


def test_a_file_that_is_no_record_is_named(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"config": "1"}')
    with pytest.raises(UserError, match=r"x\.json: not the record of a cell"):
        read_records([tmp_path], plan)


def test_known_cells_are_not_run_nor_what_only_they_need(
    plan: Plan, make_result: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = {cell for cell in plan.cells() if (cell.environment, cell.seed, cell.variant) != ("analyst", 2, "even")}
    started: list[str] = []

    def run_direct(folder: Path, *_: object, **__: object) -> int:
        started.append(str(folder.relative_to(plan.output)))
        return 0

    monkeypatch.setattr(run, "run_direct", run_direct)
    said: list[str] = []
    run.run_study(plan, said.append, known)
    assert started == ["analyst/seed-2/base"]  # which wrote nothing, so its cell does not start
    assert "cells: 17 are known from elsewhere" in said
