"""Task sets on disk: one JSON line a task, one file a split."""

import json
from collections.abc import Sequence
from pathlib import Path

from geartrain.environments.environment import Task
from geartrain.errors import UserError


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write tasks, one JSON line each; equal tasks give equal bytes."""
    lines = [json.dumps(task.to_record(), sort_keys=True, ensure_ascii=False) for task in tasks]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read_tasks(folder: Path, split: str) -> list[Task]:
    """Read one split of the `tasks` artifact.

    Raises:
        UserError: the split is missing, or a line is not a task; file and line are named.
    """
    path = folder / f"{split}.jsonl"
    if not path.is_file():
        raise UserError(f"{path}: no such split. Run the stage `tasks` first.")
    tasks = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            tasks.append(Task.from_record(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise UserError(f"{path}:{number}: not a task ({error}). Run the stage `tasks` again.") from error
    return tasks
