"""What a stage trains on: rows with their labels, and beside them the features that a service gave as of a time.

A frame is a Parquet file that carries the name of its service, a digest of the definitions and the time, so that
whoever trains on it can say so, in its metrics and from there in the lineage.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from geartrain.features.errors import FrameError
from geartrain.features.headroom import Floats

FRAMES = Path("frames")
"""Folder of frames in the `preferences` artifact."""
SAMPLER, REWARD_MODEL, CRITIC = "sampler_v1", "rlar_v1", "critic_v1"
"""The feature service of each consumer."""
_MARK = b"geartrain"


@dataclass(frozen=True)
class Frame:
    """Rows, and where their features are from."""

    table: pa.Table
    service: str
    definitions: str
    """Digest of the feature repository, sha256."""
    as_of: datetime

    def told(self) -> dict[str, Any]:
        """Return where the features are from, for metrics and lineage."""
        return {"service": self.service, "definitions": self.definitions, "as_of": self.as_of.isoformat()}

    def column(self, name: str) -> list[Any]:
        """Return a column as plain values."""
        values: list[Any] = self.table.column(name).to_pylist()
        return values


def write_frame(folder: Path, frame: Frame) -> None:
    """Write a frame, named after its service."""
    folder.mkdir(parents=True, exist_ok=True)
    table = frame.table.replace_schema_metadata({_MARK: json.dumps(frame.told(), sort_keys=True)})
    pq.write_table(table, folder / f"{frame.service}.parquet", compression="zstd")


def read_frame(folder: Path, service: str) -> Frame:
    """Read the frame of a service.

    Raises:
        FrameError: there is none, or it is another service's.
    """
    path = folder / f"{service}.parquet"
    if not path.is_file():
        raise FrameError(f"{path}: no frame of {service}. Run the stage `preferences` again.")
    try:
        table = pq.read_table(path)
        told = json.loads((table.schema.metadata or {})[_MARK])
        frame = Frame(table, told["service"], told["definitions"], datetime.fromisoformat(told["as_of"]))
    except (pa.ArrowInvalid, KeyError, ValueError) as error:
        raise FrameError(f"{path}: not a frame ({error!r}). Run the stage `preferences` again.") from error
    if frame.service != service:
        raise FrameError(f"{path}: a frame of {frame.service}, not of {service}. Run the stage `preferences` again.")
    return frame


def require_rows(frame: Frame, rows: Mapping[str, Sequence[Any]]) -> None:
    """Check that a frame holds these rows, in this order.

    Raises:
        FrameError: it does not; the first row that differs is named.
    """
    for name, expected in rows.items():
        found = frame.column(name)
        if found == list(expected):
            continue
        if len(found) != len(expected):
            difference = f"has {len(found)} rows, not {len(expected)}"
        else:
            row = next(i for i, (left, right) in enumerate(zip(found, expected, strict=True)) if left != right)
            difference = f"has {name} {found[row]!r} in row {row}, not {expected[row]!r}"
        raise FrameError(
            f"the frame of {frame.service} {difference}: it was made from other rollouts. Run the stage `preferences` "
            "again, then this one."
        )


def headroom_weights(frame: Frame, strength: float) -> Floats:
    """Return how much each row counts, mean 1: `strength` 0 counts all alike, 1 in proportion to their headroom.

    A row of unknown headroom counts 1.
    """
    given = [np.nan if value is None else value for value in frame.column("headroom")]
    headroom_N = np.array(given, dtype=np.float64)
    known = np.isfinite(headroom_N)
    mean = float(headroom_N[known].mean()) if known.any() else 0.0
    relative_N = np.ones(len(headroom_N)) if mean == 0.0 else np.where(known, headroom_N / mean, 1.0)
    return np.asarray((1.0 - strength) + strength * relative_N)
