"""Two versions of a data set, row by row: what was added, removed and changed, what flipped, what shifted.

Rows are matched by their key, not by their place, so order means nothing. Numbers say three things: whether it changed
(Kolmogorov and Smirnov's two-sample test), how far apart the distributions are (its statistic, in [0, 1]), and by how
many standard deviations the mean moved (Cohen's d). With many rows any change is significant: look at the last two.

Legend: A and B rows of the two sides, K rows with a partner on the other side, G groups on both sides.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from geartrain.differences.hashing import NULL, Hashes
from geartrain.differences.kinds import Kind
from geartrain.differences.profile import MOST_STRATA, Profile, read_profile
from geartrain.differences.rows import Rows, open_rows

EXAMPLES = 10
"""Rows of each sort that are shown in full, and groups."""
EXACT_ROWS = 500
"""Up to so many rows the test is exact."""


@dataclass(frozen=True)
class Side:
    """One version."""

    name: str
    rows: int
    repeated: int
    """Rows whose key an earlier row has."""


@dataclass(frozen=True)
class Shift:
    """How the distribution of a number moved; over all rows that have one, matched or not."""

    column: str
    mean_a: float
    mean_b: float
    deviation_a: float
    deviation_b: float
    count_a: int
    count_b: int
    statistic: float
    """Largest distance between the two distribution functions, in [0, 1]."""
    p_value: float
    effect: float
    """Difference of the means in pooled standard deviations; 0 where neither side varies."""


@dataclass(frozen=True)
class GroupShift:
    """Means of the measure per group, such as the success per task."""

    group: str
    measure: str
    common: int
    only_a: int
    only_b: int
    up: int
    down: int
    mean_shift: float
    """Mean over the groups of both sides of (mean in B - mean in A)."""
    largest: tuple[Mapping[str, Any], ...]
    """Groups that moved most: group, a, b, rows_a, rows_b."""
    means: NDArray[np.float64] = field(repr=False)
    """[G, 2], means in A and in B; for the picture."""


@dataclass(frozen=True)
class Difference:
    """All that is told of two versions."""

    kind: str
    key: tuple[str, ...]
    a: Side
    b: Side
    added: int
    removed: int
    changed: int
    unchanged: int
    columns: Mapping[str, int]
    """Column -> rows in which it changed, of those that have a partner."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    """Columns that one side has."""
    label: str
    flips: int | None
    """Rows whose label changed; None: rows of this kind have no label."""
    flipped_up: int | None
    """Of those, how many labels rose (from false to true); None: labels are no numbers."""
    groups: GroupShift | None
    stratum: str
    strata: Mapping[str, tuple[int, int]]
    """Value of the stratum -> rows in A and in B."""
    shifts: tuple[Shift, ...]
    """Of every numeric column; largest statistic first."""
    examples: Mapping[str, tuple[Mapping[str, Any], ...]]
    """"added", "removed", "changed": rows; a changed one has column -> [in A, in B] beside its key."""

    @property
    def same(self) -> bool:
        """Whether both hold the same rows."""
        return not (self.added or self.removed or self.changed or self.only_a or self.only_b)

    def record(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        record = asdict(self)
        if self.groups is not None:
            record["groups"].pop("means")
        return {**record, "same": self.same}


def compare(a: Path, b: Path, kind: Kind, *, names: tuple[str, str] | None = None) -> Difference:
    """Compare two versions; folders or files.

    Raises:
        UserError: there are no such rows, or a column that the kind names is missing.
    """
    sources = open_rows(a, kind.files), open_rows(b, kind.files)
    left, right = (read_profile(rows, kind) for rows in sources)
    called = names or (str(a), str(b))
    _, at_A, at_B = np.intersect1d(left.key_N, right.key_N, assume_unique=True, return_indices=True)
    by_column = _changed_columns(left, right, at_A, at_B)
    differs_K = np.zeros(len(at_A), dtype=bool)
    for mask in by_column.values():
        differs_K |= mask
    removed, added = _rest(left.rows, at_A), _rest(right.rows, at_B)
    changed = int(differs_K.sum())
    flips_K = by_column.get(kind.label) if kind.label else None
    return Difference(
        kind=kind.name,
        key=kind.key + kind.unordered,
        a=Side(called[0], left.rows, left.repeated),
        b=Side(called[1], right.rows, right.repeated),
        added=len(added),
        removed=len(removed),
        changed=changed,
        unchanged=len(at_A) - changed,
        columns={name: int(mask.sum()) for name, mask in by_column.items() if mask.any()},
        only_a=tuple(sorted(left.columns.keys() - right.columns.keys())),
        only_b=tuple(sorted(right.columns.keys() - left.columns.keys())),
        label=kind.label,
        flips=None if flips_K is None else int(flips_K.sum()),
        flipped_up=_risen(left, right, kind.label, at_A, at_B, flips_K),
        groups=_group_shift(left, right, kind, sources),
        stratum=kind.stratum,
        strata=_strata(left, right),
        shifts=_shifts(left, right, kind),
        examples=_examples(sources, kind, removed, added, at_A[differs_K], at_B[differs_K]),
    )


def _changed_columns(left: Profile, right: Profile, at_A: Any, at_B: Any) -> dict[str, NDArray[np.bool_]]:
    common = [name for name in left.columns if name in right.columns]
    return {name: left.columns[name][at_A] != right.columns[name][at_B] for name in common}


def _rest(rows: int, matched: Any) -> NDArray[np.int64]:
    alone = np.ones(rows, dtype=bool)
    alone[matched] = False
    return np.flatnonzero(alone)


def _risen(left: Profile, right: Profile, label: str, at_A: Any, at_B: Any, flips_K: Any) -> int | None:
    if flips_K is None or label in left.lengths or not {label} <= left.numbers.keys() & right.numbers.keys():
        return None
    return int((right.numbers[label][at_B][flips_K] > left.numbers[label][at_A][flips_K]).sum())


def _strata(left: Profile, right: Profile) -> dict[str, tuple[int, int]]:
    values = sorted({*left.strata, *right.strata})
    return {value: (left.strata[value], right.strata[value]) for value in values} if len(values) <= MOST_STRATA else {}


def _shifts(left: Profile, right: Profile, kind: Kind) -> tuple[Shift, ...]:
    named = {*kind.key, *kind.unordered, kind.group, kind.stratum}
    found = []
    for column in left.numbers.keys() & right.numbers.keys() - named:
        values = [side.numbers[column][np.isfinite(side.numbers[column])] for side in (left, right)]
        if all(map(len, values)) and (values[0][0] != values[1][0] or any(np.ptp(part) for part in values)):
            found.append(_shift(f"{column} (length)" if column in left.lengths else column, *values))
    return tuple(sorted(found, key=lambda shift: (-shift.statistic, shift.column)))


def _shift(column: str, a: NDArray[np.float64], b: NDArray[np.float64]) -> Shift:
    from scipy.stats import ks_2samp

    means, deviations = (a.mean(), b.mean()), (a.std(), b.std())
    pooled = np.sqrt((len(a) * deviations[0] ** 2 + len(b) * deviations[1] ** 2) / (len(a) + len(b)))
    test = ks_2samp(a, b, method="exact" if max(len(a), len(b)) <= EXACT_ROWS else "asymp")
    effect = (means[1] - means[0]) / pooled if pooled > 0 else 0.0
    return Shift(
        column,
        mean_a=float(means[0]),
        mean_b=float(means[1]),
        deviation_a=float(deviations[0]),
        deviation_b=float(deviations[1]),
        count_a=len(a),
        count_b=len(b),
        statistic=float(test.statistic),
        p_value=float(test.pvalue),
        effect=float(effect),
    )


def _group_shift(left: Profile, right: Profile, kind: Kind, sources: tuple[Rows, Rows]) -> GroupShift | None:
    in_a, in_b = (_group_means(side, kind.measure) for side in (left, right))
    if in_a is None or in_b is None:
        return None
    (group_a, mean_a, rows_a, first_a), (group_b, mean_b, rows_b, _) = in_a, in_b
    _, at_a, at_b = np.intersect1d(group_a, group_b, assume_unique=True, return_indices=True)
    means_G2 = np.stack([mean_a[at_a], mean_b[at_b]], axis=1)
    moved_G = means_G2[:, 1] - means_G2[:, 0]
    order = np.lexsort((first_a[at_a], -np.abs(moved_G)))[:EXAMPLES]
    order = order[moved_G[order] != 0]
    rows = sources[0].pick([int(first_a[at_a[place]]) for place in order])
    largest = [
        {
            "group": rows[int(first_a[at_a[place]])][kind.group],
            "a": float(means_G2[place, 0]),
            "b": float(means_G2[place, 1]),
            "rows_a": int(rows_a[at_a[place]]),
            "rows_b": int(rows_b[at_b[place]]),
        }
        for place in order
    ]
    return GroupShift(
        kind.group,
        kind.measure,
        common=len(at_a),
        only_a=len(group_a) - len(at_a),
        only_b=len(group_b) - len(at_b),
        up=int((moved_G > 0).sum()),
        down=int((moved_G < 0).sum()),
        mean_shift=float(moved_G.mean()) if len(moved_G) else 0.0,
        largest=tuple(largest),
        means=means_G2,
    )


def _group_means(side: Profile, measure: str) -> tuple[Hashes, Any, Any, Any] | None:
    """Return (group, mean of the measure, rows, first row) of each group whose rows have the measure."""
    values = side.numbers.get(measure)
    if side.group_N is None or values is None:
        return None
    known = np.flatnonzero(np.isfinite(values) & (side.group_N != NULL))
    groups, first, code, rows = np.unique(
        side.group_N[known], return_index=True, return_inverse=True, return_counts=True
    )
    return groups, np.bincount(code, weights=values[known], minlength=len(groups)) / rows, rows, known[first]


def _examples(
    sources: tuple[Rows, Rows], kind: Kind, removed: Any, added: Any, changed_A: Any, changed_B: Any
) -> dict[str, tuple[Mapping[str, Any], ...]]:
    order = np.argsort(changed_A)[:EXAMPLES]
    pairs = [(int(changed_A[place]), int(changed_B[place])) for place in order]
    gone, new = ([int(index) for index in found[:EXAMPLES]] for found in (removed, added))
    a = sources[0].pick([*gone, *(first for first, _ in pairs)])
    b = sources[1].pick([*new, *(second for _, second in pairs)])
    return {
        "added": tuple(b[index] for index in new),
        "removed": tuple(a[index] for index in gone),
        "changed": tuple(_changes(a[first], b[second], kind) for first, second in pairs),
    }


def _changes(a: Mapping[str, Any], b: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    key = {name: a[name] for name in kind.key}
    return {**key, **{name: [a[name], b[name]] for name in a if name in b and a[name] != b[name]}}
