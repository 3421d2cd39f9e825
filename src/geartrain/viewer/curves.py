"""The curves of a training: which there are, and their points, few enough to be sent and drawn at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from geartrain.live import Line
from geartrain.reporting.facts import column
from geartrain.reporting.panels import AFTER, FIRST, PANELS, SECOND, SUCCESS, THIRD, Panel, Series

MOST_POINTS = 2000
"""Of a curve that is sent. Of more the least and the greatest of every stretch are kept, so that no spike is lost."""
Points = tuple[list[float], list[float]]


def _share(part: str, whole: str) -> Callable[[Line], float | None]:
    def share(line: Line) -> float | None:
        record = line["record"]
        return record[part] / record[whole] if part in record and record.get(whole) else None

    return share


def _rate(tokens: str, seconds: str) -> Callable[[Line], float | None]:
    def rate(line: Line) -> float | None:
        count, took = (line.get(name) or {} for name in ("tokens", "seconds"))
        return count[tokens] / took[seconds] if tokens in count and took.get(seconds) else None

    return rate


def _channel(name: str) -> Callable[[Line], float | None]:
    def mean(line: Line) -> float | None:
        channels = line["record"].get("channels")
        return (channels.get(name) or {}).get("mean") if isinstance(channels, Mapping) else None

    return mean


def _seconds(part: str) -> Callable[[Line], float | None]:
    return lambda line: (line.get("seconds") or {}).get(part)


DERIVED: Mapping[str, Callable[[Line], float | None]] = {
    "channel_verified": _channel("verified"),
    "channel_learned": _channel("learned"),
    "filtered_share": _share("filtered_groups", "groups"),
    "tokens_played": _rate("played", "play"),
    "tokens_trained": _rate("trained", "train"),
    "seconds_play": _seconds("play"),
    "seconds_train": _seconds("train"),
    "seconds_validate": _seconds("validate"),
}
"""Numbers that are made from a line of the live record, beside those of its record."""
_TITLED = {panel.title: panel for panel in PANELS}
GROUPS: Mapping[str, Sequence[Panel]] = {
    "Health": (
        _TITLED["Reward"],
        Panel(
            "Reward by channel",
            "Raw means, before they are fused.",
            (Series("channel_verified", "verified", FIRST), Series("channel_learned", "learned", SECOND)),
        ),
        Panel(
            "Verifier against reward model", "Share of siblings that they order otherwise.", (Series("disagreement"),)
        ),
        Panel("Spread of the advantages", "Standard deviation; 0 teaches nothing.", (Series("advantage_spread"),)),
        Panel("Groups without a signal", "Share whose siblings earned the same.", (Series("filtered_share"),)),
        _TITLED["KL to the warm start"],
        _TITLED["Entropy"],
        _TITLED["Clipped tokens"],
        _TITLED["Gradient norm"],
        Panel("Sampler against trainer", "Largest difference of log-probs, in nats.", (Series("mismatch"),)),
        _TITLED["Invalid calls"],
        _TITLED["Steps per episode"],
        Panel("Successes without a tool", "Share of the successes.", (Series("zero_tool_share"),)),
        _TITLED["Success by phase"],
    ),
    "Credit": (
        Panel(
            "Credit weights",
            "Over tokens: the lowest and the highest twentieth, and the middle.",
            (
                Series("weight_p95", "95 %", SECOND),
                Series("weight_median", "median", AFTER),
                Series("weight_p05", "5 %", THIRD),
            ),
        ),
        _TITLED["Spread of the credit weights"],
        _TITLED["Grain weights"],
        Panel("Granularity", "Mean over tokens; 1 is coarsest.", (Series("granularity"),)),
        Panel(
            "What credit goes with",
            "Rank correlation over turns.",
            (
                Series("credit_later", "later rewards", FIRST),
                Series("weight_advantage", "advantage", SECOND),
                Series("weight_reward", "own reward", THIRD),
            ),
        ),
        Panel("Policy over its teacher", "Mean ratio of a turn; 1 is no difference.", (Series("teacher_ratio"),)),
        Panel("Critic", "Spread of its scores; 0 says nothing.", (Series("critic_spread"),)),
    ),
    "Pace": (
        Panel(
            "Tokens a second",
            "While playing, and while training.",
            (Series("tokens_played", "played", FIRST), Series("tokens_trained", "trained", SECOND)),
        ),
        Panel(
            "Seconds an iteration",
            "Of its parts.",
            (
                Series("seconds_play", "play", FIRST),
                Series("seconds_train", "train", SECOND),
                Series("seconds_validate", "validate", THIRD),
            ),
        ),
        Panel("Learning rate", "Of the last step.", (Series("learning_rate"),)),
    ),
}
"""Panels of the run page, by heading."""


def layout() -> list[dict[str, Any]]:
    """Return success and the groups of panels as the page draws them."""
    return [
        {"title": "Success", "panels": [asdict(Panel("Success", "Of training episodes and on val.", SUCCESS))]},
        *({"title": title, "panels": [asdict(panel) for panel in panels]} for title, panels in GROUPS.items()),
    ]


def points(lines: Sequence[Line]) -> dict[str, Points]:
    """Return x and y of every curve that has a point, by key; x counts iterations, updates for what is measured after.

    Args:
        lines: of kind `iteration`.
    """
    records = [line["record"] for line in lines]
    found = {}
    for series in _all_series():
        if series.key in DERIVED:
            made = [{"iteration": line["index"], series.key: DERIVED[series.key](line)} for line in lines]
            xs, ys = column(made, series.key)
        else:
            xs, ys = column(records, series.key)
        if series.after:
            xs = [x + 1 for x in xs]
            if records and records[0].get("iteration") == 0:
                start = column(records[:1], f"start_{series.key}")[1]
                xs, ys = [0.0] * len(start) + xs, start + ys
        if xs:
            found[series.key] = thin(xs, [_rounded(y) for y in ys])
    return found


def lines_of(history: Iterable[Mapping[str, Any]]) -> list[Line]:
    """Return the records of a finished history.jsonl as if they were iterations of a live record."""
    return [
        {"kind": "iteration", "index": int(record.get("iteration", number)), "record": dict(record)}
        for number, record in enumerate(history)
    ]


def thin(xs: Sequence[float], ys: Sequence[float], most: int = MOST_POINTS) -> Points:
    """Return at most about so many points: of every stretch the least and the greatest value, and both ends."""
    if len(xs) <= most:
        return list(xs), list(ys)
    kept = {0, len(xs) - 1}
    stretch = 2 * len(xs) / most
    for number in range(most // 2):
        inside = range(int(number * stretch), min(len(xs), int((number + 1) * stretch)))
        if inside:
            kept |= {min(inside, key=ys.__getitem__), max(inside, key=ys.__getitem__)}
    chosen = sorted(kept)
    return [xs[index] for index in chosen], [ys[index] for index in chosen]


def _all_series() -> Iterator[Series]:
    yield from SUCCESS
    for panels in GROUPS.values():
        for panel in panels:
            yield from panel.series


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
