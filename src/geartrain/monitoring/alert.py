"""What an alert is, and how its rule is written down; `Pace` lets a test live through an hour in seconds."""

import re
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["critical", "warning"]
PREFIX = "Geartrain"
"""Begins the name of every alert, as one's own prefix does among those of a whole cluster."""
RUNBOOKS = "docs/runbooks"
"""Where the runbooks are, unless told otherwise: in this repository."""
WHERE = "{{ $labels.stage }} ({{ or $labels.pod $labels.instance }})"
"""Stage and place in an alert's text; outside a cluster there is no pod."""
RUN = (
    "{{ with printf `geartrain_stage_info{instance=%q,stage=%q,run_id!=''}` $labels.instance $labels.stage | query }}"
    "Run {{ . | first | label `run_id` }}. {{ end }}"
)
"""Names the run, which is no label of what is measured; nothing where it is not known."""
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


@dataclass(frozen=True)
class Pace:
    """How much shorter than they are all times of the rules are taken to be."""

    scale: float = 1.0
    """1 is real time; a thousandth lets a test see what takes an hour in 3.6 seconds."""
    every: float = 30.0
    """Seconds between two evaluations, which are not scaled."""

    def span(self, seconds: float) -> str:
        """Return a time as PromQL's duration: "1h30m"."""
        left, text = round(1000 * self.scale * seconds), ""
        for unit, size in _UNITS:
            count, left = divmod(left, size)
            text += f"{count}{unit}" if count else ""
        return text or "0s"

    def number(self, seconds: float) -> str:
        """Return a time as a plain number of seconds."""
        return f"{self.scale * seconds:g}"


@dataclass(frozen=True)
class Alert:
    """One alert. Texts are templates of Prometheus: they say the value, and what to do first."""

    name: str
    expr: str
    """PromQL; each series that it returns is an alert, whose value is the series' value."""
    hold: str
    """How long the expression has to hold, as a duration."""
    severity: Severity
    """`critical` ends a run or makes its result worthless: somebody should look now; `warning` within a day."""
    area: str
    """Training, credit, reward, pipeline or gpu: which dashboard shows more."""
    summary: str
    description: str

    @property
    def page(self) -> str:
        """Name of its page among the runbooks, without the ending: "training-stalled"."""
        return _WORDS.sub("-", self.name).lower()

    def rule(self, *, runbooks: str = RUNBOOKS) -> dict[str, Any]:
        """Return the rule as Prometheus reads it.

        Args:
            runbooks: address of the folder of runbooks.
        """
        return {
            "alert": PREFIX + self.name,
            "expr": self.expr,
            "for": self.hold,
            "labels": {"severity": self.severity, "area": self.area},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{runbooks.rstrip('/')}/{self.page}.md",
            },
        }


def alarmed(name: str, value: str) -> str:
    """Return PromQL for the series `value` where the run's own watch raises the alarm `name` (`training.watch`)."""
    return f'{value}\n  and ignoring (alarm) (geartrain_train_alarm{{alarm="{name}"}} == 1)'


def recent(counter: str, span: str) -> str:
    """Return PromQL for how far a counter has risen within a time, where it has; also of a process that is gone since.

    Not `increase`: a counter that is first seen above 0 has risen, and a restart begins at 0 anew.
    """
    seen = f"last_over_time({counter}[{span}])"
    return f"{seen} - ({counter} offset {span} <= {seen} or 0 * {seen}) > 0"


def failed(pace: Pace, seconds: float) -> str:
    """Return PromQL for how long ago a stage failed, if no longer than some seconds.

    By what was seen last: a process that fails is gone with the next scrape, and a notifier that groups alerts never
    tells of one that was over before it looked.
    """
    seen = f"last_over_time(geartrain_stage_last_failure_timestamp_seconds[{pace.span(seconds)}])"
    return f"time() - {seen} < {pace.number(seconds)}"


def while_it_runs(expr: str, pace: Pace, seconds: float) -> str:
    """Return PromQL for what an expression gives of stages that run, or that failed no longer than some seconds ago."""
    return f"({expr})\n  and on (job, instance, stage) (geartrain_stage_running == 1 or {failed(pace, seconds)})"
