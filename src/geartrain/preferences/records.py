"""What every form of preference data is made into: one record a prompt, its answers, and what is said of them.

    prompt      messages up to where the answers part
    candidates  answers, each with messages, scores by dimension, overall score, rank, labels of steps
    label       place of the one best answer in `candidates`, from 0; null where none is

`SCHEMA` is that of a finished data set, `STAGED` what reading knows before all records are seen.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

Message = tuple[str, str]
"""(role, content); role is one of `ROLES`."""
ROLES = ("system", "user", "assistant", "tool")

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCORE = pa.struct([("dimension", pa.string()), ("value", pa.float64())])
STEP = pa.struct([("text", pa.string()), ("label", pa.float64())])
CANDIDATE = pa.struct(
    [
        ("messages", pa.list_(MESSAGE)),
        ("scores", pa.list_(SCORE)),
        ("score", pa.float64()),
        ("rank", pa.int32()),
        ("steps", pa.list_(STEP)),
    ]
)
_FIELDS = [
    ("id", pa.string()),
    ("task", pa.string()),
    ("prompt", pa.list_(MESSAGE)),
    ("candidates", pa.list_(CANDIDATE)),
    ("label", pa.int32()),
    ("language", pa.string()),
    ("flags", pa.list_(pa.string())),
    ("source", pa.string()),
    ("place", pa.int64()),
    ("licence", pa.string()),
    ("time", pa.timestamp("us", "UTC")),
]
SCHEMA = pa.schema([_FIELDS[0], ("split", pa.string()), *_FIELDS[1:]])
"""A record: `task` is the family or data set that it is balanced by, `place` its line or row in `source` (from 1)."""
STAGED = pa.schema(
    [
        *_FIELDS,
        ("best", pa.int32()),
        ("worst", pa.int32()),
        ("ordered", pa.bool_()),
    ]
)
"""Before the splits: also the places of the best and of the worst answer (-1: none is preferred), and whether the order
of the answers is the one in which the judge saw them."""


class Candidate(NamedTuple):
    """One answer."""

    messages: Sequence[Message]
    scores: dict[str, float] | None = None
    """By dimension, such as helpfulness."""
    score: float | None = None
    """Overall, higher is better."""
    rank: int | None = None
    """1 is the best."""
    steps: Sequence[tuple[str, float]] = ()
    """(text, label) per step; labels are the annotators' own numbers, such as -1, 0, 1."""


class Draft(NamedTuple):
    """One record as its form gives it."""

    prompt: Sequence[Message]
    candidates: Sequence[Candidate]
    values: Sequence[float]
    """How good each answer is, higher is better; equal is a tie. Empty: nothing is preferred (labels of steps only)."""
    ordered: bool = False
    """Whether the order of `candidates` is that in which a judge saw them, so that it may have swayed the judge."""
    id: str | None = None
    task: str | None = None
    licence: str | None = None
    time: datetime | None = None


class DefectError(ValueError):
    """A record that cannot be used: `reason` is one of a few stable words, `detail` says what was found."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class Broken(NamedTuple):
    """A place from which no record could be read."""

    place: int
    reason: str
    detail: str = ""


class Rows(NamedTuple):
    """A block of a file: its records as JSON values, and the places that hold none."""

    places: list[int]
    values: list[Any]
    broken: list[Broken]
