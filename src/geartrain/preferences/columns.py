"""Drafts put into columns: Arrow arrays of a block of records, and the hashes that they are compared by.

Legend: N records of a block, C candidates of all of them, P pairs (better, worse) of all of them.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from geartrain.preferences.languages import NAMES, find_languages
from geartrain.preferences.personal import KINDS, find_personal
from geartrain.preferences.records import (
    CANDIDATE,
    MESSAGE,
    SCORE,
    STAGED,
    STEP,
    Candidate,
    DefectError,
    Draft,
    Message,
)
from geartrain.preferences.words import Hashes, Places, mix

_SAMPLE = 80
"""Characters of the question, and of an answer, that tell the language."""
_TAIL, _SPACES = 40, 64
"""Characters that are compared before whole texts are; and more white space than answers differ in."""


class Block(NamedTuple):
    """A block of records, ready to be compared with all others."""

    batch: pa.RecordBatch
    """Of `STAGED`."""
    prompt_N: Hashes
    record_N: Hashes
    """Equal for records that say the same of the same answers, in whatever order."""
    id_N: Hashes
    """0 where the file gives none."""
    pair_P: Hashes
    """Equal for the same two answers to the same prompt, whichever is better."""
    first_P: NDArray[np.bool_]
    """Which of the two is better."""
    row_P: Places
    texts: pa.Array
    """Contents of all messages: those of the prompts, then those of the candidates."""
    prompt_ends_N1: Places
    """Where in `texts` the prompts begin and end."""
    answer_ends_N1: Places
    """The same of the candidates."""
    aside: Places
    """Places in `texts` of system messages beside others: many prompts share one, and are not near for that."""


def digest_of(messages: Sequence[Message]) -> bytes:
    """Return 8 bytes that stand for messages, the same in every process."""
    if len(messages) == 1:
        text = "\x1f".join(messages[0])
    else:
        text = "\x1e".join(["\x1f".join(message) for message in messages])
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


class _Row(NamedTuple):
    """A record on its way into columns."""

    place: int
    draft: Draft
    candidates: Sequence[Candidate]
    values: Sequence[float]
    best: int
    worst: int
    label: int | None


class Columns:
    """Columns of records that grow one by one. A record that teaches nothing raises DefectError and leaves no trace."""

    def __init__(self, source: str, licence: str | None, *, max_tokens: int) -> None:
        self.source, self.licence, self.max_tokens = source, licence, max_tokens
        self._rows: list[_Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, place: int, draft: Draft) -> None:
        """Take in a record. Raises DefectError: it prefers nothing, or prefers nothing that a model could see."""
        candidates, values = draft.candidates, draft.values
        if len(candidates) != 2 or candidates[0].messages == candidates[1].messages:
            candidates, values = _different(candidates, values)
        best, worst, label = _extremes(values)
        if best >= 0:
            if self._alike(candidates[best].messages, candidates[worst].messages):
                raise DefectError("equal_once_cut", f"no difference in the last {self.max_tokens} words")
        elif not any(candidate.steps for candidate in candidates):
            raise DefectError("tie" if len(candidates) > 1 else "lone_answer")
        self._rows.append(_Row(place, draft, candidates, values, best, worst, label))

    def _alike(self, first: Sequence[Message], second: Sequence[Message]) -> bool:
        """Tell whether a reader of lower-case words that keeps the last `max_tokens` sees the same.

        A token is a word or a part of one, so that no reward model of that length could tell them apart.
        """
        left, right = first[-1][1], second[-1][1]
        if len(first) == len(second) == 1 and abs(len(left) - len(right)) > _SPACES:
            return False
        ends = [side[-_TAIL:].casefold().split()[:0:-1] for side in (left, right)]  # the first word may be cut
        if any(one != other for one, other in zip(*ends, strict=False)):
            return False
        return _last_words(first, self.max_tokens) == _last_words(second, self.max_tokens)

    def take(self) -> Block:
        """Return what has gathered, at least one record, and begin anew."""
        rows, self._rows = self._rows, []
        places, drafts, kept, values, best, worst, labels = zip(*rows, strict=True)
        prompts, _, _, ordered, ids, tasks, licences, times = zip(*drafts, strict=True)
        candidates = [candidate for some in kept for candidate in some]
        said, scores, score, rank, steps = zip(*candidates, strict=True)
        ends_N1 = _ends([len(some) for some in kept])
        asked, answered = _Messages(prompts), _Messages(said)
        texts = pa.concat_arrays([asked.contents, answered.contents])
        prompt_ends_N1, answer_ends_N1 = asked.ends, answered.ends[ends_N1] + len(asked.contents)
        samples = [
            f"{prompt[-1][1][:_SAMPLE]} {some[max(place, 0)].messages[-1][1][:_SAMPLE]}"
            for prompt, some, place in zip(prompts, kept, best, strict=True)
        ]
        columns = {
            "id": pa.array(ids, pa.string()),
            "task": pa.array(tasks, pa.string()),
            "prompt": asked.arrow(),
            "candidates": _list(ends_N1, _answers(answered, scores, score, rank, steps)),
            "label": pa.array(labels, pa.int32()),
            "language": pa.array(NAMES).take(pa.array(find_languages(pa.array(samples, pa.string())))),
            "flags": _flags(texts, prompt_ends_N1, answer_ends_N1),
            "source": pa.array([self.source]).take(pa.array(np.zeros(len(rows), np.int32))),
            "place": pa.array(places, pa.int64()),
            "licence": pa.array([licence or self.licence for licence in licences], pa.string()),
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "best": pa.array(best, pa.int32()),
            "worst": pa.array(worst, pa.int32()),
            "ordered": pa.array(ordered, pa.bool_()),
        }
        prompt_N = np.frombuffer(b"".join(map(digest_of, prompts)), dtype="<u8").astype(np.uint64)
        answer_C = np.array([hash(tuple(messages)) for messages in said], dtype=np.int64).view(np.uint64)
        above, better, worse, row_P = _preferences(values, ends_N1)
        ranked_C = mix(answer_C ^ mix(above))
        better_P, worse_P = answer_C[better], answer_C[worse]
        low_P, high_P = np.minimum(better_P, worse_P), np.maximum(better_P, worse_P)
        return Block(
            batch=pa.RecordBatch.from_arrays([columns[name] for name in STAGED.names], schema=STAGED),
            prompt_N=prompt_N,
            record_N=mix(prompt_N ^ np.add.reduceat(ranked_C, ends_N1[:-1])),
            id_N=_id_hashes(ids, self.source),
            pair_P=mix(mix(prompt_N[row_P] ^ mix(low_P)) ^ high_P),
            first_P=better_P < worse_P,
            row_P=row_P,
            texts=texts,
            prompt_ends_N1=prompt_ends_N1,
            answer_ends_N1=answer_ends_N1,
            aside=asked.aside(),
        )


class _Messages:
    """Lists of messages, flat."""

    def __init__(self, lists: Sequence[Sequence[Message]]) -> None:
        flat = [message for messages in lists for message in messages]
        self._roles = [role for role, _ in flat]
        self.contents = pa.array([content for _, content in flat], pa.string())
        self.ends = _ends([len(messages) for messages in lists])

    def aside(self) -> Places:
        places = [place for place, role in enumerate(self._roles) if role == "system"]
        last = set((self.ends[1:] - 1).tolist()) if places else set()
        return np.array([place for place in places if place not in last], dtype=np.int64)

    def arrow(self) -> pa.Array:
        roles = pa.array(self._roles, pa.string())
        return _list(self.ends, pa.StructArray.from_arrays([roles, self.contents], fields=list(MESSAGE)))


def _answers(messages: _Messages, scores: Any, score: Any, rank: Any, steps: Any) -> pa.Array:
    columns = [
        messages.arrow(),
        _named([entry.items() if entry else () for entry in scores], SCORE),
        pa.array(score, pa.float64()),
        pa.array(rank, pa.int32()),
        _named(steps, STEP),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(CANDIDATE))


def _named(lists: Sequence[Iterable[tuple[str, float]]], kind: pa.DataType) -> pa.Array:
    """Return lists of (text, number)."""
    flat = [entry for entries in lists if entries for entry in entries]
    names, numbers = zip(*flat, strict=True) if flat else ((), ())
    entries = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(numbers, pa.float64())], fields=list(kind)
    )
    return _list(_ends([len(entries) for entries in lists] if flat else [0] * len(lists)), entries)  # type: ignore[arg-type]


def _preferences(values: Sequence[Sequence[float]], ends_N1: Places) -> tuple[Hashes, Places, Places, Places]:
    """Return [C] how many answers are better than each, and [P] places of the better, of the worse, and the record."""
    above = np.zeros(int(ends_N1[-1]), dtype=np.uint64)
    two_N = np.array([len(given) == 2 for given in values])
    first = ends_N1[:-1][two_N]
    pairs = np.array([given for given in values if len(given) == 2], dtype=np.float64).reshape(-1, 2)
    wins = pairs[:, 0] > pairs[:, 1]
    above[first + wins] = 1
    better, worse, rows = [first + ~wins], [first + wins], [np.flatnonzero(two_N)]
    for row, given in enumerate(values):
        if len(given) > 2:
            start, given_C = ends_N1[row], np.asarray(given)
            order = given_C[:, None] > given_C[None, :]
            one, other = np.nonzero(order)
            above[start : start + len(given_C)] = order.sum(axis=0)
            better.append(start + one)
            worse.append(start + other)
            rows.append(np.full(len(one), row))
    return above, np.concatenate(better), np.concatenate(worse), np.concatenate(rows)


def _different(candidates: Sequence[Candidate], values: Sequence[float]) -> tuple[Sequence[Candidate], Sequence[float]]:
    """Return one of each different answer; none of an answer that was judged in two ways."""
    seen: dict[tuple[Message, ...], int] = {}
    judged: dict[tuple[Message, ...], set[float]] = {}
    for place, candidate in enumerate(candidates):
        key = tuple(candidate.messages)
        seen.setdefault(key, place)
        judged.setdefault(key, set()).update([values[place]] if values else ())
    if len(seen) == len(candidates):
        return candidates, values
    kept = [place for key, place in seen.items() if len(judged[key]) <= 1]
    if len(kept) < min(2, len(candidates)):
        raise DefectError("identical_answers", f"{len(candidates)} answers, {len(seen)} different")
    return [candidates[i] for i in kept], [values[i] for i in kept] if values else ()


def _extremes(values: Sequence[float]) -> tuple[int, int, int | None]:
    """Return the places of the best and of the worst answer, -1 if none is better; and of the best if it is alone."""
    if len(values) == 2:
        first, second = values
        return (-1, -1, None) if first == second else (0, 1, 0) if first > second else (1, 0, 1)
    if not values:
        return -1, -1, None
    high, low = max(values), min(values)
    if high == low:
        return -1, -1, None
    best = values.index(high)
    return best, values.index(low), None if values.count(high) > 1 else best


def _last_words(messages: Sequence[Message], count: int) -> list[str]:
    words: list[str] = []
    for _, content in messages:
        words += content.casefold().split()
    return words[-count:]


def _ends(counts: Any) -> Places:
    ends = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=ends[1:])
    return ends


def _list(ends_N1: Places, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(ends_N1.astype(np.int32)), values)


def _id_hashes(ids: Sequence[str | None], source: str) -> Hashes:
    if not any(name is not None for name in ids):
        return np.zeros(len(ids), dtype=np.uint64)
    named = (
        b"" if name is None else hashlib.blake2b(f"{source}\x1f{name}".encode(), digest_size=8).digest() for name in ids
    )
    return np.array([int.from_bytes(digest, "little") for digest in named], dtype=np.uint64)


def _flags(texts: pa.Array, prompt_ends_N1: Places, answer_ends_N1: Places) -> pa.Array:
    count = len(prompt_ends_N1) - 1
    found: dict[int, set[str]] = {}
    for place, kinds in find_personal(texts).items():
        ends = prompt_ends_N1 if place < prompt_ends_N1[-1] else answer_ends_N1
        found.setdefault(int(np.searchsorted(ends, place, side="right")) - 1, set()).update(kinds)
    lengths = np.zeros(count, dtype=np.int64)
    names: list[str] = []
    for row in sorted(found):
        kinds = [kind for kind in KINDS if kind in found[row]]
        lengths[row] = len(kinds)
        names += kinds
    return _list(_ends(lengths), pa.array(names, pa.string()))
