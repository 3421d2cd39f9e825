"""Forms that score each answer by dimension: UltraFeedback, HelpSteer2."""

from collections.abc import Sequence
from typing import Any

from geartrain.preferences.ranked import draft_of, prompt_of
from geartrain.preferences.records import Candidate, DefectError, Draft
from geartrain.preferences.texts import first, number, text

Record = dict[str, Any]
ATTRIBUTES = ("helpfulness", "correctness", "coherence", "complexity", "verbosity")
"""HelpSteer2's, from 0 to 4; its authors compare answers by the first."""


def is_ultrafeedback(record: Record) -> bool:
    """Tell whether a record is an instruction with scored completions."""
    completions = record.get("completions")
    if not isinstance(completions, list) or not completions or not isinstance(completions[0], dict):
        return False
    return bool(completions[0].keys() & {"annotations", "overall_score", "fine-grained_score"})


def read_ultrafeedback(record: Record) -> Draft:
    """Read an instruction and its scored completions; one that nobody scored is left out.

    The overall score is the mean over the aspects: the `overall_score` of the published files is wrong in thousands of
    rows (a critique's 1 became a 10), and stands in only where no aspect is rated. Raises DefectError.
    """
    completions = record.get("completions")
    if not isinstance(completions, list):
        raise DefectError("missing_key" if completions is None else "not_a_list", "completions")
    candidates = [found for index, one in enumerate(completions) if (found := _completion(one, index)) is not None]
    if len(candidates) < 2:
        raise DefectError("lone_answer", f"{len(candidates)} of {len(completions)} completions have scores")
    values = [candidate.score or 0.0 for candidate in candidates]
    return draft_of(record, prompt_of(record, required=True), candidates, values, ordered=True)


def _completion(one: Any, index: int) -> Candidate | None:
    where = f"completions[{index}]"
    if not isinstance(one, dict):
        raise DefectError("nested_list" if isinstance(one, list) else "not_a_message", where)
    scores: dict[str, float] = {}
    annotations = one.get("annotations")
    for aspect, given in annotations.items() if isinstance(annotations, dict) else ():
        rated = given[0] if isinstance(given, list) and given else given
        rating = rated.get("Rating") if isinstance(rated, dict) else None
        if rating is not None and str(rating).strip().upper() not in {"N/A", "NONE", ""}:
            scores[str(aspect)] = number(rating, f"{where}.{aspect}")
    if scores:
        score = sum(scores.values()) / len(scores)
    else:
        overall = first(one, ("fine-grained_score", "overall_score"))
        if overall is None:
            return None
        score = number(overall, f"{where}.overall_score")
    return Candidate([("assistant", text(one.get("response"), where))], scores, score)


def is_helpsteer2(record: Record) -> bool:
    """Tell whether a row is one answer with attributes."""
    return "response" in record and "prompt" in record and any(name in record for name in ATTRIBUTES)


def read_helpsteer2(records: Sequence[Record]) -> Draft:
    """Read the answers to one prompt. Raises DefectError."""
    candidates = []
    for record in records:
        scores = {name: number(record[name], name) for name in ATTRIBUTES if record.get(name) is not None}
        if "helpfulness" not in scores:
            raise DefectError("missing_key", "helpfulness")
        if not all(0.0 <= score <= 4.0 for score in scores.values()):
            raise DefectError("score_out_of_range", f"attributes go from 0 to 4, found {scores}")
        said = text(record.get("response"), "response")
        candidates.append(Candidate([("assistant", said)], scores, scores["helpfulness"]))
    if len(candidates) < 2:
        raise DefectError("lone_answer", "no other row beside it answers its prompt")
    values = [candidate.score or 0.0 for candidate in candidates]
    return draft_of(records[0], prompt_of(records[0], required=True), candidates, values, ordered=True)
