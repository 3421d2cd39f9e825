"""What torchrun starts for each rank: `geartrain`, with a note of how it ended.

torchrun ends with 1 whatever its workers did. So each leaves its exit code and the reason in a file, which the node's
own process reads, and those of other nodes where they share the folder.
"""

import json
import os
import runpy
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from geartrain.artifacts import write_json

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
    note = _run()
    if note.code:
        write_json(Path(os.environ[NOTES]) / f"{os.environ['RANK']}.json", asdict(note))
    raise SystemExit(note.code)


def read_notes(folder: Path) -> dict[int, Note]:
    """Return what the workers that have failed left, by rank."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[int(path.stem)] = Note(**json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            continue  # another node's, removed or half there
    return found


def _run() -> Note:
    try:
        runpy.run_module("geartrain", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        error = end.__context__  # what `cli.main` made an exit code of
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return Note(code, type(error).__name__, "" if error is None else str(error))
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return Note(1, type(error).__name__, str(error))
    return Note(0, "", "")


if __name__ == "__main__":
    main()
