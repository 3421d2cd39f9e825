"""Files as streams of bytes: unpacked (.gz, .zst), and in UTF-8 whatever byte-order mark they begin with.

What cannot be read further (a packed file that was cut off) raises ReadError with the byte; what was read till then is
kept.
"""

import codecs
import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from geartrain.errors import UserError

KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
PACKED = (".gz", ".zst")
CHUNK = 1 << 20
"""Bytes read at a time."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class ReadError(Exception):
    """A file that can be read up to a byte and no further."""


class Kind(NamedTuple):
    """What a file is by its name."""

    suffix: str
    """One of `KINDS`."""
    packing: str
    """One of `PACKED`, or ""."""


def kind_of(path: Path) -> Kind:
    """Return what a file is. Raises UserError: there is none, or its name says nothing that is known here."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packing = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
    if not suffixes or suffixes[-1] not in KINDS:
        raise UserError(
            f"{path}: what is it? Its name should end with one of {', '.join(KINDS)}, and may end with "
            f"{' or '.join(PACKED)} after that. Rename it."
        )
    return Kind(suffixes[-1], packing)


@contextmanager
def unpacked(path: Path, packing: str) -> Iterator[BinaryIO]:
    """Yield a file's bytes as a stream, unpacked."""
    with path.open("rb") as raw:
        if packing == ".gz":
            with gzip.open(raw) as stream:
                yield stream  # type: ignore[misc]
        elif packing == ".zst":
            with pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd") as stream:
                yield stream
        else:
            yield raw


def chunks(path: Path, packing: str, *, encoding: str | None = None) -> Iterator[bytes]:
    """Yield a file's text as UTF-8, in chunks, without a byte-order mark.

    Args:
        path: the file.
        packing: one of `PACKED`, or "".
        encoding: the file's own, where it is not UTF-8 and no mark says so. What is wrong in it becomes U+FFFD.

    Raises:
        ReadError: the packed file is broken; all before was yielded.
    """
    done = 0
    with unpacked(path, packing) as stream:
        decode = None
        while True:
            try:
                block = stream.read(CHUNK)
            except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
                raise ReadError(f"cannot be unpacked after byte {done:,} ({error})") from error
            if not block:
                break
            if not done:
                block, encoding = _without_mark(block, encoding)
                if encoding not in {None, "utf-8"}:
                    decode = codecs.getincrementaldecoder(encoding or "utf-8")(errors="replace").decode
            done += len(block)
            yield block if decode is None else decode(block).encode()


def _without_mark(block: bytes, encoding: str | None) -> tuple[bytes, str | None]:
    for mark, name in _MARKS:
        if block.startswith(mark):
            return block[len(mark) :], name
    return block, encoding


@contextmanager
def seekable(path: Path, packing: str) -> Iterator[BinaryIO]:
    """Yield a file that can be read anywhere; a packed one is unpacked to a temporary file first.

    Raises:
        ReadError: the packed file is broken.
    """
    if not packing:
        with path.open("rb") as raw:
            yield raw
        return
    with tempfile.TemporaryFile() as plain, unpacked(path, packing) as stream:
        try:
            shutil.copyfileobj(stream, plain, CHUNK)
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise ReadError(f"cannot be unpacked ({error})") from error
        plain.seek(0, io.SEEK_SET)
        yield plain
