"""The form that `preferences build` writes, read back: as Parquet, or as JSON of the same keys."""

from typing import Any

from geartrain.preferences.records import Candidate, DefectError, Draft, Message
from geartrain.preferences.texts import messages, number, text, time_of

Record = dict[str, Any]


def is_record(record: Record) -> bool:
    """Tell whether a record has our keys."""
    return isinstance(record.get("candidates"), list) and "prompt" in record


def read_record(record: Record) -> Draft:
    """Read a record: by its label, else its ranks, else its scores. Raises DefectError."""
    listed = record.get("candidates")
    if not isinstance(listed, list) or not listed:
        raise DefectError("missing_key", "candidates")
    candidates = [_candidate(entry, index) for index, entry in enumerate(listed)]
    prompt: list[Message] = messages(record.get("prompt"), "prompt", speaker="user")
    name, task, licence = (record.get(key) for key in ("id", "task", "licence"))
    return Draft(
        prompt,
        candidates,
        _values(record.get("label"), candidates),
        bool(record.get("ordered", False)),
        None if name is None else str(name),
        task if isinstance(task, str) else None,
        licence if isinstance(licence, str) else None,
        time_of(record),
    )


def _values(label: Any, candidates: list[Candidate]) -> list[float]:
    ranks = [candidate.rank for candidate in candidates]
    scores = [candidate.score for candidate in candidates]
    if all(rank is not None for rank in ranks):
        return [-float(rank) for rank in ranks if rank is not None]
    if all(score is not None for score in scores):
        return [score for score in scores if score is not None]
    if label is None:
        return []
    if not isinstance(label, int) or not 0 <= label < len(candidates):
        raise DefectError("verdict_unknown", f"label {label!r:.40} of {len(candidates)} candidates")
    return [float(index == label) for index in range(len(candidates))]


def _candidate(entry: Any, index: int) -> Candidate:
    where = f"candidates[{index}]"
    if not isinstance(entry, dict):
        raise DefectError("nested_list" if isinstance(entry, list) else "not_a_message", where)
    scores = {one["dimension"]: number(one["value"], where) for one in entry.get("scores") or () if one}
    steps = [(text(one["text"], where), number(one["label"], where)) for one in entry.get("steps") or () if one]
    score, rank = entry.get("score"), entry.get("rank")
    return Candidate(
        messages(entry.get("messages"), where, speaker="assistant"),
        scores or None,
        None if score is None else number(score, where),
        None if rank is None else int(number(rank, where)),
        steps,
    )
