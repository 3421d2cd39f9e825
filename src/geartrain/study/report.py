"""Write what a study has found so far: results.json, results.md, results.csv and curves.svg."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from geartrain.artifacts import write_atomically, write_json
from geartrain.study.collect import CellResult, collect
from geartrain.study.compare import results
from geartrain.study.figures import learning_figure
from geartrain.study.records import write_record
from geartrain.study.run import why_unfinished
from geartrain.study.schema import Cell, Plan
from geartrain.study.table import csv_text, markdown


def write_results(plan: Plan, known: Mapping[Cell, CellResult] = MappingProxyType({})) -> list[Path]:
    """Write the files from the finished cells alone and return their paths; equal cells give equal bytes.

    `known` are cells of elsewhere (`records.read_records`); one that is finished here counts instead. Every cell's
    record is written too.
    """
    here = {result.cell: result for result in collect(plan)}
    both = {**known, **here}
    cells = [both[cell] for cell in plan.cells() if cell in both]
    for result in cells:
        write_record(plan.output, result, plan.config(result.cell))
    finished = {result.cell for result in cells}
    missing = {cell.name: why_unfinished(plan, cell) for cell in plan.cells() if cell not in finished}
    found = results(plan, cells, missing)
    picture = learning_figure(found)
    texts = {"results.md": markdown(found), "results.csv": csv_text(found)}
    if picture is not None:
        texts["curves.svg"] = picture
    write_json(plan.output / "results.json", found)
    for name, text in texts.items():
        write_atomically(plan.output / name, text)
    return [plan.output / name for name in ("results.json", *texts)]
