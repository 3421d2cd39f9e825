"""Metrics against a reference answer, by the libraries that define them; loaded when one is first asked.

BLEU and chrF are sacrebleu's, per sentence and divided by 100; ROUGE-L is the
F-measure of rouge-score. `exact` is ours: equal after a declared normalisation.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

from geartrain.errors import UserError
from geartrain.rewards.channel import Tasks
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, measured
from geartrain.rewards.reading import read
from geartrain.trajectory import Trajectory

Measure = Callable[[str, str], float]
"""(answer, reference) -> a number in [0, 1]."""
_NUMBER = re.compile(r"^[^\d+-]{0,3}([+-]?\d[\d,' ]*(?:\.\d+)?)\s*%?\.?$")
LONGEST = 20_000
"""Characters of an answer that are measured: what is longer fails, since cutting it would flatter it."""


class Metric:
    """A metric as a channel of the reward."""

    def __init__(self, name: str, load: Callable[[], Measure]) -> None:
        self.name = name
        self._load = load
        self._measure: Measure | None = None

    @classmethod
    def loaded(cls, name: str) -> "Metric":
        """Return a metric whose library is there. Raises UserError if it is not installed, KeyError for no metric."""
        measure = METRICS[name]()
        return cls(name, lambda: measure)

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome in [0, 1] per trajectory. Raises UserError if the library is not installed."""
        if self._measure is None:
            self._measure = self._load()
        return [self._one(self._measure, trajectory, tasks) for trajectory in trajectories]

    def _one(self, measure: Measure, trajectory: Trajectory, tasks: Tasks) -> Outcome:
        task = tasks.get(trajectory.task_id)
        if task is None:
            return Failed("unknown_task", trajectory.task_id)
        reading = read(trajectory, task)
        if reading.reference is None:
            return NotApplicable("no_reference")
        if reading.answer is None:
            return NotApplicable("no_words_handed_in")
        if len(reading.answer) > LONGEST:
            return Failed("too_long", f"{len(reading.answer)} characters, at most {LONGEST} are measured")
        value = measure(reading.answer, reading.reference)
        return measured(value, f"{self.name} {value:.3f} against the reference")


def normalised(text: str) -> str:
    """Return a text as `exact` compares it: NFKC, case folded, blanks squeezed, quotes and the last stop taken off.

    A number is compared as a number: "1,200.0" and "$1200" are equal, "12" and "12.5" are not.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip("\"'`*")
    plain = plain.removesuffix(".").strip()
    number = _NUMBER.match(plain)
    if number:
        digits = re.sub(r"[,' ]", "", number.group(1))
        return f"{float(digits):.12g}"
    return plain


def exact_measure() -> Measure:
    """Return 1 where the normalised texts are equal, else 0."""
    return lambda answer, reference: float(normalised(answer) == normalised(reference))


def bleu_measure() -> Measure:
    """Return sentence BLEU, smoothed as sacrebleu does by default. Raises UserError without sacrebleu."""
    library = _sacrebleu()
    metric = library.BLEU(effective_order=True)
    return lambda answer, reference: metric.sentence_score(answer, [reference]).score / 100


def chrf_measure() -> Measure:
    """Return chrF2. Raises UserError without sacrebleu."""
    metric = _sacrebleu().CHRF()
    return lambda answer, reference: metric.sentence_score(answer, [reference]).score / 100


def rouge_measure() -> Measure:
    """Return the F-measure of ROUGE-L with stems. Raises UserError without rouge-score."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise UserError(_absent("rouge", "rouge-score")) from error
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    return lambda answer, reference: float(scorer.score(reference, answer)["rougeL"].fmeasure)


def _sacrebleu() -> Any:
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise UserError(_absent("bleu and chrf", "sacrebleu")) from error
    return metrics


def _absent(tool: str, package: str) -> str:
    return f"the reward tool {tool} needs {package}, which is not installed: pip install 'geartrain[metrics]'"


METRICS: dict[str, Callable[[], Measure]] = {
    "exact": exact_measure,
    "bleu": bleu_measure,
    "chrf": chrf_measure,
    "rouge": rouge_measure,
}
