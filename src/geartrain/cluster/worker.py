"""What torchrun starts for each rank: `geartrain`, with a note of how it ended.

torchrun ends with 1 whatever its workers did. So each leaves its exit code and the reason in a file, which the node's
own process reads, and those of other nodes where they share the folder.
"""

import json
import os
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from geartrain import logs
from geartrain.artifacts import write_json
from geartrain.processes import run_to_end
from geartrain.ranks import leave

NOTES = "GEARTRAIN_WORKER_NOTES"
"""Variable that names the folder."""


@dataclass(frozen=True)
class Note:
    """How a worker failed."""

    code: int
    kind: str
    """Type of the error, by name."""
    reason: str


def main() -> NoReturn:
    """Run the command line in this process, note how it failed if it did, and end with the same code."""
    command_line = import_module("geartrain.cli")  # stands above this package
    logs.set_up()
    code, error = run_to_end(command_line.main)
    if code:
        note = Note(code, type(error).__name__, "" if error is None else str(error))
        write_json(Path(os.environ[NOTES]) / f"{os.environ['RANK']}.json", asdict(note))
    leave(code)


def read_notes(folder: Path) -> dict[int, Note]:
    """Return what the workers that have failed left, by rank."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[int(path.stem)] = Note(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # another node's, removed or half there
    return found


if __name__ == "__main__":
    main()
