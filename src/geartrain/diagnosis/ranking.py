"""Which cause comes first.

Signs are looked for, then causes whose proof is among them are scored:

    score = weight x strength of the proof
          + sum over the other signs that it would show, and that are there since the proof or later:  share x strength
          - sum over those that could be looked for and are not there:                                 share / 2

A sign that was there before its supposed cause is not explained by it. What a run has not recorded counts for nothing,
and is told.

Then what follows from something else steps back: a cause whose whole proof is shown by another, which itself has a
proof that the first would not show, is put behind it. Too high a learning rate explains a divergence from the warm
start; a divergence from the warm start does not explain how far single steps went.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from geartrain.diagnosis.causes import CAUSES, Cause, Proof
from geartrain.diagnosis.mending import Change
from geartrain.diagnosis.reading import Reading, Sign
from geartrain.diagnosis.records import Records
from geartrain.diagnosis.signs_of_credit import CREDIT
from geartrain.diagnosis.signs_of_results import RESULTS
from geartrain.diagnosis.signs_of_rewards import REWARDS
from geartrain.diagnosis.signs_of_steps import STEPS

SIGNS: Mapping[str, Sign] = {**STEPS, **REWARDS, **CREDIT, **RESULTS}
SLACK = 1
"""Iterations by which an effect may be seen before its cause: the two are read off different numbers."""
CLEAR = 1.0
"""Score by which the first cause must lead the next that does not follow from it, to be called likely."""
SURE_WEIGHT = 3.5
"""Weight of a proof that is the cause itself."""
EXPECTED = 0.3
"""Share from which a sign that is not there is told."""
WEAK_WEIGHT = 1.0
"""Weight of a proof that only says that something is wrong."""
Confidence = Literal["certain", "likely", "possible"]


@dataclass(frozen=True)
class Found:
    """A cause that shows itself."""

    name: str
    means: str
    source: str
    score: float
    confidence: Confidence
    evidence: Sequence[Reading]
    """The proof first, then what else it explains."""
    against: Sequence[str]
    """What it would show and does not."""
    follows_from: str
    """Name of a cause that explains this one; "" if none does."""
    changes: Sequence[Change]


@dataclass(frozen=True)
class Diagnosis:
    """What is said of a run."""

    causes: Sequence[Found]
    """The likeliest first."""
    checked: Sequence[str]
    """What each sign that was looked for means."""
    unchecked: Mapping[str, Sequence[str]]
    """What a sign means -> what the run would have had to record."""
    unexplained: Sequence[Reading]
    """Signs that are there and belong to no cause that was found."""

    @property
    def healthy(self) -> bool:
        """Whether no cause of trouble shows itself."""
        return not self.causes


def diagnose(records: Records) -> Diagnosis:
    """Name what is wrong with a run, the likeliest first; a pure function of its records."""
    usual = {name: sign for name, sign in SIGNS.items() if sign.applies(records)}
    unchecked = {name: missing for name, sign in usual.items() if (missing := sign.missing(records))}
    readings = {name: reading for name, sign in usual.items() if (reading := sign.look(records)) is not None}
    examined = {name for name in usual if name in readings or name not in unchecked}
    proved = {
        name: proof
        for name, cause in CAUSES.items()
        if cause.applies(records) and (proof := _proof(cause, readings)) is not None
    }
    scores = {name: _score(CAUSES[name], proof, readings, examined) for name, proof in proved.items()}
    behind = {name: _explained_by(name, proved, readings, scores) for name in proved}
    order = sorted(proved, key=lambda name: (bool(behind[name]), -scores[name], list(CAUSES).index(name)))
    found = [
        Found(
            name,
            CAUSES[name].means,
            CAUSES[name].source,
            round(scores[name], 3),
            _confidence(name, order, scores, behind),
            _evidence(name, proved, readings),
            _against(CAUSES[name], examined - readings.keys()),
            behind[name],
            CAUSES[name].mend(records),
        )
        for name in order
    ]
    told = {sign for name in proved for sign in (*proved[name], *CAUSES[name].shows)}
    return Diagnosis(
        found,
        [SIGNS[name].means for name in usual if name in examined],
        {SIGNS[name].means: missing for name, missing in unchecked.items() if name not in readings},
        [reading for name, reading in readings.items() if name not in told],
    )


def _proof(cause: Cause, readings: Mapping[str, Reading]) -> Proof | None:
    """Return the strongest alternative that is there whole."""
    whole = [proof for proof in cause.proofs if all(sign in readings for sign in proof)]
    return max(whole, key=lambda proof: _strength(proof, readings), default=None)


def _strength(proof: Proof, readings: Mapping[str, Reading]) -> float:
    return sum(readings[sign].strength for sign in proof) / len(proof)


def _onset(proof: Proof, readings: Mapping[str, Reading]) -> int:
    return min(readings[sign].iteration for sign in proof)


def _explains(cause: Cause, proof: Proof, readings: Mapping[str, Reading]) -> list[str]:
    """Return the signs that a cause accounts for: those of its proof, and what came with it or after it."""
    onset = _onset(proof, readings) - SLACK
    return [
        *proof,
        *(s for s in cause.shows if s not in proof and s in readings and readings[s].iteration >= onset),
    ]


def _score(cause: Cause, proof: Proof, readings: Mapping[str, Reading], examined: set[str]) -> float:
    explained = _explains(cause, proof, readings)[len(proof) :]
    absent = [sign for sign in cause.shows if sign in examined and sign not in readings and sign not in proof]
    return (
        cause.weight * _strength(proof, readings)
        + sum(cause.shows[sign] * readings[sign].strength for sign in explained)
        - 0.5 * sum(cause.shows[sign] for sign in absent)
    )


def _explained_by(
    name: str, proved: Mapping[str, Proof], readings: Mapping[str, Reading], scores: Mapping[str, float]
) -> str:
    """Return the best cause that shows the whole proof of this one and that this one does not show; "" if none."""
    own = {*proved[name], *CAUSES[name].shows}
    better = [
        other
        for other, proof in proved.items()
        if other != name
        and set(proved[name]) <= set(_explains(CAUSES[other], proof, readings))
        and not set(proof) <= own
    ]
    return max(better, key=scores.__getitem__, default="")


def _confidence(name: str, order: Sequence[str], scores: Mapping[str, float], behind: Mapping[str, str]) -> Confidence:
    if behind[name] or CAUSES[name].weight < WEAK_WEIGHT:
        return "possible"
    rivals = [scores[other] for other in order if other != name and not behind[other]]
    if CAUSES[name].weight >= SURE_WEIGHT and (not rivals or scores[name] >= max(rivals)):
        return "certain"
    return "likely" if not rivals or scores[name] - max(rivals) >= CLEAR else "possible"


def _against(cause: Cause, absent: set[str]) -> list[str]:
    """Return what a cause would show and does not, leaving out what it shows now and then."""
    return [SIGNS[sign].means for sign, share in cause.shows.items() if share >= EXPECTED and sign in absent]


def _evidence(name: str, proved: Mapping[str, Proof], readings: Mapping[str, Reading]) -> list[Reading]:
    return [readings[sign] for sign in _explains(CAUSES[name], proved[name], readings)]
