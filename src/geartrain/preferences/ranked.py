"""Forms that say which answer is better: chosen and rejected, A or B, a list by rank."""

import re
from collections.abc import Sequence
from typing import Any

from geartrain.preferences.records import Candidate, DefectError, Draft, Message
from geartrain.preferences.texts import first, is_transcript, messages, number, part, text, time_of, transcript

Record = dict[str, Any]
_QUESTION, _ANSWER = "\n\nHuman:", "\n\nAssistant:"
_CHOSEN = (1.0, 0.0)
"""How good the chosen and the rejected answer are, where nothing more is said."""
_PLAIN = {"prompt", "chosen", "rejected"}
PROMPTS = ("prompt", "instruction", "question", "input", "query")
TASKS = ("task", "family", "category", "dataset", "source")
IDS = ("id", "prompt_id", "uid", "question_id")
_SIDES = (
    *(("response_a", "response_b"), ("response_1", "response_2"), ("answer_a", "answer_b")),
    *(("completion_a", "completion_b"), ("conversation_a", "conversation_b"), ("response_0", "response_1")),
    *(("output_1", "output_2"), ("A", "B"), ("a", "b")),
)
_VERDICTS = ("winner", "preferred", "preference", "better", "label", "choice")
_FIRST = frozenset({"a", "model_a", "response_a", "answer_a", "response_1", "first", "left"})
_SECOND = frozenset({"b", "model_b", "response_b", "answer_b", "response_2", "second", "right"})
_TIE = re.compile(r"tie|both|neither|equal|same|draw", re.IGNORECASE)


def is_nectar(record: Record) -> bool:
    """Tell whether a record is a prompt and a list of ranked answers."""
    answers = record.get("answers")
    return isinstance(answers, list) and bool(answers) and isinstance(answers[0], dict) and "rank" in answers[0]


def read_nectar(record: Record) -> Draft:
    """Read a list by rank; equal ranks are ties. Raises DefectError."""
    answers = record.get("answers")
    if not isinstance(answers, list) or len(answers) < 2:
        raise DefectError("missing_key", "answers: two or more")
    candidates = []
    for index, answer in enumerate(answers):
        if not isinstance(answer, dict):
            raise DefectError("nested_list" if isinstance(answer, list) else "not_a_message", f"answers[{index}]")
        rank = number(answer.get("rank"), f"answers[{index}].rank")
        said = text(first(answer, ("answer", "response", "content", "text")), f"answers[{index}]")
        candidates.append(Candidate([("assistant", said)], rank=int(rank)))
    values = [-float(candidate.rank or 0) for candidate in candidates]
    return draft_of(record, prompt_of(record, required=True), candidates, values, ordered=True)


def is_hh(record: Record) -> bool:
    """Tell whether a record is two transcripts."""
    both = (record.get("chosen"), record.get("rejected"))
    return all(isinstance(side, str) for side in both) and any(is_transcript(str(side)) for side in both)


def read_hh(record: Record) -> Draft:
    """Read two transcripts; what they begin with alike is the prompt. Raises DefectError."""
    chosen, rejected = record.get("chosen"), record.get("rejected")
    quick = _last_turns(chosen, rejected) if type(chosen) is str and type(rejected) is str else None
    if quick is not None:
        prompt, good, bad = quick
        return draft_of(record, prompt, [Candidate([("assistant", good)]), Candidate([("assistant", bad)])], _CHOSEN)
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        if not is_transcript(text(side, name)):
            raise DefectError("not_a_transcript", name)
    return _parted(record, [], transcript(str(chosen), "chosen"), transcript(str(rejected), "rejected"))


def _last_turns(chosen: str, rejected: str) -> tuple[list[Message], str, str] | None:
    """Return prompt and answers of two transcripts that differ in the last turn alone, as nearly all do; else None."""
    head, tag, good = chosen.rpartition(_ANSWER)
    other, _, bad = rejected.rpartition(_ANSWER)
    if not tag or not head or head != other or _QUESTION in good or _QUESTION in bad:
        return None
    good, bad = good.strip(), bad.strip()
    if not good or not bad or "\r" in chosen or "\r" in rejected:
        return None
    if head.startswith(_QUESTION) and head.rfind(_QUESTION) == 0 and _ANSWER not in head:
        asked = head[len(_QUESTION) :].strip()
        return ([("user", asked)], good, bad) if asked else None
    return transcript(head, "chosen"), good, bad


def is_pairs(record: Record) -> bool:
    """Tell whether a record has a chosen and a rejected answer."""
    return "chosen" in record and "rejected" in record


def read_pairs(record: Record) -> Draft:
    """Read a chosen and a rejected answer, with scores where they are given. Raises DefectError."""
    if record.keys() == _PLAIN and (quick := _plain_texts(record)):
        prompt, good, bad = quick
        return Draft([("user", prompt)], [Candidate([("assistant", good)]), Candidate([("assistant", bad)])], _CHOSEN)
    chosen, rejected = (messages(record.get(name), name, speaker="assistant") for name in ("chosen", "rejected"))
    draft = _parted(record, prompt_of(record, required=False), chosen, rejected)
    if record.get("score_chosen") is None or record.get("score_rejected") is None:
        return draft
    better, worse = (number(record[name], name) for name in ("score_chosen", "score_rejected"))
    if better < worse:
        raise DefectError("scores_against_label", f"chosen {better:g}, rejected {worse:g}")
    first_one, second = draft.candidates
    return draft._replace(
        candidates=[first_one._replace(score=better), second._replace(score=worse)], values=[better, worse]
    )


def _plain_texts(record: Record) -> list[str] | None:
    """Return prompt and answers that are texts without speakers, as most are; else None: look closer."""
    found = []
    for name in ("prompt", "chosen", "rejected"):
        value = record[name]
        if type(value) is not str or "Human:" in value or "Assistant:" in value or "\r" in value:
            return None
        value = value.strip()
        if not value:
            return None
        found.append(value)
    return found


def _parted(record: Record, prompt: Sequence[Message], chosen: list[Message], rejected: list[Message]) -> Draft:
    if prompt:  # conversations may begin with the prompt that also stands alone
        chosen, rejected = (_without(side, prompt) for side in (chosen, rejected))
    same = part(chosen, rejected)
    shown = [*prompt, *chosen[:same]]
    if not shown:
        raise DefectError("no_prompt", "the answers begin with nothing alike, and there is no prompt")
    return draft_of(record, shown, [Candidate(chosen[same:]), Candidate(rejected[same:])], _CHOSEN)


def _without(side: list[Message], prompt: Sequence[Message]) -> list[Message]:
    length = len(prompt)
    return side[length:] if len(side) > length and side[:length] == list(prompt) else side


def is_ab(record: Record) -> bool:
    """Tell whether a record has two answers and a verdict."""
    return _sides(record) is not None and (_verdict_key(record) is not None or _is_one_hot(record))


def read_ab(record: Record) -> Draft:
    """Read two answers in the order in which they were shown, and the verdict. Raises DefectError."""
    keys = _sides(record)
    if keys is None:
        raise DefectError("missing_key", "two answers, such as response_a and response_b")
    both = [messages(record.get(key), key, speaker="assistant") for key in keys]
    prompt = prompt_of(record, required=False)
    wins = _verdict(record)
    draft = _parted(record, prompt, both[0], both[1])
    return draft._replace(values=wins, ordered=True)


def _sides(record: Record) -> tuple[str, str] | None:
    return next((pair for pair in _SIDES if pair[0] in record and pair[1] in record), None)


def _verdict_key(record: Record) -> str | None:
    return next((key for key in ("preference_strength", *_VERDICTS) if key in record), None)


def _is_one_hot(record: Record) -> bool:
    return "winner_model_a" in record and "winner_model_b" in record


def _verdict(record: Record) -> tuple[float, float]:
    if _is_one_hot(record):
        return number(record["winner_model_a"], "winner_model_a"), number(record["winner_model_b"], "winner_model_b")
    key = _verdict_key(record)
    said = record.get(key) if key else None
    if key is None or said is None:
        raise DefectError("missing_key", f"which is better: {', '.join(_VERDICTS)} or preference_strength")
    if key == "preference_strength":  # HelpSteer2's: below 0 the first is better
        strength = number(said, key)
        return max(0.0, -strength), max(0.0, strength)
    word = str(said).strip().lower()
    if word in _FIRST or word in {"0", "0.0"}:
        return 1.0, 0.0
    if word in _SECOND or word in {"1", "1.0"}:
        return 0.0, 1.0
    if _TIE.search(word):
        return 0.0, 0.0
    raise DefectError("verdict_unknown", f"{key} is {said!r:.40}")


def prompt_of(record: Record, *, required: bool) -> list[Message]:
    """Return the messages that a record asks with; none where it has none. Raises DefectError."""
    value = first(record, PROMPTS)
    if value is None:
        if required:
            raise DefectError("missing_key", f"one of {', '.join(PROMPTS)}")
        return []
    if isinstance(value, str) and is_transcript(value):
        return transcript(value, "prompt", open_end=True)
    return messages(value, "prompt", speaker="user")


def draft_of(
    record: Record,
    prompt: Sequence[Message],
    candidates: Sequence[Candidate],
    values: Sequence[float],
    *,
    ordered: bool = False,
) -> Draft:
    """Return a draft with what a record says of itself: id, task, time."""
    if len(record) == 2:  # the two sides, and nothing else
        return Draft(prompt, candidates, values, ordered)
    name, task = first(record, IDS), first(record, TASKS)
    return Draft(
        prompt,
        candidates,
        values,
        ordered,
        None if name is None else str(name),
        task if isinstance(task, str) else None,
        None,
        time_of(record),
    )
