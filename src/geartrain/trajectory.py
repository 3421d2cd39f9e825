"""Records of what happened: calls, results, turns, trajectories; Parquet in and out.

Legend: a trajectory of n turns is one token sequence
`prompt_0 action_0 prompt_1 action_1 ...`, where `prompt_i` is the rendered
suffix that the model was shown before turn i (the whole opening for i = 0) and
`action_i` is exactly what it sampled, end-of-turn token included when it was
sampled. Ids are stored as sampled and never re-tokenised.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

GRAINS = ("global", "step", "token")


@dataclass(frozen=True)
class ToolCall:
    """A well-formed call: the tool's name and its JSON arguments."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ToolResult:
    """What a tool answered. `error` is a stable snake_case kind, or None on success."""

    content: str
    """Text shown to the agent."""
    error: str | None = None
    position: int | None = None
    """Character offset in the agent's message where the fault lies, if known."""


@dataclass(frozen=True)
class Turn:
    """One agent message, what it was shown before it, and what came of it."""

    prompt_ids: Sequence[int]
    action_ids: Sequence[int]
    action_logprobs: Sequence[float]
    """Behaviour log-probabilities of `action_ids`, at the sampling temperature."""
    action_text: str
    call: ToolCall | None
    result: ToolResult
    subgoals: Sequence[str] = ()
    """Sub-goals reached for the first time by this turn."""
    reward: float = 0.0
    """Step-grain reward of this turn."""
    token_rewards: Sequence[float] = ()
    """Token-grain rewards, aligned with `action_ids`; empty means all zero."""
    action_entropies: Sequence[float] = ()
    """Entropy in nats of the distribution that each of `action_ids` was drawn from; empty means not recorded."""


@dataclass(frozen=True)
class Trajectory:
    """One episode as it was sampled. `group_id` is the data-row id, never prompt text."""

    task_id: str
    family: str
    group_id: str
    sibling: int
    seed: int
    policy_version: int
    temperature: float
    turns: Sequence[Turn]
    success: bool
    progress: float
    """Share of sub-goals reached, in [0, 1]."""
    end: str
    """Why it ended: "finished", "max_turns", "max_context"."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    """Global-grain raw reward by channel; None where the channel failed or does not apply."""

    @property
    def truncated(self) -> bool:
        """Whether a limit, not the agent, ended the episode."""
        return self.end != "finished"

    @property
    def outcome(self) -> float:
        """Success and progress in equal parts, in [0, 1]: progress tells failures of one task apart."""
        return 0.5 * (float(self.success) + self.progress)

    @property
    def invalid_calls(self) -> int:
        """Turns that were answered by an error."""
        return sum(turn.result.error is not None for turn in self.turns)

    def token_ids(self) -> list[int]:
        """Return the whole sequence, [T]."""
        return [i for turn in self.turns for i in (*turn.prompt_ids, *turn.action_ids)]

    def action_mask(self) -> list[bool]:
        """Return [T]: True exactly on the ids that the policy sampled."""
        return [
            flag for turn in self.turns for flag in (*[False] * len(turn.prompt_ids), *[True] * len(turn.action_ids))
        ]

    def behaviour_logprobs(self) -> list[float]:
        """Return [T]: behaviour log-prob on sampled ids, 0.0 elsewhere."""
        return [x for turn in self.turns for x in (*[0.0] * len(turn.prompt_ids), *turn.action_logprobs)]

    def entropies(self) -> list[float]:
        """Return [T]: entropy of the policy on sampled ids, 0.0 elsewhere.

        Where it was not recorded (episodes of another sampler), -log p of what was sampled stands in: its mean is
        the entropy.
        """
        found = []
        for turn in self.turns:
            recorded = turn.action_entropies or [-x for x in turn.action_logprobs]
            found += [*[0.0] * len(turn.prompt_ids), *recorded]
        return found

    def action_spans(self) -> list[tuple[int, int]]:
        """Return one [start, stop) per turn, into `token_ids`."""
        spans, cursor = [], 0
        for turn in self.turns:
            start = cursor + len(turn.prompt_ids)
            cursor = start + len(turn.action_ids)
            spans.append((start, cursor))
        return spans


_TURN = pa.struct(
    [
        ("prompt_ids", pa.list_(pa.int32())),
        ("action_ids", pa.list_(pa.int32())),
        ("action_logprobs", pa.list_(pa.float32())),
        ("action_text", pa.string()),
        ("call", pa.string()),
        ("result", pa.struct([("content", pa.string()), ("error", pa.string()), ("position", pa.int32())])),
        ("subgoals", pa.list_(pa.string())),
        ("reward", pa.float64()),
        ("token_rewards", pa.list_(pa.float32())),
        ("action_entropies", pa.list_(pa.float32())),
    ]
)
SCHEMA = pa.schema(
    [
        ("task_id", pa.string()),
        ("family", pa.string()),
        ("group_id", pa.string()),
        ("sibling", pa.int32()),
        ("seed", pa.int64()),
        ("policy_version", pa.int32()),
        ("temperature", pa.float64()),
        ("turns", pa.list_(_TURN)),
        ("success", pa.bool_()),
        ("progress", pa.float64()),
        ("end", pa.string()),
        ("rewards", pa.string()),
    ]
)


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    """Return a dict that fits `SCHEMA`; free-form maps are JSON strings."""
    record = asdict(trajectory)
    record["rewards"] = json.dumps(record["rewards"], sort_keys=True)
    for turn in record["turns"]:
        turn["call"] = None if turn["call"] is None else json.dumps(turn["call"], sort_keys=True)
    return record


def from_record(record: Mapping[str, Any]) -> Trajectory:
    """Rebuild a trajectory from a row of `SCHEMA`."""
    turns = []
    for turn in record["turns"]:
        call = None if turn["call"] is None else ToolCall(**json.loads(turn["call"]))
        turns.append(Turn(**{**turn, "call": call, "result": ToolResult(**turn["result"])}))
    return Trajectory(**{**record, "turns": turns, "rewards": json.loads(record["rewards"])})


def write_trajectories(path: Path, trajectories: Iterable[Trajectory], *, rows_per_group: int = 256) -> int:
    """Stream trajectories into one Parquet file; return how many were written.

    The caller owns atomicity: stages write into a staging folder that is renamed
    when it is complete.
    """
    count = 0
    batch: list[dict[str, Any]] = []
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        for trajectory in trajectories:
            batch.append(to_record(trajectory))
            count += 1
            if len(batch) == rows_per_group:
                writer.write_table(pa.Table.from_pylist(batch, schema=SCHEMA))
                batch.clear()
        if batch:
            writer.write_table(pa.Table.from_pylist(batch, schema=SCHEMA))
    return count


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """Stream trajectories back, a row group at a time."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=256):
            for record in batch.to_pylist():
                yield from_record(record)
