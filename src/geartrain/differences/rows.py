"""Rows on disk, streamed: Parquet and JSON lines as record batches, so that millions of them need little memory."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from geartrain.errors import UserError

BATCH_ROWS = 8192
SUFFIXES = (".parquet", ".jsonl")


@dataclass(frozen=True)
class Rows:
    """Files of one table, read one after the other."""

    files: tuple[Path, ...]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, `BATCH_ROWS` at most at a time. Raises UserError: a file is not what its name says."""
        for path in self.files:
            yield from (_read_parquet(path) if path.suffix == ".parquet" else _read_lines(path))

    def pick(self, indices: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Return index -> row for a few rows, counted over all files from 0."""
        wanted, start = sorted(set(indices)), 0
        found: dict[int, dict[str, Any]] = {}
        for batch in self.batches() if wanted else ():
            inside = [index for index in wanted if start <= index < start + batch.num_rows]
            rows = batch.take(pa.array([index - start for index in inside], pa.int64())).to_pylist() if inside else []
            found.update(zip(inside, rows, strict=True))
            start += batch.num_rows
            if len(found) == len(wanted):
                break
        return found


def open_rows(place: Path, patterns: Sequence[str]) -> Rows:
    """Return the rows of a file, or of the files in a folder that fit the patterns.

    Raises:
        UserError: there is no such file, or the patterns fit none.
    """
    if place.is_file():
        return Rows((place,))
    if not place.is_dir():
        raise UserError(f"{place}: no such file or folder")
    files = sorted({path for pattern in patterns for path in place.glob(pattern) if path.suffix in SUFFIXES})
    if not files:
        raise UserError(
            f"{place}: no {' or '.join(patterns)} there; it has {', '.join(list_tables(place)) or 'no rows'}"
        )
    return Rows(tuple(files))


def list_tables(folder: Path) -> list[str]:
    """Return the files of a folder that hold rows, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.suffix in SUFFIXES)


def _read_parquet(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS, use_threads=False)
    except pa.ArrowInvalid as error:
        raise UserError(f"{path}: not a Parquet file ({error})") from error


def _read_lines(path: Path) -> Iterator[pa.RecordBatch]:
    chunk: list[dict[str, Any]] = []
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}:{number}: not JSON ({error})") from error
            if not isinstance(record, dict):
                raise UserError(f"{path}:{number}: expected a JSON object, found {type(record).__name__}")
            chunk.append(record)
            if len(chunk) == BATCH_ROWS:
                yield _to_batch(chunk)
                chunk.clear()
    if chunk:
        yield _to_batch(chunk)


def _to_batch(records: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for record in records for name in record))
    return pa.RecordBatch.from_arrays([_to_array([record.get(name) for record in records]) for name in names], names)


def _to_array(values: list[Any]) -> pa.Array:
    """Return values as a column; objects and lists, and columns of mixed types, as JSON text."""
    if not any(isinstance(value, dict | list) for value in values):
        try:
            return pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    return pa.array([None if value is None else _to_text(value) for value in values], pa.string())


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
