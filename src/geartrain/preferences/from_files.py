"""Records of files as pairs that the reward model reads, beside those of siblings.

    prompt      the last thing that the user says
    transcript  what was said before it, then a line feed, then the answer; each folded to one line

so that whoever cuts to length cuts the oldest turns, as with trajectories, and never the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from geartrain.datasets.transcript import SEPARATOR
from geartrain.preferences.columns import digest_of
from geartrain.preferences.pairs import FILES, Pair

Record = Mapping[str, Any]
_BATCH = 1024


def file_pairs(path: Path, *, per_record: int, most: int) -> list[Pair]:
    """Return the pairs of `records.parquet`, in its order: the best answer against the worst, the second best, …

    Args:
        path: what `building.build` wrote.
        per_record: at most this many of one record.
        most: at most about this many in all; which prompts stay depends on a hash of each alone.
    """
    spans, records = _spans(path)
    share = min(1.0, most / max(1, records))
    found: list[Pair] = []
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH):
            for record in batch.to_pylist():
                digest = digest_of([(m["role"], m["content"]) for m in record["prompt"]])
                if int.from_bytes(digest, "little") < share * 2**64:
                    found += _pairs(record, digest.hex(), per_record, spans)
    return found[:most]


def _spans(path: Path) -> tuple[dict[str, float], int]:
    """Return by how much the scores of each source differ at most, and how many records there are."""
    ends: dict[str, list[float]] = {}
    records = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH * 8, columns=["source", "candidates"]):
            records += batch.num_rows
            names = batch.column("source").take(pc.list_parent_indices(batch.column("candidates")))
            scores = batch.column("candidates").flatten().field("score")
            for name in pc.unique(names).to_pylist():
                ranged = pc.min_max(pc.filter(scores, pc.equal(names, name)))
                found = [end for end in (ranged["min"].as_py(), ranged["max"].as_py()) if end is not None]
                ends.setdefault(name, []).extend(found)
    return {name: max(found) - min(found) for name, found in ends.items() if found}, records


def _pairs(record: Record, name: str, per_record: int, spans: Mapping[str, float]) -> Iterator[Pair]:
    candidates = record["candidates"]
    values, span = _values(record, candidates, spans)
    order = sorted(range(len(values)), key=lambda place: -values[place])
    before, asked = _asked(record["prompt"])
    for worse in order[:0:-1][:per_record]:
        best = order[0]
        if values[best] == values[worse]:
            return
        yield Pair(
            task_id=f"{FILES}{name}",
            family=record["task"] or record["source"],
            split=record["split"],
            prompt=asked,
            chosen=_transcript(before, candidates[best]["messages"]),
            rejected=_transcript(before, candidates[worse]["messages"]),
            margin=round(min(1.0, (values[best] - values[worse]) / span), 6),
            chosen_id=f"{record['source']}:{record['place']}/{best}",
            rejected_id=f"{record['source']}:{record['place']}/{worse}",
            origin=f"{FILES}{record['source']}",
        )


def _values(record: Record, candidates: Sequence[Any], spans: Mapping[str, float]) -> tuple[list[float], float]:
    """Return how good each answer is, and how far apart two can be; nothing where none is preferred."""
    ranks, scores = ([one[name] for one in candidates] for name in ("rank", "score"))
    if None not in ranks:
        return [-float(rank) for rank in ranks], max(1.0, float(max(ranks) - min(ranks)))
    if None not in scores:
        return scores, spans.get(record["source"]) or 1.0
    label = record["label"]
    return ([] if label is None else [float(place == label) for place in range(len(candidates))]), 1.0


def _asked(prompt: Sequence[Any]) -> tuple[list[str], str]:
    """Return what was said before the last question, and that question."""
    last = max((place for place, message in enumerate(prompt) if message["role"] == "user"), default=len(prompt) - 1)
    said = [f"{message['role']} {_fold(message['content'])}" for message in prompt]
    return [*said[:last], *said[last + 1 :]], _fold(prompt[last]["content"])


def _transcript(before: Sequence[str], messages: Sequence[Any]) -> str:
    between = [f"{message['role']} {_fold(message['content'])}" for message in messages[:-1]]
    return "; ".join([*before, *between]) + SEPARATOR + _fold(messages[-1]["content"])


def _fold(text: str) -> str:
    return " ".join(text.split())
