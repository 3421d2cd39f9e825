"""Our own forms: what `preferences build` wrote, as Parquet or as JSON of the same keys; and siblings of rollouts."""

from collections.abc import Sequence
from typing import Any

from geartrain.datasets.transcript import render
from geartrain.preferences.records import Candidate, DefectError, Draft, Message
from geartrain.preferences.texts import messages, number, text, time_of
from geartrain.trajectory import Trajectory, from_record

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


def is_trajectory(record: Record) -> bool:
    """Tell whether a record is an episode of ours."""
    return {"task_id", "sibling", "turns", "success"} <= record.keys()


def read_trajectories(records: Sequence[Record]) -> Draft:
    """Read the siblings of a task, whose prompt was put into them. Raises DefectError."""
    prompt = records[0].get("prompt")
    if prompt is None:
        raise DefectError("unknown_task", str(records[0].get("task_id")))
    played = [_played(record) for record in records]
    if len(played) < 2:
        raise DefectError("lone_answer", "an episode without siblings beside it")
    candidates = [
        Candidate(
            [("assistant", text(render(one), "turns"))],
            {"success": float(one.success), "progress": one.progress},
            one.outcome,
        )
        for one in played
    ]
    return Draft(
        [("user", text(prompt, "prompt"))],
        candidates,
        [one.outcome for one in played],
        id=played[0].task_id,
        task=played[0].family,
    )


def _played(record: Record) -> Trajectory:
    try:
        found = from_record({key: value for key, value in record.items() if key != "prompt"})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DefectError("malformed", f"{type(error).__name__}: {error!s:.120}") from error
    if not isinstance(found.success, bool):
        raise DefectError("verdict_not_boolean", repr(found.success)[:60])
    if not 0.0 <= found.progress <= 1.0:
        raise DefectError("progress_out_of_range", str(found.progress))
    if not found.turns:
        raise DefectError("no_turns")
    return found
