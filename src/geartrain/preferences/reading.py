"""Files as blocks of JSON values, streamed: JSON lines, one JSON array, CSV, Parquet.

A place that holds no value is told of and passed over; reading goes on behind it. Places are lines of JSON lines and
CSV, rows of Parquet (all from 1), and bytes of a JSON array (from 0).
"""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from geartrain.preferences.opening import Kind, ReadError, chunks, seekable
from geartrain.preferences.records import Broken, Rows

BLOCK_ROWS = 2048
BLOCK_BYTES = 4 << 20
LONGEST = 8 << 20
"""Bytes of a record; a longer one is passed over, whatever it is."""
csv.field_size_limit(LONGEST)


def read_rows(path: Path, kind: Kind, *, encoding: str | None = None) -> Iterator[Rows]:
    """Yield a file's values, block by block."""
    if kind.suffix == ".parquet":
        return _parquet(path, kind)
    if kind.suffix == ".json":
        return _array(path, kind, encoding)
    if kind.suffix in {".csv", ".tsv"}:
        return _table(path, kind, encoding)
    return _lines(path, kind, encoding)


class _Block:
    """Rows as they gather, until there are enough for a block."""

    def __init__(self) -> None:
        self.rows = Rows([], [], [])
        self.size = 0
        self._last: Any = None

    def add(self, place: int, raw: bytes) -> None:
        """Add a value that is written as JSON, or the reason why it is none."""
        self.size += len(raw)
        if len(raw) > LONGEST:
            self.rows.broken.append(Broken(place, "record_too_long", f"{len(raw):,} bytes"))
            return
        try:
            value = orjson.loads(raw)
        except ValueError:
            found = _diagnose(place, raw)
            if isinstance(found, Broken):
                self.rows.broken.append(found)
                return
            value = found[0]
        self.put(place, value)

    def put(self, place: int, value: Any) -> None:
        """Add a value."""
        self.rows.places.append(place)
        self.rows.values.append(value)
        self._last = value

    @property
    def keys(self) -> frozenset[Any]:
        """Keys of the last value, if it has any."""
        return frozenset(self._last) if isinstance(self._last, dict) else frozenset()

    @property
    def full(self) -> bool:
        """Whether it should be handed on."""
        return self.size >= BLOCK_BYTES or len(self.rows.places) + len(self.rows.broken) >= BLOCK_ROWS

    def take(self) -> Rows:
        """Hand on what has gathered."""
        rows, self.rows, self.size = self.rows, Rows([], [], []), 0
        return rows


def _diagnose(place: int, raw: bytes) -> Broken | tuple[Any]:
    """Return the value of what only a lenient reader takes (NaN, a mark in the middle), or what is wrong with it."""
    try:
        written = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return Broken(place, "not_utf8", f"byte {error.start} of the record is 0x{raw[error.start]:02x}")
    try:
        value = json.loads(written.lstrip("\ufeff"))
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return Broken(place, "lone_surrogate", "half of a character, such as \\ud83d, which no file can hold")
    except RecursionError:
        return Broken(place, "broken_json", "nested too deep")
    except ValueError as error:
        return Broken(place, "broken_json", str(error)[:200])
    return (value,)


def _lines(path: Path, kind: Kind, encoding: str | None) -> Iterator[Rows]:
    block, number, rest = _Block(), 0, b""
    skipping = 0
    try:
        for chunk in chunks(path, kind.packing, encoding=encoding):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                number += 1
                if skipping:
                    block.rows.broken.append(Broken(number, "record_too_long", f"{skipping + len(line):,} bytes"))
                    skipping = 0
                elif line and not line.isspace():
                    block.add(number, line)
                if block.full:
                    yield block.take()
            if len(rest) > LONGEST:
                skipping, rest = skipping + len(rest), b""
    except ReadError as error:
        block.rows.broken.append(Broken(number + 1, "cut_off", str(error)))
        rest = b""
    if skipping:
        block.rows.broken.append(Broken(number + 1, "record_too_long", f"{skipping + len(rest):,} bytes"))
    elif rest and not rest.isspace():
        block.add(number + 1, rest)
    yield block.take()


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)
"""A text, the beginning of one that ends in a later chunk, or a bracket."""
_NEXT = re.compile(rb"[,\n]\s*(?=\{)")
"""Where an element may begin."""
_LENIENT = json.JSONDecoder(strict=False)


def _array(path: Path, kind: Kind, encoding: str | None) -> Iterator[Rows]:
    """Cut one array into its elements. Where brackets do not match, go on at what looks like the next element."""
    block, buffer, offset = _Block(), b"", 0
    scan = start = depth = 0
    try:
        for chunk in chunks(path, kind.packing, encoding=encoding):
            buffer += chunk
            while True:
                scan, start, depth, ended = _scan(buffer, scan, start, depth, offset, block)
                if block.full:
                    yield block.take()
                if not ended:
                    break
            if len(buffer) - start > LONGEST and depth > 1:
                block.rows.broken.append(Broken(offset + start, "record_too_long", "or its brackets do not match"))
                found = _NEXT.search(buffer, start + 1)
                start = scan = found.end() if found else len(buffer)
                depth = 1
            keep = start if depth > 1 else scan
            buffer, offset, scan, start = buffer[keep:], offset + keep, scan - keep, max(0, start - keep)
    except ReadError as error:
        block.rows.broken.append(Broken(offset + len(buffer), "cut_off", str(error)))
    if depth > 1:
        yield from _unbalanced(buffer, start, offset, block)
    elif buffer[scan:].strip() and not buffer[scan:].strip().startswith(b","):
        block.add(offset + scan, buffer[scan:].strip())
    yield block.take()


def _scan(buffer: bytes, scan: int, start: int, depth: int, offset: int, block: _Block) -> tuple[int, int, int, bool]:
    """Read on from `scan`; return (scan, start of the open element, depth, whether a block is full)."""
    for match in _TOKEN.finditer(buffer, scan):
        token = match[0]
        if token == b'"':
            break  # the text goes on in the next chunk
        if token[0] == 0x22:
            pass
        elif token in b"{[":
            if depth == 1 or (depth == 0 and token == b"{"):
                start, depth = match.start(), max(depth, 1)
            depth += 1
        else:
            depth = max(0, depth - 1)
            if depth == 1:
                block.add(offset + start, buffer[start : match.end()])
                start = match.end()
                if block.full:
                    return match.end(), start, depth, True
        scan = match.end()
    return scan, start, depth, False


def _unbalanced(buffer: bytes, start: int, offset: int, block: _Block) -> Iterator[Rows]:
    """Tell of the element that never ends; read those behind it that are whole, and have the keys of one before it."""
    block.rows.broken.append(Broken(offset + start, "broken_json", "its brackets do not match, or the file ends in it"))
    characters = buffer.decode("latin-1")  # one for a byte: only to find where an element ends
    keys = block.keys
    place = start + 1
    while found := _NEXT.search(buffer, place):
        place = found.end()
        try:
            _, end = _LENIENT.raw_decode(characters, place)
            value = orjson.loads(buffer[place:end])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and (not keys or 2 * len(value.keys() & keys) >= len(keys)):
            block.put(offset + place, value)
            place = end
        if block.full:
            yield block.take()


def _table(path: Path, kind: Kind, encoding: str | None) -> Iterator[Rows]:
    block, problems = _Block(), _Problems()
    delimiter = "\t" if kind.suffix == ".tsv" else ","
    reader = csv.reader(_decoded(path, kind, encoding, problems), delimiter=delimiter, strict=False)
    header: list[str] | None = None
    while True:
        before = reader.line_num
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            block.rows.broken.append(Broken(before + 1, "broken_csv", str(error)))
            continue
        if header is None:
            header = [name.strip() for name in row]
            continue
        wrong = problems.within(before + 1, reader.line_num)
        if wrong:
            block.rows.broken.append(Broken(before + 1, "not_utf8", wrong))
        elif row and len(row) != len(header):
            block.rows.broken.append(Broken(before + 1, "broken_csv", f"{len(row)} fields, {len(header)} columns"))
        elif row:
            block.put(before + 1, {name: _cell(cell) for name, cell in zip(header, row, strict=True)})
            block.size += sum(map(len, row))
        if block.full:
            yield block.take()
    if problems.cut:
        block.rows.broken.append(Broken(reader.line_num + 1, "cut_off", problems.cut))
    yield block.take()


class _Problems:
    """Lines that are not UTF-8, until the row that they belong to is known."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        self.cut = ""

    def within(self, start: int, stop: int) -> str:
        """Return what is wrong between two lines, if anything is, and forget it."""
        found = [number for number in self.lines if start <= number <= stop] if self.lines else []
        texts = [self.lines.pop(number) for number in found]
        return texts[0] if texts else ""


def _decoded(path: Path, kind: Kind, encoding: str | None, problems: _Problems) -> Iterator[str]:
    number, rest = 0, b""
    try:
        for chunk in chunks(path, kind.packing, encoding=encoding):
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            for line in lines:
                number += 1
                yield _line(line + b"\n", number, problems)
            if len(rest) > LONGEST:  # a quote that never ends: csv says so
                yield _line(rest, number, problems)
                rest = b""
    except ReadError as error:
        problems.cut = str(error)
        return
    if rest:
        yield _line(rest, number + 1, problems)


def _line(raw: bytes, number: int, problems: _Problems) -> str:
    try:
        return raw.decode("utf-8").replace("\0", "\ufffd")
    except UnicodeDecodeError as error:
        problems.lines[number] = f"byte {error.start} of line {number} is 0x{raw[error.start]:02x}"
        return raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")


def _cell(cell: str) -> Any:
    """Return what a cell holds: JSON where it is a list or an object, nothing where it is empty, else its text."""
    if not cell:
        return None
    if cell[0] in "[{" and cell[-1] in "]}":
        try:
            return orjson.loads(cell)
        except ValueError:
            return cell
    return cell


def _parquet(path: Path, kind: Kind) -> Iterator[Rows]:
    number = 0
    try:
        with seekable(path, kind.packing) as raw, pq.ParquetFile(raw, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=BLOCK_ROWS // 2):
                places = list(range(number + 1, number + batch.num_rows + 1))
                yield Rows(places, batch.to_pylist(), [])
                number += batch.num_rows
    except (pa.ArrowException, OSError, ReadError, UnicodeDecodeError) as error:
        yield Rows([], [], [Broken(number + 1, "broken_parquet", f"{str(error)[:200]}")])
