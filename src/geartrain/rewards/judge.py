"""A language model as a judge, behind any OpenAI-compatible server: scores by rubric, comparisons in both orders.

What it says is cached by what it was asked; every call has a time-out, is tried
again while its failure is a passing one, and is paid for in tokens and money
that are on record. A judge that cannot be reached, or says nothing that counts,
fails; it never says 0.
"""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Literal

from geartrain.completions import Completion, CompletionError, Server
from geartrain.rewards.channel import Tasks
from geartrain.rewards.outcome import NOTHING, Failed, NotApplicable, Outcome, Spent, Value, measured
from geartrain.rewards.reading import Reading, read
from geartrain.rewards.rules import address
from geartrain.rewards.verdicts import (
    HIGHEST,
    LOWEST,
    RUBRIC,
    Example,
    Verdict,
    comparing,
    new_nonce,
    read_score,
    read_winner,
    scoring,
)
from geartrain.trajectory import Trajectory

CACHED = 10_000
"""Answers of the server that are remembered; the oldest goes first."""
ANSWER_TOKENS = 512
Preference = Literal["first", "second", "undecided"]


@dataclass
class Statistics:
    """What a judge has done so far."""

    asked: int = 0
    """Verdicts that were wanted."""
    cached: int = 0
    unreadable: int = 0
    """Answers without a verdict that counts."""
    unreached: int = 0
    compared: int = 0
    """Pairs that were judged in both orders."""
    undecided: int = 0
    """Of them, those whose winner changed with the order."""
    first_wins: int = 0
    """Verdicts of compared pairs that went to whoever stood first; half of them all is no bias."""
    repeated: int = 0
    """Pairs of repeated scores of one answer."""
    agreed: int = 0
    """Of them, those that were equal."""
    spent: Spent = NOTHING

    @property
    def position_bias(self) -> float | None:
        """Share of verdicts for the first place minus one half, in [-0.5, 0.5]; None before any comparison."""
        return self.first_wins / (2 * self.compared) - 0.5 if self.compared else None

    @property
    def consistency(self) -> float | None:
        """Share of repeated scores that were equal; None where none was repeated."""
        return self.agreed / self.repeated if self.repeated else None


@dataclass
class Judge:
    """Asks, reads, remembers, counts."""

    server: Server
    rubric: str = RUBRIC
    examples: tuple[Example, ...] = ()
    samples: int = 1
    """Times that an answer is scored; their mean counts. Above 1 the temperature is above 0 too."""
    price_in: float = 0.0
    """Of a million tokens that are sent."""
    price_out: float = 0.0
    nonce: Callable[[], str] = new_nonce
    statistics: Statistics = field(default_factory=Statistics)
    _cache: "OrderedDict[str, Verdict]" = field(default_factory=OrderedDict, repr=False)

    def rate(self, task: str, answer: str, reference: str | None = None) -> Value | Failed:
        """Return the mean score of an answer, in [0, 1]; a failure if any sample fails."""
        scores, spent, why = [], NOTHING, ""
        for sample in range(self.samples):
            ask = partial(scoring, task, answer, rubric=self.rubric, examples=self.examples, reference=reference)
            verdict, cost = self._verdict(ask, read_score, sample)
            spent += cost
            if isinstance(verdict, Failed):
                return Failed(verdict.reason, verdict.detail, spent)
            assert verdict.score is not None
            scores.append(verdict.score)
            why = why or verdict.why
        self._count_repeats(scores)
        mean = sum(scores) / len(scores)
        return measured((mean - LOWEST) / (HIGHEST - LOWEST), f"{mean:g} of {HIGHEST}: {why}", spent)

    def compare(self, task: str, first: str, second: str) -> tuple[Preference | Failed, Spent]:
        """Return which answer is better, asked in both orders; where the order decides, nobody wins."""
        ways, spent = [], NOTHING
        for a, b in ((first, second), (second, first)):
            verdict, cost = self._verdict(partial(comparing, task, a, b, rubric=self.rubric), read_winner, 0)
            spent += cost
            if isinstance(verdict, Failed):
                return verdict, spent
            ways.append(verdict.winner)
        self.statistics.compared += 1
        self.statistics.first_wins += ways.count("A")
        if ways == ["A", "B"]:
            return "first", spent
        if ways == ["B", "A"]:
            return "second", spent
        self.statistics.undecided += 1
        return "undecided", spent

    def _verdict(
        self,
        ask: Callable[..., list[dict[str, str]]],
        understand: Callable[[str, str], Verdict | None],
        sample: int,
    ) -> tuple[Verdict | Failed, Spent]:
        self.statistics.asked += 1
        key = sha256(json.dumps([self.server.url, self.server.model, sample, ask(nonce="")]).encode()).hexdigest()
        if key in self._cache:
            self.statistics.cached += 1
            self._cache.move_to_end(key)
            return self._cache[key], NOTHING
        nonce = self.nonce()
        options = {"temperature": 0 if self.samples == 1 else 0.7, "max_tokens": ANSWER_TOKENS}
        try:
            completion = self.server.complete(ask(nonce=nonce), **options)
        except CompletionError as error:
            self.statistics.unreached += 1
            spent = Spent(requests=error.tries)
            self.statistics.spent += spent
            return Failed(f"judge_{error.kind}", error.detail), spent
        spent = self._price(completion)
        self.statistics.spent += spent
        verdict = understand(completion.text, nonce)
        if verdict is None:
            self.statistics.unreadable += 1
            return Failed("no_verdict", completion.text[-80:]), spent
        self._cache[key] = verdict
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return verdict, spent

    def _price(self, completion: Completion) -> Spent:
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        price = (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6
        return Spent(completion.tries, tokens_in, tokens_out, price)

    def _count_repeats(self, scores: Sequence[int]) -> None:
        for score in scores[1:]:
            self.statistics.repeated += 1
            self.statistics.agreed += score == scores[0]


class JudgeScores:
    """The judge's score of each answer, as a channel of the reward; equal answers to a task cost one call."""

    name = "judge"

    def __init__(self, judge: Judge, *, shows_reference: bool = True) -> None:
        self._judge = judge
        self._shows_reference = shows_reference

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome in [0, 1] per trajectory."""
        return [self._one(trajectory, tasks) for trajectory in trajectories]

    def _one(self, trajectory: Trajectory, tasks: Tasks) -> Outcome:
        reading = _judged(trajectory, tasks)
        if not isinstance(reading, Reading):
            return reading
        assert reading.answer is not None
        return self._judge.rate(reading.prompt, reading.answer, reading.reference if self._shows_reference else None)


class JudgePairs:
    """Each answer against the next of its group, in both orders: its share of wins; an undecided pair is half a win.

    A ring of n comparisons (2n calls) orders nothing between those far apart; it
    is what a budget allows. A single answer has nobody to be compared with.
    """

    name = "judge_pairs"

    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        """Return one outcome in [0, 1] per trajectory."""
        outcomes: list[Outcome] = [NotApplicable("alone")] * len(trajectories)
        groups: dict[str, list[tuple[int, Reading]]] = defaultdict(list)
        for row, trajectory in enumerate(trajectories):
            reading = _judged(trajectory, tasks)
            if isinstance(reading, Reading):
                groups[trajectory.group_id].append((row, reading))
            else:
                outcomes[row] = reading
        for members in groups.values():
            if len(members) > 1:
                for row, outcome in self._ring(members):
                    outcomes[row] = outcome
        return outcomes

    def _ring(self, members: Sequence[tuple[int, Reading]]) -> list[tuple[int, Outcome]]:
        wins = [0.0] * len(members)
        met = [0] * len(members)
        spent = [NOTHING] * len(members)
        problem: Failed | None = None
        pairs = [(i, (i + 1) % len(members)) for i in range(len(members) if len(members) > 2 else 1)]
        for i, j in pairs:
            one, other = members[i][1], members[j][1]
            found, cost = self._judge.compare(one.prompt, one.answer or "", other.answer or "")
            spent[i] += cost
            if isinstance(found, Failed):
                problem = found
                continue
            met[i], met[j] = met[i] + 1, met[j] + 1
            wins[i] += {"first": 1.0, "second": 0.0, "undecided": 0.5}[found]
            wins[j] += {"first": 0.0, "second": 1.0, "undecided": 0.5}[found]
        results: list[tuple[int, Outcome]] = []
        for place, (row, _) in enumerate(members):
            if met[place]:
                why = f"won {wins[place]:g} of {met[place]} comparisons"
                results.append((row, measured(wins[place] / met[place], why, spent[place])))
            else:
                failed = problem or Failed("not_scored")
                results.append((row, Failed(failed.reason, failed.detail, spent[place])))
        return results


def _judged(trajectory: Trajectory, tasks: Tasks) -> Reading | Outcome:
    """Return what is put before a judge, or why nothing is: an answer that talks to it is not."""
    task = tasks.get(trajectory.task_id)
    if task is None:
        return Failed("unknown_task", trajectory.task_id)
    reading = read(trajectory, task)
    if reading.answer is None:
        return NotApplicable("no_words_handed_in")
    found = address(reading)
    if found.value == 0.0:
        return Failed("speaks_to_the_judge", found.why)
    return reading
