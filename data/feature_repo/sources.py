"""Where the values lie: `$GEARTRAIN_FEATURES/tables`, one Parquet file a view.

Each has two times: `event_timestamp`, when a value held, and `created_timestamp`, when we came to know it.
"""

import os
from pathlib import Path

from feast import FileSource

TABLES = Path(os.environ["GEARTRAIN_FEATURES"]) / "tables"


def table(name: str) -> FileSource:
    """Return the source of a view."""
    return FileSource(
        name=f"{name}_table",
        path=str(TABLES / f"{name}.parquet"),
        timestamp_field="event_timestamp",
        created_timestamp_column="created_timestamp",
    )
