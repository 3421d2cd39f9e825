"""One optimiser step, over every path of its loss: observations are never trained on, on policy every ratio is 1."""

import copy
from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.ranks import ALONE, Ranks
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.schema import SamplingSection
from geartrain.training.features import sequence_of
from geartrain.training.policy_engine import WholeEngine
from geartrain.training.policy_step import PolicyStep
from tests.fakes.parity import TURNS, Parity, make_config, make_policy, make_tasks

TEMPERATURE = 0.7
PATHS = {
    "token": ("grpo", {}),
    "sequence": ("grpo", {"ratio": "sequence"}),
    "constant": ("dr_grpo", {}),
    "rows": ("grpo_rows", {"kl_coefficient": 0.5, "entropy_coefficient": 0.1}),
    "k1": ("grpo", {"kl_estimator": "k1", "kl_coefficient": 0.5}),
    "k2": ("grpo", {"kl_estimator": "k2", "kl_coefficient": 0.5}),
    "full": ("grpo", {"kl_estimator": "full", "kl_coefficient": 0.5}),
    "entropy": ("grpo", {"entropy_coefficient": 0.1}),
    "distillation": ("direct_distillation", {}),
}
EVERY_PATH = pytest.mark.parametrize("path", PATHS)


@pytest.fixture(scope="module")
def policy():
    return make_policy()


@pytest.fixture(scope="module")
def sequences(policy):
    """Played episodes with everything that any path of the loss reads."""
    requests = [EpisodeRequest(task, sibling, task.task_id) for task in make_tasks(2) for sibling in range(3)]
    sampling = SamplingSection(temperature=TEMPERATURE, max_new_tokens=4, rows=6)
    played = play(Parity(), policy, requests, sampling=sampling, limits=Limits(256, TURNS), seed=0, policy_version=0)
    generator = torch.Generator().manual_seed(3)
    prepared = []
    for trajectory in played:
        sequence = sequence_of(trajectory)
        size = len(sequence)
        support = torch.stack([sequence.ids_T, (sequence.ids_T + 7) % 200], -1)
        teacher = torch.log_softmax(torch.randn(size, 3, generator=generator), -1)
        added = {
            "advantage": torch.randn(size, generator=generator),
            "reference": sequence.values["behaviour"] + 0.1 * torch.randn(size, generator=generator),
            "support": torch.where(sequence.loss_T[:, None], support, -1),
            "teacher": teacher,
            "pull": torch.rand(size, generator=generator),
        }
        prepared.append(replace(sequence, values={**sequence.values, **added}))
    return prepared


def _read_by(sequences, path):
    """Return sequences with the values that a path reads."""
    kept = ("behaviour", "advantage", "reference")
    if PATHS[path][0] == "direct_distillation":
        return list(sequences)
    return [replace(s, values={name: s.values[name] for name in kept}) for s in sequences]


def _build(policy, path, ranks=ALONE, **given):
    recipe, settings = PATHS[path]
    section = make_config(minibatches=1, **{**settings, **given}).policy
    model = copy.deepcopy(policy.model)
    engine = WholeEngine(model, learning_rate=1e-3, total_steps=1)
    given = settings_of(recipe, {})
    return PolicyStep(model, engine, section, RECIPES[recipe], given, 256, ranks, _moved(policy.model)), model


def _moved(model):
    """A warm start that the policy has left."""
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for index, weight in enumerate(reference.parameters()):
            weight.add_(0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(index)))
    return reference


def _step(policy, sequences, path, **given):
    step, model = _build(policy, path, **given)
    return step.run(_read_by(sequences, path), temperature=TEMPERATURE, seed=0), model


def _gradient(step, model, sequences):
    pieces = list(step._pieces(sequences, TEMPERATURE, 0.0))
    loss = sum((piece()[0] for piece in pieces), torch.zeros(()))
    return torch.autograd.grad(loss, model.model.norm.weight)[0] if pieces else torch.zeros(())


@EVERY_PATH
def test_what_travels_with_observations_is_neither_trained_on_nor_counted(policy, sequences, path):
    def poisoned(sequence):
        def poison(value):
            mask = sequence.loss_T.reshape(-1, *[1] * (value.dim() - 1))
            return torch.where(mask, value, torch.nan) if value.is_floating_point() else value

        return replace(sequence, values={name: poison(value) for name, value in sequence.values.items()})

    clean, model = _step(policy, sequences, path)
    dirty, other = _step(policy, [poisoned(sequence) for sequence in sequences], path)
    assert dirty == clean
    assert clean["gradient_norm"] > 0
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@EVERY_PATH
def test_what_travels_with_a_sampled_token_counts(policy, sequences, path):
    name = "teacher" if path == "distillation" else "advantage"
    first = sequences[0]
    moved = first.values[name].clone()
    moved[int(first.loss_T.nonzero()[0, 0])] += torch.tensor([0.9, 0.1, -2.0]) if path == "distillation" else 3.0
    other = [replace(first, values={**first.values, name: moved}), *sequences[1:]]
    assert _step(policy, other, path)[0]["gradient_norm"] != _step(policy, sequences, path)[0]["gradient_norm"]


@EVERY_PATH
@pytest.mark.parametrize("budget", [32, 8192])
def test_before_the_first_update_every_ratio_is_one_at_the_samplers_temperature(policy, sequences, path, budget):
    record, _ = _step(policy, sequences, path, microbatch_tokens=budget)
    assert record["mismatch"] < 1e-4
    assert record["ratio_mean"] == pytest.approx(1.0, abs=1e-4)
    assert record["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert record["clip_fraction"] == 0.0
    assert record["trained_tokens"] == sum(int(sequence.loss_T.sum()) for sequence in sequences)


def test_the_divergence_from_a_copy_of_itself_is_zero(policy, sequences):
    own = [replace(s, values={**s.values, "reference": s.values["behaviour"]}) for s in sequences]
    assert _step(policy, own, "token")[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert _step(policy, sequences, "token")[0]["kl"] > 1e-3


def test_a_divergence_over_the_vocabulary_is_asked_of_the_warm_start_in_each_step(policy, sequences):
    bare = [replace(s, values={n: s.values[n] for n in ("behaviour", "advantage")}) for s in sequences]
    step, _ = _build(policy, "full")
    record = step.run(bare, temperature=TEMPERATURE, seed=0)
    total, count = 0.0, 0
    with torch.no_grad():
        for s in bare:
            own, other = (
                torch.log_softmax(m(s.ids_T[None]).logits[0] / TEMPERATURE, -1) for m in (policy.model, step.reference)
            )
            total += float((own.exp() * (own - other)).sum(-1).roll(1)[s.loss_T].sum())
            count += int(s.loss_T.sum())
    assert record["kl"] == pytest.approx(total / count, rel=1e-4)
    assert record["kl"] > 1e-3


class OneOf(Ranks):
    """A rank that is never asked to speak."""

    def __init__(self, rank, size):
        self.rank, self.size = rank, size


@EVERY_PATH
@pytest.mark.parametrize("size", [2, 3, 9])
def test_the_shares_of_a_step_add_up_to_the_whole(policy, sequences, path, size):
    sequences = _read_by(sequences, path)
    whole = _gradient(*_build(policy, path), sequences)
    apart = [_gradient(*_build(policy, path, OneOf(rank, size)), sequences) for rank in range(size)]
    torch.testing.assert_close(sum(apart), whole, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(apart[0], whole, rtol=1e-2)
    assert (size > len(sequences)) is bool((apart[-1] == 0).all())  # an empty share
