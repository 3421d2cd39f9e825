"""Every metric that geartrain exports, declared once: name, kind, unit, labels with their bounds, and where it is from.

Pure data: the exporter, the rules, the dashboards, the tests and `docs/monitoring.md` are all held to this table.

Names follow Prometheus: prefix, what, base unit (`_seconds`, `_bytes`, `_ratio` for shares of 1, `_nats`), `_total` for
counters. Every metric but those of the exporter itself also carries `stage`: two stages of one workspace may be told of
by one exporter. A run's id is in `geartrain_stage_info` alone; join by `on (instance, stage)`.

`source` says where a value comes from, in terms of the lines of `geartrain.live`:

    record.x.*            of an iteration's record; `*` takes every key, and its name becomes the label
    record.x / record.y   a quotient, of one iteration
    seconds.*, tokens.x   of an iteration's line; a counter adds them up
    ranks.x               of each rank of this node, as an iteration's line has them
    metrics.x             of a stage's `end` line: the metrics in its manifest
    start: record.x       the mean of the first iterations, see `validity.WINDOW`
    line: …               in words; `telemetry.rules` has a rule of that name

A counter without labels, and every alarm, is told as 0 from the stage's first line; a gauge only once it is known. What
a stage leaves behind (counters, results) is told after its end; what speaks of a running process vanishes with it.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram", "info"]
PREFIX = "geartrain_"
OTHER = "other"
"""Value of a label for everything beyond its bound."""
MAX_SERIES = 500
"""Most series of one exporter, process metrics included."""


@dataclass(frozen=True)
class Label:
    """A label, and why it cannot have many values."""

    name: str
    why: str
    values: tuple[str, ...] = ()
    """All that it may have besides `other`; empty where they are known at run time only."""
    most: int = 0
    """Then so many, the first seen; what comes later is `other`."""

    @property
    def bound(self) -> int:
        """Most values, `other` included."""
        return (len(self.values) or self.most) + 1


@dataclass(frozen=True)
class Metric:
    """One metric; a histogram has `buckets`."""

    name: str
    kind: Kind
    help: str
    source: str
    labels: tuple[Label, ...] = ()
    """Besides `stage`."""
    of: str = "policy"
    """Stage whose lines it is read from; "*": of any, "": of the exporter's own process."""
    lasting: bool = False
    """Whether it is told after its stage's end, though it is neither a counter nor a result."""
    leader: bool = True
    """Whether only the exporter of rank 0 tells it: on every node it would be the same number."""
    buckets: tuple[float, ...] = ()

    @property
    def outlives(self) -> bool:
        """Whether it is told after its stage's end."""
        if self.source.startswith("ranks."):
            return False
        return self.lasting or self.kind in ("counter", "histogram") or self.of not in ("policy", "*")


def gauge(name: str, source: str, text: str, *labels: Label, **options: object) -> Metric:
    """Return a gauge; options are fields of `Metric`."""
    return Metric(PREFIX + name, "gauge", text, source, labels, **options)  # type: ignore[arg-type]


def counter(name: str, source: str, text: str, *labels: Label, **options: object) -> Metric:
    """Return a counter; options are fields of `Metric`."""
    return Metric(PREFIX + name, "counter", text, source, labels, **options)  # type: ignore[arg-type]
