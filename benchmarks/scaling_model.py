"""What a policy of 7 billion parameters asks of 8 nodes of 8 GPUs, on paper: memory, bytes sent, seconds.

Arithmetic on public figures, no measurement: `docs/scaling.md` quotes the
tables and says what they leave out. `python benchmarks/scaling_model.py` prints
them; other sizes by its options.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields

GIGA = 1e9


@dataclass(frozen=True)
class Shape:
    """A model, a cluster and an iteration."""

    parameters: float = 7e9
    layers: int = 32
    hidden: int = 4096
    key_value_heads: int = 8
    head: int = 128
    nodes: int = 8
    gpus: int = 8
    """Per node."""
    memory: float = 80e9
    """Bytes of one GPU."""
    flops: float = 400e12
    """Of one GPU in bfloat16, as training reaches them: two fifths of the peak of an H100."""
    read: float = 2e12
    """Bytes a second that decoding reads of a GPU's memory: two thirds of an H100's."""
    launch: float = 0.8e-3
    """Seconds per layer and decoded token that Python and launches cost: our sampler is eager."""
    fabric: float = 40e9
    """Bytes a second between nodes, per GPU, one way: one 400 Gbit/s card each, at four fifths."""
    groups: int = 64
    siblings: int = 8
    tokens: int = 4096
    """Of an episode, prompts and answers of tools included."""
    sampled: int = 1024
    """Of an episode, by the policy."""
    minibatches: int = 2
    microbatch: int = 16384
    """Padded tokens of a forward pass."""

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus


def memory(shape: Shape, zero: int) -> dict[str, float]:
    """Return the bytes that one GPU holds for good, by what they are for."""
    n, p = shape.ranks, shape.parameters
    weights = 2 * p if zero < 3 else 2 * p / n
    gradients = 2 * p if zero < 2 else 2 * p / n
    state = 12 * p if zero < 1 else 12 * p / n
    return {
        "weights": weights,
        "gradients": gradients,
        "AdamW": state,
        "policy that plays": 0.0 if zero < 3 else 2 * p,
        "reference": 2 * p,
    }


def cache(shape: Shape) -> float:
    """Return the bytes of keys and values of all episodes that one GPU plays at once."""
    per_token = 2 * shape.layers * shape.key_value_heads * shape.head * 2
    return per_token * shape.tokens * shape.groups * shape.siblings / shape.ranks


def activations(shape: Shape) -> float:
    """Return the bytes of one micro-batch's activations when they are recomputed: a layer's inputs, one layer whole."""
    return shape.microbatch * shape.hidden * 2 * (shape.layers + 34)


def sent(shape: Shape, zero: int) -> float:
    """Return the bytes that one GPU sends per optimiser step, and for the policy that plays."""
    part, whole = (shape.ranks - 1) / shape.ranks, 2 * shape.parameters
    pieces = -(-_step_tokens(shape) // (shape.ranks * shape.microbatch))
    if zero == 0:
        return 2 * whole * part
    if zero == 1:  # gradients once, weights once
        return 2 * whole * part
    if zero == 2:  # gradients of every micro-batch
        return (pieces + 1) * whole * part
    return (3 * pieces + 1 / shape.minibatches) * whole * part  # weights twice and gradients; then the one that plays


def seconds(shape: Shape, zero: int) -> dict[str, float]:
    """Return how long the parts of an iteration take; nothing overlaps."""
    tokens = shape.groups * shape.siblings * shape.tokens
    each = shape.parameters * tokens / shape.ranks / shape.flops
    decode = max(2 * shape.parameters / shape.read, shape.launch * shape.layers)
    return {
        "playing": shape.sampled * decode + 2 * each,
        "reference": 2 * each,
        "training": 8 * each,  # forward, backward, and the forward pass once more
        "sending": shape.minibatches * sent(shape, zero) / shape.fabric,
    }


def _step_tokens(shape: Shape) -> int:
    return shape.groups * shape.siblings * shape.tokens // shape.minibatches


def tables(shape: Shape) -> str:
    """Return the tables of docs/scaling.md."""
    stages = (0, 1, 2, 3)
    held = [memory(shape, zero) for zero in stages]
    rows = [[name, *(f"{column[name] / GIGA:.1f}" for column in held)] for name in held[0]]
    rows.append(["sum", *(f"{sum(column.values()) / GIGA:.1f}" for column in held)])
    rows.append(["keys and values, while playing", *[f"{cache(shape) / GIGA:.1f}"] * 4])
    rows.append(["activations, while training", *[f"{activations(shape) / GIGA:.1f}"] * 4])
    most = max(cache(shape), activations(shape))
    fits = ["yes" if sum(column.values()) + most < 0.9 * shape.memory else "no" for column in held]
    rows.append([f"fits {shape.memory / GIGA:.0f} GB with a tenth to spare", *fits])
    times = [seconds(shape, zero) for zero in stages]
    costs = [["bytes sent per optimiser step, GB", *(f"{sent(shape, zero) / GIGA:.0f}" for zero in stages)]]
    costs += [[f"{name}, s", *(f"{column[name]:.1f}" for column in times)] for name in times[0]]
    costs.append(["an iteration, s", *(f"{sum(column.values()):.1f}" for column in times)])
    head = ["", *(f"ZeRO {zero}" for zero in stages)]
    return f"{_table(['GB per GPU', *head[1:]], rows)}\n\n{_table(['an iteration', *head[1:]], costs)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Command line: every size of `Shape` is an option."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Shape):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    print(tables(Shape(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
