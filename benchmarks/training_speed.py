"""How fast a small model is trained on this machine: cores that share an operation against a micro-batch each.

Forward and backward passes of the demo's model over random ids, lengths about
those of its demonstrations; then one optimiser step over its matrices with our
Muon and with torch's. Run it on an idle machine, and compare lines of one run.
"""

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

import torch

from geartrain.config import TinyModel
from geartrain.models.backbone import build_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.training.batch import TokenSequence, make_sequence, microbatches
from geartrain.training.engine import Engine
from geartrain.training.muon import Muon
from geartrain.training.supervised import negative_log_likelihood


def sequences(count: int, vocabulary: int) -> list[TokenSequence]:
    """Return random sequences of 180 to 600 tokens, most of them short."""
    rng = random.Random(0)
    lengths = [min(600, round(180 + rng.expovariate(1 / 140))) for _ in range(count)]
    return [make_sequence([rng.randrange(3, vocabulary) for _ in range(n)], [True] * n) for n in lengths]


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def train(model: torch.nn.Module, chosen: list[TokenSequence], *, budget: int, workers: int) -> None:
    """Run forward and backward passes over all of `chosen`, with one sum of gradients."""
    engine = Engine(model.parameters(), learning_rate=1e-3, total_steps=1)
    pieces = (
        partial(lambda batch: (negative_log_likelihood(model, batch) / 1000.0, None), batch)
        for batch in microbatches(chosen, budget=budget)
    )
    for _ in engine.accumulate(pieces, workers=workers):
        pass


def main() -> None:
    """Print one line per way of working."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=120)
    parser.add_argument("--budget", type=int, default=512, help="padded tokens of a micro-batch")
    options = parser.parse_args()
    texts = [str(number) for number in range(20_000)]
    section = TinyModel(hidden=128, layers=4, heads=2, context=2048)
    model = build_policy(train_tokenizer(texts, vocabulary=2048), section, seed=0).model
    chosen = sequences(options.sequences, model.config.vocab_size)
    tokens = sum(map(len, chosen))
    for name, threads, workers in (
        ("one thread", 1, 1),
        ("shared operations", options.threads, 1),
        ("a micro-batch each", options.threads, options.threads),
    ):
        torch.set_num_threads(threads)
        train(model, chosen[:8], budget=options.budget, workers=workers)
        taken = seconds(lambda w=workers: train(model, chosen, budget=options.budget, workers=w))
        print(f"{name}: {tokens / taken:,.0f} tokens a second", flush=True)
    matrices = [
        parameter for name, parameter in model.named_parameters() if parameter.ndim == 2 and "embed" not in name
    ]
    for parameter in matrices:
        parameter.grad = torch.randn_like(parameter)
    for name, optimizer in (("our Muon", Muon(matrices, lr=0.0)), ("torch's Muon", torch.optim.Muon(matrices, lr=0.0))):
        optimizer.step()
        print(f"{name}: {1000 * seconds(optimizer.step):,.0f} ms a step of {len(matrices)} matrices", flush=True)


if __name__ == "__main__":
    main()
