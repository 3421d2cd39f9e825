"""What lines mean for the metrics whose source is no plain path; see `telemetry.declaration`.

A rule is asked with a line of its kinds and with the line that began the stage. It returns label values with numbers,
which replace (of a counter: are added to) what was known, or None: no news.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from geartrain.live import Line
from geartrain.telemetry.labels import ALARM, DECODING, PHASE, ROLE, SPLIT

Found = Sequence[tuple[tuple[str, ...], float]]
Rule = Callable[[Line, Line], Found | None]
NO_OPINION = "n/a "
"""What `rewards.outcome.count_missing` puts before a kind that is no failure."""
_PARTNERS = {
    "credit_later": "later_reward",
    "weight_advantage": "advantage",
    "weight_reward": "step_reward",
    "weight_ratio_better": "teacher_ratio_better",
    "weight_ratio_worse": "teacher_ratio_worse",
}
_BLAME = {"UserError": "user", "TamperedError": "user", "InfrastructureError": "infrastructure"}
SIGNS_OF_LIFE = (*("begin", "progress", "iteration", "checkpoint", "skipped", "mismatch", "lineage", "end"),)
"""Lines that a stage at work tells; of its queue somebody else tells, before it begins."""


def at(values: Any, *path: str) -> Any:
    """Return what lies at a path of nested maps, or None."""
    for part in path:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def is_number(value: Any) -> bool:
    """Return whether a value can be a sample; what JSON has no word for is None and cannot."""
    return isinstance(value, int | float)


def _one(value: Any) -> Found | None:
    return [((), float(value))] if is_number(value) else None


def _each(pairs: Mapping[str, Any]) -> Found:
    return [((name,), float(value)) for name, value in pairs.items() if is_number(value)]


def _kl(line: Line, begin: Line) -> Found | None:
    """Return the KL that the loss pays for, or that of a sample where none is paid."""
    return _one(at(line, "record", "kl")) or _one(at(line, "record", "kl_unpaid")) or []


def _phases(line: Line, begin: Line) -> Found | None:
    if line["kind"] == "checkpoint":
        return _each({"save": line.get("seconds")})
    return _each({phase: at(line, "seconds", phase) for phase in PHASE.values})


def _iteration_seconds(line: Line, begin: Line) -> Found | None:
    return _one(sum(value for _, value in _phases(line, begin) or ()))


def _validation(line: Line, begin: Line, *, prefix: str = "val") -> Found | None:
    return _each({decoding: at(line, "record", f"{prefix}_{decoding}") for decoding in DECODING.values}) or None


def _alarms(line: Line, begin: Line) -> Found | None:
    raised = {str(alarm).partition(":")[0] for alarm in at(line, "record", "alarms") or ()}
    return [((name,), float(name in raised)) for name in ALARM.values]


def _correlations(line: Line, begin: Line) -> Found | None:
    return _each({partner: at(line, "record", name) for name, partner in _PARTNERS.items()})


def _missing(line: Line, begin: Line, *, failed: bool) -> Found | None:
    """Return (channel, kind) with how often; an exception of any type is `raised`."""
    found: Counter[tuple[str, str]] = Counter()
    for name, count in (at(line, "record", "scoring_failures") or {}).items():
        if name.startswith(NO_OPINION) == failed:
            continue
        channel, _, kind = name.removeprefix(NO_OPINION).partition(".")
        found[channel, "raised" if kind.startswith("raised_") else kind] += count
    return list(found.items())


def _quarantined(line: Line, begin: Line) -> Found | None:
    found: Counter[tuple[str, ...]] = Counter()
    for reason, count in (at(line, "metrics", "quarantined") or {}).items():
        found[("malformed" if reason.startswith("malformed_") else reason,)] += count
    return list(found.items())


def _evaluated(line: Line, begin: Line, *, name: str) -> Found | None:
    metrics = line.get("metrics") or {}
    pairs = {(split, decoding): f"{split}_{decoding}_{name}" for split in SPLIT.values for decoding in DECODING.values}
    return [(labels, float(metrics[key])) for labels, key in pairs.items() if is_number(metrics.get(key))]


def _successes(line: Line, begin: Line) -> Found | None:
    return [
        ((*labels, role), value)
        for role in ROLE.values
        for labels, value in _evaluated(line, begin, name=f"success_{role}") or ()
    ]


def _info(line: Line, begin: Line) -> Found | None:
    known = [line.get(name) for name in ("run", "dataset", "image", "commit")]
    recipe = at(line, "parameters", "policy", "recipe")
    return [(tuple(str(value or "") for value in (*known, recipe)), 1.0)]


def _when(outcome: str) -> Rule:
    return lambda line, begin: _one(line["time"]) if line.get("outcome") == outcome else None


def _duration(line: Line, begin: Line) -> Found | None:
    if line.get("outcome") != "complete":
        return None
    return _one(line.get("seconds", line["time"] - begin["time"] if begin else None))


def _blame(line: Line, begin: Line) -> Found | None:
    known = line.get("outcome") == "failed" and "error" in line
    return [((_BLAME.get(str(line["error"]), "bug"),), 1.0)] if known else []


def _progress(line: Line, begin: Line) -> Found | None:
    return _one(line["done"] / line["total"]) if line.get("total") else []


RULES: Mapping[str, tuple[tuple[str, ...], Rule]] = {
    # name: (kinds of lines, () for any; rule)
    "kl": (("iteration",), _kl),
    "iterations": (("iteration",), lambda line, begin: _one(1)),
    "iteration": (("iteration",), lambda line, begin: _one(line["index"] + 1)),
    "planned": (("begin",), lambda line, begin: _one(at(line, "parameters", "policy", "iterations"))),
    "iteration_seconds": (("iteration",), _iteration_seconds),
    "phase_seconds": (("iteration", "checkpoint"), _phases),
    "iteration_time": (("iteration",), lambda line, begin: _one(line["time"])),
    "checkpoint_time": (("checkpoint",), lambda line, begin: _one(line["time"])),
    "skipped": (("skipped",), lambda line, begin: _one(1)),
    "mismatch": (
        ("iteration", "mismatch"),
        lambda line, begin: _one(line.get("nats", at(line, "record", "mismatch"))),
    ),
    "validation": (("iteration",), _validation),
    "validation_start": (("iteration",), lambda line, begin: _validation(line, begin, prefix="start_val")),
    "alarms": (("begin", "iteration"), _alarms),
    "credit_correlation": (("iteration",), _correlations),
    "failures": (("iteration",), lambda line, begin: _missing(line, begin, failed=True)),
    "no_opinion": (("iteration",), lambda line, begin: _missing(line, begin, failed=False)),
    "quarantined": (("end",), _quarantined),
    "eval_success": (("end",), _successes),
    "eval_gain": (("end",), lambda line, begin: _evaluated(line, begin, name="gain")),
    "eval_gain_low": (("end",), lambda line, begin: _evaluated(line, begin, name="gain_low")),
    "info": (("begin",), _info),
    "running": (("begin", "end"), lambda line, begin: _one(int(line["kind"] == "begin"))),
    "begin_time": (("begin",), lambda line, begin: _one(line["time"])),
    "last_time": (SIGNS_OF_LIFE, lambda line, begin: _one(line["time"])),
    "progress": (("progress",), _progress),
    "duration": (("end",), _duration),
    "success_time": (("end",), _when("complete")),
    "failure_time": (("end",), _when("failed")),
    "blame": (("end",), _blame),
    "ends": (("end",), lambda line, begin: [((str(line.get("outcome")),), 1.0)]),
    "lineage_failures": (("lineage",), lambda line, begin: _one(1)),
    "queue": (("queue",), lambda line, begin: _one(line.get("seconds")) or []),
}
