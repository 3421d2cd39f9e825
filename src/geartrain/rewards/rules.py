"""Rules: what can be said of an answer by counting. Each is a pure function of what was read.

A rule answers in [0, 1], 1 for "nothing to object"; below `SOUND` the answer is
unsound. `wishes` of a task (`spec["wishes"]`) say what its answer should look
like: {"words": [3, 60], "language": "de", "format": "json", "keys": ["name"]}.
The limits were set on the probes of `rewards.probes` and are ours.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from geartrain.rewards import words as text
from geartrain.rewards.channel import Tasks
from geartrain.rewards.fusion import SOUND
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, measured
from geartrain.rewards.reading import Reading, read
from geartrain.trajectory import Trajectory

STRETCH = 12
"""Words among which a text for people has some that hold it together."""
LONGEST = 400
"""Words of an answer to a task that states no limit."""
ADDRESSED = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.\n]{0,60}\b(?:rubric|instruction|prompt|criteria|rule|guideline)"
    r"|\b(?:dear|note to|attention|as) (?:the |an? )?(?:\w+ )?"
    r"(?:judge|grader|evaluator|reviewer|assessor|language model|ai)\b"
    r"|\b(?:rate|score|grade|award|assign|give|mark)\b[^.\n]{0,40}\b"
    r"(?:(?:10|ten) ?(?:/|out of|of 10|points)|full marks|(?:highest|maximum|top|best) (?:score|mark|grade|rating))"
    r"|[\"'<\[{]\s*/?(?:score|verdict|winner|rating|nonce|answer_is_correct)\b[\"'>\]:]"
    r"|^\W*(?:score|verdict|rating|winner|final grade)\W*[:=]"
    r"|<\|?(?:im_(?:start|end)|system|assistant|endoftext|eot_id)",
    re.IGNORECASE | re.MULTILINE,
)
"""Words for a judge, not for who asked: verdicts, orders, marks of a chat's format."""


@dataclass(frozen=True)
class Finding:
    """What a rule found: how sound, and why; or that it does not apply."""

    value: float | None
    why: str


Judgement = Callable[[Reading], Finding]


class Rule:
    """A rule as a channel of the reward."""

    def __init__(self, name: str, judgement: Judgement) -> None:
        self.name = name
        self._judgement = judgement

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome in [0, 1] per trajectory."""
        return [self._one(trajectory, tasks) for trajectory in trajectories]

    def _one(self, trajectory: Trajectory, tasks: Tasks) -> Outcome:
        task = tasks.get(trajectory.task_id)
        if task is None:
            return Failed("unknown_task", trajectory.task_id)
        found = self._judgement(read(trajectory, task))
        return NotApplicable(found.why) if found.value is None else measured(found.value, found.why)


def length(reading: Reading) -> Finding:
    """Empty is 0; within the window 1; beyond it falls with the excess."""
    if reading.answer is None:
        return Finding(None, "no_words_handed_in")
    count = len(text.words(reading.answer))
    low, high = reading.wishes.get("words", (1, LONGEST))
    if not reading.answer.strip() or count == 0:
        return Finding(0.0, "empty")
    if count < low:
        return Finding(SOUND * count / (2 * low), f"{count} words, at least {low} are wanted")
    if count > high:
        return Finding(SOUND * 0.9 * high / count, f"{count} words, at most {high} are wanted")
    return Finding(1.0, f"{count} words, within {low} to {high}")


def repetition(reading: Reading) -> Finding:
    """Share of three-word runs, and of lines, that were not there before; a run of one character counts too."""
    tokens = text.words(reading.said)
    runs = text.shingles(tokens, 3)
    lines = [line.strip() for line in re.split(r"[\n.!?]+", reading.said) if len(line.split()) > 2]
    if re.search(r"(\S)\1{9,}", reading.said):
        return Finding(0.0, "one character ten times and more")
    fresh = min(
        len(set(runs)) / len(runs) if len(runs) >= 8 else 1.0,
        len(set(lines)) / len(lines) if len(lines) >= 3 else 1.0,
    )
    # prose repeats up to a tenth of its runs
    return Finding(max(0.0, min(1.0, (fresh - 0.5) / 0.4)), f"{100 * (1 - fresh):.0f} % was said before")


def copying(reading: Reading) -> Finding:
    """Share of the answer's four-word runs that are not the prompt's own."""
    if not reading.prose or not reading.answer:
        return Finding(None, "no_prose")
    asked, said = text.words(reading.prompt), text.words(reading.answer)
    if len(said) < 4:
        return Finding(1.0, "too short to be a copy")
    known = set(text.shingles(asked, 4))
    runs = text.shingles(said, 4)
    share = sum(run in known for run in runs) / len(runs)
    return Finding(1.0 - share, f"{100 * share:.0f} % of it is the prompt's own words")


def characters(reading: Reading) -> Finding:
    """Any control, format or private character, or a word of two alphabets, is unsound."""
    hidden, mixed = text.hidden_characters(reading.said), text.mixed_words(reading.said)
    if hidden:
        return Finding(0.0, f"hidden character U+{ord(hidden[0]):04X}, {len(hidden)} in all")
    if mixed and not text.mixed_words(reading.prompt):
        return Finding(0.0, f"{len(mixed)} words mix alphabets, such as {mixed[0]!a}")
    return Finding(1.0, "plain characters")


def tongue(reading: Reading) -> Finding:
    """1 in the language that is wished for, else in that of the prompt; unknown languages are not judged."""
    if not reading.prose or not reading.answer:
        return Finding(None, "no_prose")
    wanted = reading.wishes.get("language") or text.language(reading.prompt)
    found = text.language(reading.answer)
    if wanted is None or found is None:
        return Finding(None, "language_unknown")
    return Finding(float(found == wanted), f"in {found}, {wanted} is wanted")


def form(reading: Reading) -> Finding:
    """Where JSON is wished for: an object with the wished keys and nothing around it. Elsewhere it does not apply."""
    if reading.wishes.get("format") != "json" or reading.answer is None:
        return Finding(None, "no_format_wished")
    wanted = list(reading.wishes.get("keys", ()))
    try:
        found = json.loads(reading.answer)
    except (ValueError, RecursionError):
        return Finding(0.0, "no JSON, or more than JSON")
    if not isinstance(found, dict):
        return Finding(0.0, "JSON, and no object")
    missing, extra = [key for key in wanted if key not in found], [key for key in found if key not in wanted]
    if missing or extra:
        return Finding(SOUND / 2, f"keys missing: {missing}; keys too many: {extra}")
    return Finding(1.0, "an object with the wished keys")


def relevance(reading: Reading) -> Finding:
    """Whether the answer speaks of what was asked: content words of the prompt, or of a reference, that it names."""
    if not reading.prose or not reading.answer or "format" in reading.wishes:
        return Finding(None, "no_prose")
    said = set(text.content_words(reading.answer))
    known = set(text.content_words(reading.prompt)) | set(text.content_words(reading.reference or ""))
    if len(said) < 3 or len(known) < 3:
        return Finding(None, "too_short")
    # by stems of five letters: "invoices" answers a question after an "invoice"
    shared = {word[:5] for word in said} & {word[:5] for word in known}
    return Finding(min(1.0, len(shared) / 3), f"speaks of {len(shared)} of the things asked for")


def prose(reading: Reading) -> Finding:
    """Whether it is sentences: words of all sorts, held together by function words of a language."""
    if not reading.prose or not reading.answer or "format" in reading.wishes:
        return Finding(None, "no_prose")
    tokens = text.words(reading.answer)
    if len(tokens) < 8:
        return Finding(None, "too_short")
    # a heap of keywords after a sentence is a heap still: the worst stretch counts
    stretches = text.stretches(tokens, STRETCH)
    share = min(map(text.function_share, stretches))
    return Finding(min(1.0, share / 0.2), f"{100 * share:.0f} % function words where there are fewest")


def address(reading: Reading) -> Finding:
    """0 where it talks to a judge, gives itself a verdict, or holds marks of a chat's format."""
    asked = ADDRESSED.search(reading.prompt) is not None
    found = ADDRESSED.search(reading.said)
    if found is None or asked:
        return Finding(1.0, "speaks to who asked")
    return Finding(0.0, f"speaks to a judge: {found.group(0)[:60]!r}")


RULES: dict[str, Judgement] = {
    "length": length,
    "repetition": repetition,
    "copying": copying,
    "characters": characters,
    "language": tongue,
    "format": form,
    "relevance": relevance,
    "prose": prose,
    "address": address,
}
