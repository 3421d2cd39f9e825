"""Forms that label each step of an answer: PRM800K's, and prompt, completions, labels (TRL's, Math-Shepherd's)."""

from collections.abc import Sequence
from typing import Any

from geartrain.preferences.ranked import draft_of, prompt_of
from geartrain.preferences.records import Candidate, DefectError, Draft
from geartrain.preferences.texts import number, text

Record = dict[str, Any]
Step = tuple[str, float]
MOST_ALTERNATIVES = 8
"""Answers that one record of PRM800K may give."""


def is_stepwise(record: Record) -> bool:
    """Tell whether a record has labels of steps."""
    label = record.get("label")
    if isinstance(label, dict) and isinstance(label.get("steps"), list):
        return True
    return isinstance(record.get("completions"), list) and isinstance(record.get("labels"), list)


def read_stepwise(record: Record) -> Draft:
    """Read steps and their labels. Raises DefectError."""
    if isinstance(record.get("label"), dict):
        return _prm800k(record)
    texts, labels = record.get("completions"), record.get("labels")
    if not isinstance(texts, list) or not isinstance(labels, list) or not texts:
        raise DefectError("missing_key", "completions and labels, two lists")
    if len(texts) != len(labels):  # rl-faults D8
        raise DefectError("labels_not_aligned", f"{len(texts)} steps, {len(labels)} labels")
    steps = [(text(said, f"completions[{i}]"), _label(labels[i], f"labels[{i}]")) for i, said in enumerate(texts)]
    return draft_of(record, prompt_of(record, required=True), [_answer(steps)], ())


def _prm800k(record: Record) -> Draft:
    question = record.get("question")
    problem = question.get("problem") if isinstance(question, dict) else question
    prompt = [("user", text(problem, "question.problem"))]
    listed = record["label"].get("steps")
    if not isinstance(listed, list) or not listed:
        raise DefectError("missing_key", "label.steps")
    done: list[Step] = []
    for index, step in enumerate(listed):
        rated = _rated(step, index)
        chosen = step.get("chosen_completion")
        if index == len(listed) - 1 or not isinstance(chosen, int) or not 0 <= chosen < len(rated):
            break
        done.append(rated[chosen])
    # the last step has alternatives to choose from: they share all that came before them
    answers = [_answer([*done, last]) for last in rated[:MOST_ALTERNATIVES]]
    values = [last for _, last in rated[:MOST_ALTERNATIVES]]
    return draft_of(record, prompt, answers, values if len(set(values)) > 1 else ())


def _rated(step: Any, index: int) -> list[Step]:
    where = f"label.steps[{index}]"
    completions = step.get("completions") if isinstance(step, dict) else None
    human = step.get("human_completion") if isinstance(step, dict) else None
    if isinstance(human, dict):
        completions = [*(completions or []), {"rating": 1, **human}]
    if not isinstance(completions, list):
        raise DefectError("nested_list" if isinstance(step, list) else "missing_key", f"{where}.completions")
    usable = [one for one in completions if isinstance(one, dict) and one.get("rating") is not None]
    if not usable:
        raise DefectError("missing_key", f"{where}: no rated completion")
    return [(text(one.get("text"), where), _label(one["rating"], where)) for one in usable]


def _label(value: Any, where: str) -> float:
    return float(value) if isinstance(value, bool) else number(value, where)


def _answer(steps: Sequence[Step]) -> Candidate:
    return Candidate([("assistant", "\n".join(said for said, _ in steps))], steps=steps)
