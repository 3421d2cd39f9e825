"""Signs in what a finished run was measured to be: the evaluation's tables, and the credit of single episodes."""

from collections.abc import Iterator, Mapping
from typing import Any

from geartrain.algorithms import validity
from geartrain.diagnosis.reading import Reading, Sign, beyond
from geartrain.diagnosis.records import Records


def _test(records: Records) -> Mapping[str, Any]:
    """Return the sampled part of the test split, or nothing."""
    table: Any = records.tables
    for key in ("splits", "test", "sampled"):
        table = table.get(key) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


def _tested(records: Records) -> bool:
    return bool(_test(records))


def _number(table: Any, *keys: str) -> float | None:
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return float(table) if isinstance(table, int | float) and not isinstance(table, bool) else None


def _worse(records: Records) -> Reading | None:
    low, high = (_number(_test(records), "gain", end) for end in ("low", "high"))
    if low is None or high is None or high >= 0:
        return None
    return Reading(f"test success changed by {100 * low:+.0f} to {100 * high:+.0f} points", len(records.history))


def _lost_family(records: Records) -> Reading | None:
    """Read a family whose success fell beyond both its intervals, while the whole did not."""
    if (_number(_test(records), "gain", "estimate") or 0.0) < 0:
        return None
    rows = _test(records).get("families")
    for row in rows if isinstance(rows, list) else ():
        before, after = _number(row, "before", "low"), _number(row, "after", "high")
        if before is not None and after is not None and after < before:
            text = f"family {row['family']}: test success at least {before:.0%} before, at most {after:.0%} after"
            return Reading(text, len(records.history))
    return None


def _without_tools(records: Records) -> Reading | None:
    before, after = (_number(_test(records), side, "zero_tool_successes") for side in ("before", "after"))
    if after is None or after <= validity.ZERO_TOOL_LIMIT or after - (before or 0.0) <= validity.ZERO_TOOL_RISE:
        return None
    text = f"{after:.0%} of the test successes used no tool, {before or 0.0:.0%} of the warm start's"
    return Reading(text, len(records.history), beyond(after, validity.ZERO_TOOL_LIMIT))


def _even_credit(records: Records) -> Reading | None:
    """Read credit that is the same for all turns of an episode, in every episode in which there was one to weigh."""
    spreads = list(_spreads(records))
    if not spreads or max(spreads) > validity.INERT_SPREAD:
        return None
    return Reading(f"in {len(spreads)} episodes of `val` all turns have one weight", len(records.history))


def _spreads(records: Records) -> Iterator[float]:
    for episode in records.credit.get("after", ()):
        turns = episode.get("turns")
        found = [_number(turn, "weight") for turn in turns] if isinstance(turns, list) else []
        weights = [weight for weight in found if weight is not None]
        if not _number(episode, "advantage"):  # as good as its siblings: W is 1 whatever the method says
            continue
        if len(weights) > 1:
            yield max(weights) - min(weights)


RESULTS: Mapping[str, Sign] = {
    "tested_worse": Sign("the candidate is worse than the warm start on test tasks", _worse, applies=_tested),
    "tested_family": Sign("a family of test tasks is solved less often than before", _lost_family, applies=_tested),
    "tested_zero_tool": Sign("test tasks are solved without tools", _without_tools, applies=_tested),
    "even_credit": Sign(
        "credit does not tell turns apart", _even_credit, applies=lambda r: r.weighs and bool(r.credit.get("after"))
    ),
}
