"""What earlier runs have learned: their tables put together, and as much of it as a run may know when it begins.

Policy versions count from 0 in every run, so that what is known of one says nothing of another run's: the rewards of
policies are left out. All else is known of tasks, prompts and sources, which stay.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from geartrain.environments.environment import Task
from geartrain.features.definitions import TABLES_FOLDER
from geartrain.features.errors import TableError
from geartrain.features.frames import SAMPLER
from geartrain.features.history import History
from geartrain.features.tables import CREATED, EVENT, TABLES, TIME, gather, path_of, read_table

KEPT = "history"
"""What the manifest of kept tables calls their maker."""
OF_ONE_RUN = frozenset(["policy_rewards"])
"""Tables whose keys mean something else in another run."""


@dataclass(frozen=True)
class Earlier:
    """What was known before a run began."""

    history: History | None = None
    tables: Path | None = None
    """Folder of the rows that count."""
    told: dict[str, Any] = field(default_factory=dict)
    """How many there are, for metrics."""


def recall(folder: Path, tasks: Sequence[Task], siblings: int, *, known_from: datetime, work: Path) -> Earlier:
    """Return what tables of earlier runs say of the tasks, as of the moment before `known_from`.

    Args:
        folder: of tables, as `geartrain features keep` writes them; rows of `known_from` or later do not count.
        tasks: of this run.
        siblings: of a task.
        known_from: when this run's own rollouts count as known.
        work: for the rows that count, and Feast's registry.

    Raises:
        TableError: a table is malformed, or nothing in them was known by then.
    """
    from geartrain.features.store import private_store  # loads feast

    used, later, first = 0, 0, None
    tables = work / TABLES_FOLDER
    shutil.rmtree(work, ignore_errors=True)  # a killed run may have left half a registry
    tables.mkdir(parents=True, exist_ok=True)
    for name, schema in TABLES.items():
        table = _read(path_of(folder, name), schema) if name not in OF_ONE_RUN else schema.empty_table()
        known = pc.and_(*(pc.less(table.column(time), pa.scalar(known_from, TIME)) for time in (EVENT, CREATED)))
        past = table.filter(known)
        used, later = used + len(past), later + len(table) - len(past)
        times = [time for time in (first, pc.min(table.column(CREATED)).as_py()) if time is not None]
        first = min(times, default=None)
        pq.write_table(past, path_of(tables, name), compression="zstd")
    if not used:
        since = "they are empty" if first is None else f"the first of them is of {first.isoformat()}"
        raise TableError(
            f"preferences.history: {folder}: nothing in these tables was known before this run, which counts from "
            f"{known_from.isoformat()} ({since}). Set preferences.known_from to the time of this run."
        )
    asked = {
        "task_id": [task.task_id for task in tasks],
        "family": [task.family for task in tasks],
        "siblings": [siblings] * len(tasks),
        EVENT: pa.array([known_from] * len(tasks), TIME),
    }
    with private_store(work) as store:
        history = History.of_frame(store.as_of(SAMPLER, pa.table(asked)))
    return Earlier(history, tables, {"rows": used, "later_rows": later})


def keep(folders: Sequence[Path], staged: Path) -> dict[str, int]:
    """Put the tables of runs together in `staged`; return the number of rows by table.

    Raises:
        TableError: a table is malformed, or two runs know different things of the same time.
    """
    try:
        return gather(folders, staged, but=OF_ONE_RUN)
    except TableError as error:
        raise TableError(
            f"{error}\nTwo runs whose preferences.known_from is the same claim to have been at the same time: give "
            "each its own."
        ) from error


def _read(path: Path, schema: pa.Schema) -> pa.Table:
    try:
        return read_table(path).select(schema.names).cast(schema)
    except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise TableError(f"{path}: not a table of this version ({error}). Keep the tables of runs anew.") from error
