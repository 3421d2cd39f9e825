"""From the lines of live stages to numbers: the one mapping, whether it is told in the process or follows files.

Nothing is kept for a process that is gone: what is told is made anew from here at every scrape.
"""

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

from geartrain.live import Line
from geartrain.telemetry import METRICS, OTHER, Label, Metric
from geartrain.telemetry.rules import RULES, Found, at, is_number

FIRST = 3
"""Iterations whose mean is a start, as `algorithms.validity.WINDOW`."""
ITERATION_ROOTS = ("record", "seconds", "tokens")
_AVERAGED = ("_ratio", "_mean", "_stddev", "_correlation", "_nats", "_loss")
_CUMULATIVE = "reference_failures"
Read = Callable[[Line, Line], Found | None]
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """A number as it is exported; a histogram has counts, cumulative, of its buckets and of all."""

    labels: Labels
    """`stage` first, unless the metric is the exporter's own."""
    value: float
    counts: tuple[int, ...] = ()


@dataclass
class _Histogram:
    counts: list[int]
    total: float = 0.0


@dataclass
class _Stage:
    begin: Line = field(default_factory=dict)
    firsts: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class Readings:
    """What the lines told so far say. Safe to tell and to read from different threads."""

    def __init__(self, *, leader: bool = True, node: str | None = None) -> None:
        """Start empty.

        Args:
            leader: whether this process hears what is told once for all ranks, and so says it.
            node: show only the ranks of this node; None: those of the node of rank 0.
        """
        self._leader, self._node = leader, node
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = defaultdict(dict)
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(dict)
        self._stages: dict[str, _Stage] = defaultdict(_Stage)
        self._seen: dict[str, list[str]] = defaultdict(list)
        self._told, self._failed = 0, 0

    def tell(self, stage: str, line: Line) -> None:
        """Take in a line of a stage. Raises nothing: a line that cannot be read is counted."""
        with self._lock:
            try:
                self._take(stage, line)
                self._told += 1
            except Exception:
                self._failed += 1

    def miss(self) -> None:
        """Note that there was a line which is none."""
        with self._lock:
            self._failed += 1

    def lose(self, stage: str) -> None:
        """Note that the process of a stage is gone without an `end`."""
        with self._lock:
            self._end(stage)
            self._add(METRICS["geartrain_stage_ends_total"], stage, [(("killed",), 1.0)])

    def running(self) -> list[str]:
        """Return the stages that have begun and not ended."""
        with self._lock:
            return [labels[0] for labels, value in self._values["geartrain_stage_running"].items() if value]

    def samples(self) -> dict[str, list[Sample]]:
        """Return what is to be exported now, by name of the metric."""
        with self._lock:
            found = {
                name: [Sample(labels, value) for labels, value in sorted(values.items())]
                for name, values in self._values.items()
                if values and self._says(METRICS[name])
            }
            for name, histograms in self._histograms.items():
                if self._says(METRICS[name]):
                    found[name] = [
                        Sample(labels, one.total, tuple(accumulate(one.counts))) for labels, one in histograms.items()
                    ]
            found["geartrain_exporter_lines_total"] = [Sample((), float(self._told))]
            found["geartrain_exporter_errors_total"] = [Sample((), float(self._failed))]
        series = 1 + sum(len(sample.counts) + 2 if sample.counts else 1 for part in found.values() for sample in part)
        found["geartrain_exporter_series"] = [Sample((), float(series))]
        return found

    def _says(self, metric: Metric) -> bool:
        return self._leader or not metric.leader

    def _take(self, stage: str, line: Line) -> None:
        state, kind = self._stages[stage], line["kind"]
        if kind == "begin":
            self._begin(stage, line)
        for metric, read in _readers(kind, stage):
            found = read(line, state.begin)
            if found is not None:
                self._keep(metric, stage, found)
        if kind == "iteration":
            self._note_firsts(stage, line)
            self._note_ranks(stage, line.get("ranks") or ())
        if kind == "end":
            self._end(stage)

    def _begin(self, stage: str, line: Line) -> None:
        if self._values["geartrain_stage_running"].get((stage,)):  # what began before has never ended
            self._add(METRICS["geartrain_stage_ends_total"], stage, [(("killed",), 1.0)])
        self._end(stage)
        self._stages[stage] = _Stage(line)
        for metric in METRICS.values():
            own = metric.of in ("*", stage) and not metric.source.startswith("ranks.")
            if metric.kind == "counter" and not metric.labels and own:
                self._values[metric.name].setdefault((stage,), 0.0)

    def _end(self, stage: str) -> None:
        """Forget what speaks of a running process."""
        for name, values in self._values.items():
            if not METRICS[name].outlives:
                for labels in [labels for labels in values if labels[:1] == (stage,)]:
                    del values[labels]
        running = self._values["geartrain_stage_running"]
        if (stage,) in running:
            running[stage,] = 0.0

    def _keep(self, metric: Metric, stage: str, found: Found) -> None:
        if metric.kind == "histogram":
            empty = [0] * (len(metric.buckets) + 1)
            histogram = self._histograms[metric.name].setdefault((stage,), _Histogram(empty))
            for _, value in found:
                histogram.counts[bisect_left(metric.buckets, value)] += 1
                histogram.total += value
        elif metric.kind == "counter" and _CUMULATIVE not in metric.source:
            self._add(metric, stage, found)
        else:
            values = self._values[metric.name]
            for labels in [labels for labels in values if labels[0] == stage]:
                del values[labels]
            for labels, several in self._bounded(metric, found).items():
                mean = metric.kind == "gauge" and metric.name.endswith(_AVERAGED)
                values[stage, *labels] = sum(several) / len(several) if mean else sum(several)

    def _add(self, metric: Metric, stage: str, found: Found) -> None:
        values = self._values[metric.name]
        for labels, several in self._bounded(metric, found).items():
            values[stage, *labels] = values.get((stage, *labels), 0.0) + max(0.0, sum(several))

    def _bounded(self, metric: Metric, found: Found) -> dict[Labels, list[float]]:
        """Return values by labels, with `other` for what is beyond a label's bound."""
        gathered: dict[Labels, list[float]] = defaultdict(list)
        for labels, value in found:
            bounded = labels
            if metric.kind != "info":
                bounded = tuple(self._bound(label, text) for label, text in zip(metric.labels, labels, strict=True))
            gathered[bounded].append(value)
        return gathered

    def _bound(self, label: Label, text: str) -> str:
        if label.values:
            return text if text in label.values else OTHER
        seen = self._seen[label.name]
        if text not in seen and len(seen) < label.most:
            seen.append(text)
        return text if text in seen else OTHER

    def _note_firsts(self, stage: str, line: Line) -> None:
        firsts = self._stages[stage].firsts
        for metric in _STARTS:
            value = at(line, *_start_path(metric))
            if metric.of == stage and is_number(value) and len(firsts[metric.name]) < FIRST:
                firsts[metric.name].append(value)
                if len(firsts[metric.name]) == FIRST:
                    self._values[metric.name][stage,] = sum(firsts[metric.name]) / FIRST

    def _note_ranks(self, stage: str, ranks: Sequence[Mapping[str, object]]) -> None:
        node = (
            self._node if self._node is not None else next((r.get("node") for r in ranks if r.get("rank") == 0), None)
        )
        mine = [rank for rank in ranks if rank.get("node") == node]
        for metric in _RANKS:
            name = metric.source.removeprefix("ranks.")
            found = [((str(rank["rank"]),), float(rank[name])) for rank in mine if is_number(rank.get(name))]  # type: ignore[arg-type]
            values = self._values[metric.name]
            values.clear()
            values.update({(stage, *labels): sum(several) for labels, several in self._bounded(metric, found).items()})


def _readers(kind: str, stage: str) -> Iterator[tuple[Metric, Read]]:
    for metric, kinds, read in _COMPILED:
        if metric.of in ("*", stage) and (not kinds or kind in kinds):
            yield metric, read


def _start_path(metric: Metric) -> list[str]:
    return metric.source.removeprefix("start: ").split(".")


def _compile(metric: Metric) -> tuple[tuple[str, ...], Read] | None:
    root = metric.source.partition(".")[0].partition(":")[0]
    if root == "line":
        return None if metric.of == "" else RULES[metric.source.removeprefix("line: ")]
    if root in ("ranks", "start"):
        return None
    assert root in (*ITERATION_ROOTS, "metrics"), metric
    kinds = ("end",) if root == "metrics" else ("iteration",)
    over, _, under = metric.source.partition(" / ")
    if under:
        return kinds, partial(_quotient, over.split("."), under.split("."))
    return kinds, partial(_follow, over.split("."), metric.labels)


def _quotient(over: Sequence[str], under: Sequence[str], line: Line, begin: Line) -> Found | None:
    top, bottom = at(line, *over), at(line, *under)
    return [((), top / bottom)] if is_number(top) and is_number(bottom) and bottom else []


def _follow(path: Sequence[str], labels: Sequence[Label], line: Line, begin: Line) -> Found | None:
    """Return all numbers at a path; what a pattern such as `grain_*` matches must be a value of its label."""
    found: list[tuple[Labels, object]] = [((), line)]
    for part in path:
        before, star, after = part.partition("*")
        fits = []
        for names, values in found:
            if not isinstance(values, Mapping):
                continue
            if not star:
                fits.append((names, values.get(part)))
                continue
            for key, value in values.items():
                name = key[len(before) : len(key) - len(after)]
                allowed = labels[len(names)].values if before or after else ()
                if key.startswith(before) and key.endswith(after) and (not allowed or name in allowed):
                    fits.append(((*names, name), value))
        found = fits
    return [(names, float(value)) for names, value in found if is_number(value)]  # type: ignore[arg-type]


_COMPILED = [(metric, *read) for metric in METRICS.values() if (read := _compile(metric)) is not None]
_STARTS = [metric for metric in METRICS.values() if metric.source.startswith("start: ")]
_RANKS = [metric for metric in METRICS.values() if metric.source.startswith("ranks.")]
