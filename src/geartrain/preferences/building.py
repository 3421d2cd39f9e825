"""From files of any form to one checked data set: read once, compared on disk, written once.

    records.parquet     records of `records.SCHEMA`, in splits, in the order in which they were read
    quarantine.jsonl    source, place, reason and detail of each record that was left out
    quality.json, .md   what the data set is like

Memory is for one block of records and some 60 bytes for each; see `benchmarks/preferences.py`.
"""

import gc
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from geartrain.artifacts import write_atomically, write_json
from geartrain.errors import UserError
from geartrain.preferences.columns import Block, Columns
from geartrain.preferences.comparing import Compared
from geartrain.preferences.deciding import Decision, Fate, decide
from geartrain.preferences.held_out import hold_out
from geartrain.preferences.near import Spill
from geartrain.preferences.pairs import SPLITS
from geartrain.preferences.quality import to_markdown, told
from geartrain.preferences.records import SCHEMA, STAGED, Broken, DefectError
from geartrain.preferences.sources import Item, SourceFile, name_sources, read_items
from geartrain.preferences.tally import Tally
from geartrain.progress import bar

RECORDS, QUARANTINE, QUALITY, MARKDOWN = "records.parquet", "quarantine.jsonl", "quality.json", "quality.md"
STAGED_ROWS = 4096
GROUP_ROWS, GROUP_BYTES = 32_768, 48 << 20
"""A row group of the result."""
_REPEATED = (
    *("split", "task", "language", "source", "licence", "flags.list.element", "prompt.list.element.role"),
    *("candidates.list.element.messages.list.element.role", "candidates.list.element.scores.list.element.dimension"),
)
"""Columns whose values come again and again; others would fill a dictionary in vain."""
HOPELESS = 5000
"""Records that are read before a build is given up of which none could be used."""
_EXAMPLES = 5


@dataclass(frozen=True)
class Options:
    """How a data set is built."""

    validation_share: float = 0.2
    max_rejected_share: float = 0.5
    """The build stops when more than this share of the records is left out."""
    max_tokens: int = 160
    """Length of the reward model: pairs that are equal in so many last words are equal to it."""
    near: bool = True
    """Whether near duplicates are looked for; otherwise prompts lie together if they are equal."""
    held_out: Sequence[str] = ()
    """Prompts that must not be given away."""
    earlier: Path | None = None
    """`records.parquet` of an earlier build, whose prompts keep their splits."""


def build(sources: Sequence[SourceFile], options: Options, *, output: Path, work: Path) -> dict[str, Any]:
    """Build a data set into the folder `output`; return what its `quality.json` says.

    Args:
        sources: what it is built from, in the order in which records come "before" others.
        options: how.
        output: folder that exists; whoever calls sees to it that nobody reads it half written.
        work: folder for what is compared on disk; it is emptied first, and removed.

    Raises:
        UserError: a file is missing or of no known form, nothing can be used, or too much is left out.
    """
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spill = Spill(work / "columns")
    try:
        with (output / QUARANTINE).open("w", encoding="utf-8") as quarantine:
            return _build(list(sources), options, output, work, spill, _Quarantine(quarantine))
    finally:
        spill.close()
        shutil.rmtree(work, ignore_errors=True)


def _build(
    sources: list[SourceFile], options: Options, output: Path, work: Path, spill: Spill, aside: "_Quarantine"
) -> dict[str, Any]:
    compared = Compared(spill, hold_out(options.held_out) if options.held_out else None, near=options.near)
    earlier = compared.recall(options.earlier) if options.earlier else None
    staged = work / "staged.arrow"
    forms = _read(sources, options, staged, compared, aside)
    if not compared.records:
        raise UserError(
            f"{', '.join(str(source.path) for source in sources)}: no record that can be used "
            f"({aside.listed() or 'the files are empty'}). {aside.example()}"
        )
    _check(aside, compared.records, options)
    decision = decide(spill, validation_share=options.validation_share, earlier_L=earlier)
    lost = Counter(decision.fate_N.tolist())
    lost.pop(int(Fate.KEPT), None)
    kept = compared.records - sum(lost.values())
    aside.expect({Fate(fate).name.lower(): count for fate, count in lost.items()})
    _check(aside, kept, options)
    tally = Tally()
    _write(staged, output / RECORDS, decision, tally, aside)
    report = told(tally, forms=forms, reasons=aside.reasons, examples=aside.examples, options=_asked(options))
    write_json(output / QUALITY, report)
    write_atomically(output / MARKDOWN, to_markdown(report))
    return report


def _asked(options: Options) -> dict[str, Any]:
    return {
        "validation_share": options.validation_share,
        "max_tokens": options.max_tokens,
        "near_duplicates": options.near,
        "held_out_prompts": len(options.held_out),
        "grown_from_earlier": options.earlier is not None,
    }


class _Quarantine:
    """Where what is left out is told of."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self._expected = False

    def add(self, source: str, broken: Broken) -> None:
        """Tell of a record."""
        if not self._expected:
            self.reasons[broken.reason] += 1
        shown = self.examples.setdefault(broken.reason, [])
        if len(shown) < _EXAMPLES:
            shown.append(f"{source}:{broken.place}" + (f" ({broken.detail})" if broken.detail else ""))
        entry = {"source": source, "place": broken.place, "reason": broken.reason, "detail": broken.detail}
        self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def expect(self, reasons: Mapping[str, int]) -> None:
        """Count what will be told of from now on."""
        self.reasons.update(reasons)
        self._expected = True

    def listed(self) -> str:
        """Return the reasons, the commonest first."""
        return ", ".join(f"{count:,} {reason}" for reason, count in self.reasons.most_common())

    def example(self) -> str:
        """Return a place of the commonest reason."""
        for reason, _ in self.reasons.most_common(1):
            return f"The first: {self.examples[reason][0]}." if reason in self.examples else ""
        return ""


def _check(aside: _Quarantine, kept: int, options: Options) -> None:
    """Raise UserError if too much is left out."""
    lost = sum(aside.reasons.values())
    if lost > options.max_rejected_share * (lost + kept):
        raise UserError(
            f"{lost:,} of {lost + kept:,} records would be left out ({aside.listed()}), more than max_rejected_share "
            f"({options.max_rejected_share:g}). {aside.example()} Mend the file, or name its form or encoding; if they "
            "may be lost, raise the limit (--max-rejected-share, preferences.max_rejected_share)."
        )


def _read(
    sources: list[SourceFile], options: Options, staged: Path, compared: Compared, aside: _Quarantine
) -> dict[str, dict[str, Any]]:
    """Read all files to one of `STAGED`; return name -> form, records and licence of each."""
    told = {}
    packed = pa.ipc.IpcWriteOptions(compression="lz4")
    with (
        pa.OSFile(str(staged), "wb") as sink,
        pa.ipc.new_file(sink, STAGED, options=packed) as writer,
        bar("read", total=None) as advance,
        _without_collector(),
    ):
        for name, source in zip(name_sources(sources), sources, strict=True):
            columns = Columns(name, source.licence, max_tokens=options.max_tokens)
            form, seen, before = "", 0, compared.records
            for form, items in read_items(source):
                _add(columns, items, name, aside)
                seen += len(items)
                if seen >= HOPELESS and compared.records == before and not len(columns):
                    raise UserError(
                        f"{source.path}: none of the first {seen:,} records can be used ({aside.listed()}). "
                        f"{aside.example()} Read as {form or 'nothing known'}; name another form with --form."
                    )
                if len(columns) >= STAGED_ROWS:
                    _stage(writer, columns.take(), compared)
                advance(len(items))
            if len(columns):
                _stage(writer, columns.take(), compared)
            told[name] = {"form": form, "records": seen, "licence": source.licence or ""}
    return told


def _add(columns: Columns, items: Sequence[Item], name: str, aside: _Quarantine) -> None:
    for item in items:
        if isinstance(item, Broken):
            aside.add(name, item)
            continue
        try:
            columns.add(*item)
        except DefectError as defect:
            aside.add(name, Broken(item[0], defect.reason, defect.detail))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Leave out the collector of cyclic garbage: there is none here, and to look for it takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _stage(writer: Any, block: Block, compared: Compared) -> None:
    compared.add(block)
    writer.write_batch(block.batch)


def _write(staged: Path, target: Path, decision: Decision, tally: Tally, aside: _Quarantine) -> None:
    names = pa.array(SPLITS)
    with (
        bar("written", total=len(decision.fate_N)) as advance,
        pq.ParquetWriter(target, SCHEMA, compression="zstd", compression_level=3) as writer,
    ):
        gathered, rows, size = list[pa.RecordBatch](), 0, 0
        for first, batch in _batches(staged):
            fate_N = decision.fate_N[first : first + batch.num_rows]
            _tell(batch, fate_N, aside)
            split = names.take(pa.array(decision.split_N[first : first + batch.num_rows] % len(SPLITS)))
            kept = batch.append_column("split", split).filter(pa.array(fate_N == Fate.KEPT))
            advance(batch.num_rows)
            if not kept.num_rows:
                continue
            tally.add(kept)
            gathered.append(kept.select(SCHEMA.names))
            rows, size = rows + kept.num_rows, size + kept.nbytes
            if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(gathered), row_group_size=rows)
                gathered, rows, size = [], 0, 0
        if gathered:
            writer.write_table(pa.Table.from_batches(gathered), row_group_size=rows)


def _batches(staged: Path) -> Iterator[tuple[int, pa.RecordBatch]]:
    first = 0
    with pa.OSFile(str(staged), "rb") as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield first, batch
            first += batch.num_rows


def _tell(batch: pa.RecordBatch, fate_N: NDArray[np.uint8], aside: _Quarantine) -> None:
    lost = np.flatnonzero(fate_N != Fate.KEPT)
    if len(lost):
        part = batch.select(["source", "place"]).take(pa.array(lost))
        for source, place, fate in zip(
            part.column(0).to_pylist(), part.column(1).to_pylist(), fate_N[lost].tolist(), strict=True
        ):
            aside.add(source, Broken(place, Fate(fate).name.lower()))
