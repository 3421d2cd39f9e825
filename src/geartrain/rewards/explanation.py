"""Why an episode earned what it earned: what each tool said, how much that weighed, what came of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from geartrain.rewards.channel import Tasks
from geartrain.rewards.mix import RewardMix
from geartrain.rewards.outcome import Failed, NotApplicable, raw, reason
from geartrain.rewards.panel import Panel
from geartrain.trajectory import Trajectory


class NoTokens:
    """A decoder for where token rewards are not asked for."""

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        """Return nothing."""
        return ""


@dataclass(frozen=True)
class Line:
    """What one tool said of one episode."""

    tool: str
    kind: str
    said: str
    """ "value", "n/a" or "failed"."""
    raw: float | None
    weight: float | None
    """None for the verdict, which everything else is measured against."""
    share: float
    """What it added to the reward, before the sum of opinions was clipped."""
    why: str


@dataclass(frozen=True)
class Explanation:
    """What one episode earned."""

    task: str
    sibling: int
    reward: float | None
    lines: list[Line]

    def to_record(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)


def explain(mix: RewardMix, panel: Panel, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Explanation]:
    """Return one explanation per episode; `panel` is the mix's own."""
    scored = mix.score(trajectories, tasks)
    kinds = {tool.name: tool.kind for tool in mix.tools}
    found = []
    for row, trajectory in enumerate(trajectories):
        lines = []
        for name, column in scored.outcomes.items():
            outcome = column[row]
            verdict = name not in kinds
            said = "failed" if isinstance(outcome, Failed) else "n/a" if isinstance(outcome, NotApplicable) else "value"
            weight = None if verdict else panel.weight(name, trajectory, mix.model_weight)
            share = 0.0 if verdict else scored.shares[name][row]
            kind = "verifier" if verdict else kinds[name]
            lines.append(Line(name, kind, said, raw(outcome), weight, share, reason(outcome)))
        found.append(Explanation(trajectory.task_id, trajectory.sibling, scored.rewards[row], lines))
    return found


def as_text(explanation: Explanation) -> str:
    """Return a table for a terminal."""
    rows = [("tool", "kind", "raw", "weight", "share", "why")]
    for line in explanation.lines:
        number = line.said if line.raw is None else f"{line.raw:.4g}"
        weight = "" if line.weight is None else f"{line.weight:g}"
        share = f"{line.share:+.4f}" if line.share else ""
        rows.append((line.tool, line.kind, number, weight, share, line.why))
    table = aligned(rows)
    reward = "none: the verdict failed" if explanation.reward is None else f"{explanation.reward:.4f}"
    return f"task {explanation.task}, answer {explanation.sibling}\n{table}\nreward {reward}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows with their columns under one another; the last is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    )
