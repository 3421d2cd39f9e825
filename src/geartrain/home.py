"""Where a workspace keeps what is no result: work in progress, live records, lineage."""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "GEARTRAIN_HOME"
WORK, LINEAGE = "work", "lineage"
"""Folders in it: checkpoints and locks of stages; lineage events."""


def home(workspace: Path = Path(), environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a workspace's work in progress and lineage: `$GEARTRAIN_HOME`, or its `.geartrain`."""
    return workspace / (environment.get(VARIABLE) or ".geartrain")
