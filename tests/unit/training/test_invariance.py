"""The gradient of an optimiser step is that of its rows: no split, padding, order or number of ranks changes it.

In float64, over every recipe and every head of its loss (rl-faults A1, A5, A6, A11, A12, A16, C32; methods.md T9).
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

import geartrain.training.policy_step as policy_step
from geartrain.algorithms.recipe import RECIPES
from geartrain.algorithms.surrogate import log_ratio
from geartrain.models.scoring import token_logprobs
from geartrain.ranks import deal
from geartrain.training.batch import collate, make_sequence, microbatches
from tests.fakes.parity import make_config, make_policy
from tests.fakes.ranks import gradients_of_two
from tests.fakes.synthetic import (
    HEADS,
    OneBack,
    episodes,
    lesson_of,
    moved,
    near_the_policy,
    prepared_by,
    step_gradient,
    trainer_of,
)

EVERY_RECIPE = pytest.mark.parametrize("name", RECIPES)
TOLERANCE = 1e-10
WHOLE = {"minibatches": 1, "microbatch_tokens": 9999}
EVERYTHING = "k3 and entropy"
BUDGETS = {1: 9999, 2: 160, 4: 80, 8: 1}
"""Micro-batches -> padded tokens of one; the longest row has 40."""


def _section(head, **policy):
    return make_config(**{**WHOLE, **HEADS[head], **policy}).policy


@pytest.fixture(scope="module")
def model():
    """Weights in float64, large enough for what is read to change what is said."""
    policy = make_policy()
    policy.model.double()
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(8.0 if weight.ndim == 2 else 1.0)
    return policy


@pytest.fixture(scope="module")
def reference(model):
    """A warm start that the policy has left."""
    return moved(model.model, seed=1)


@pytest.fixture(scope="module")
def gradient_of(model, reference):
    """Return gradient and loss of one optimiser step: of a recipe, a section, some sequences."""
    return partial(step_gradient, model.model, reference=reference)


@pytest.fixture(scope="module")
def batch_of(model, reference, tmp_path_factory):
    """Return the sequences of a recipe, ready for their optimiser step; made once."""
    made = {}

    def make(name):
        if name not in made:
            section = make_config(kl_coefficient=0.5, iterations=8).policy
            trajectories = near_the_policy(model.model, episodes())
            trainer = trainer_of(name, model, section, tmp_path_factory.mktemp(name))
            # a teacher of its own, and the reference, must differ from what is trained
            trainer.reference.model.load_state_dict(reference.state_dict())
            if trainer._teachers.model is not None:
                trainer._teachers.model.load_state_dict(moved(model.model, seed=2).state_dict())
            made[name] = prepared_by(trainer, lesson_of(name, trajectories), iteration=4)
            for parameter in model.model.parameters():  # a trainer freezes the embeddings it does not move
                parameter.requires_grad_(True)
        return made[name]

    return make


def _padded(batch, left, right):
    """Return a micro-batch with garbage ids on more padding."""

    def pad(value, fill=0):
        widths = (*[0] * 2 * (value.dim() - 2), left, right)
        return torch.nn.functional.pad(value, widths, value=fill)

    return replace(
        batch,
        ids_BT=pad(batch.ids_BT, 9),
        attention_BT=pad(batch.attention_BT),
        action_BT=pad(batch.action_BT),
        loss_BT=pad(batch.loss_BT),
        values={name: pad(value) for name, value in batch.values.items()},
    )


def _close(found, expected):
    assert (found - expected).abs().max() <= TOLERANCE


@EVERY_RECIPE
def test_the_batch_is_one_that_could_go_wrong(name, batch_of, model, gradient_of):
    sequences = batch_of(name)
    batch = collate(sequences)
    mask, advantage = batch.loss_BT, batch.values["advantage"]
    scored = token_logprobs(model.model, batch.ids_BT, batch.attention_BT, temperature=0.8)
    ratio = log_ratio(scored.logprob_BT.detach(), batch.values["behaviour"], mask).exp()[mask]
    assert scored.logprob_BT.dtype == torch.float64
    assert ratio.min() < 0.8
    assert ratio.max() > 1.28
    assert advantage[mask].min() < 0 < advantage[mask].max()
    assert len({len(sequence) for sequence in sequences}) > 4
    assert len({int(sequence.loss_T.sum()) for sequence in sequences}) > 2
    assert all((~s.loss_T[12:]).any() and s.loss_T.any() for s in sequences)  # observations between actions
    assert ("support" in batch.values) is (name in {"gear_a", "gear_a_sgcd", "direct_distillation"})
    plain, _ = gradient_of(name, _section("plain"), sequences)
    for head in HEADS:
        gradient, _ = gradient_of(name, _section(head), sequences)
        assert gradient.abs().max() > 1e-3
        # a ratio without a policy gradient is nobody's
        unmoved = head == "plain" or (head == "sequence ratio" and not RECIPES[name].policy_gradient)
        assert torch.equal(gradient, plain) is unmoved


@EVERY_RECIPE
@pytest.mark.parametrize("head", HEADS)
def test_the_split_into_micro_batches_changes_no_gradient(name, head, batch_of, gradient_of):
    sequences = batch_of(name)
    expected, loss = gradient_of(name, _section(head), sequences)
    for pieces, budget in BUDGETS.items():
        assert len(list(microbatches(sequences, budget=budget))) == pieces
        found, again = gradient_of(name, _section(head, microbatch_tokens=budget), sequences)
        _close(found, expected)
        assert again == pytest.approx(loss, abs=TOLERANCE)


@EVERY_RECIPE
@pytest.mark.parametrize("head", HEADS)
def test_order_and_padding_change_no_gradient(name, head, batch_of, gradient_of, monkeypatch):
    sequences = batch_of(name)
    expected, _ = gradient_of(name, _section(head), sequences)
    shuffled = [sequences[row] for row in (3, 0, 7, 5, 1, 6, 2, 4)]
    _close(gradient_of(name, _section(head, microbatch_tokens=100), shuffled)[0], expected)
    for left, right in ((0, 9), (5, 0), (3, 4)):

        def wider(*args, left=left, right=right, **options):
            return (_padded(batch, left, right) for batch in microbatches(*args, **options))

        with monkeypatch.context() as patch:
            patch.setattr(policy_step, "microbatches", wider)
            _close(gradient_of(name, _section(head, microbatch_tokens=160), sequences)[0], expected)


@EVERY_RECIPE
@pytest.mark.parametrize("head", [EVERYTHING, "sequence ratio"])
def test_values_at_masked_positions_change_neither_loss_nor_gradient(name, head, batch_of, gradient_of):
    sequences = batch_of(name)

    def poison(sequence):
        values = {}
        for key, value in sequence.values.items():
            mask = sequence.loss_T.reshape(-1, *[1] * (value.dim() - 1))
            values[key] = torch.where(mask, value, torch.nan if value.is_floating_point() else 11)
        return replace(sequence, values=values)

    expected = gradient_of(name, _section(head), sequences)
    found = gradient_of(name, _section(head), [poison(sequence) for sequence in sequences])
    assert torch.equal(found[0], expected[0])
    assert found[1] == expected[1]


def _other_observations(trajectory):
    """Change every prompt and observation but its last token, which the next action reads."""
    turns = [
        replace(t, prompt_ids=[*((i + 17) % 256 for i in t.prompt_ids[:-1]), t.prompt_ids[-1]])
        for t in trajectory.turns
    ]
    return replace(trajectory, turns=turns)


@EVERY_RECIPE
def test_observations_are_context_and_nothing_else(name, tmp_path, model):
    # under a model that sees one token back, what lies further back is no context: nothing at all may change
    one_back = replace(model, model=OneBack().double())
    trajectories = near_the_policy(one_back.model, episodes())
    section, results = _section(EVERYTHING, iterations=8, train_embeddings=True), []
    for index, played in enumerate((trajectories, [_other_observations(t) for t in trajectories])):
        trainer = trainer_of(name, one_back, section, tmp_path / str(index))
        for weight in () if trainer._teachers.model is None else trainer._teachers.model.parameters():
            weight.mul_(1.2)
        sequences = prepared_by(trainer, lesson_of(name, played), iteration=4)
        results.append((sequences, *step_gradient(one_back.model, name, section, sequences)))
    (before, gradient, loss), (after, other_gradient, other_loss) = results
    assert any(not torch.equal(a.ids_T, b.ids_T) for a, b in zip(before, after, strict=True))
    for a, b in zip(before, after, strict=True):
        for key, value in a.values.items():
            assert torch.equal(value[a.loss_T], b.values[key][b.loss_T]), key
    assert torch.equal(gradient, other_gradient)
    assert loss == other_loss


def _masked_row():
    """A row of which nothing is trained."""
    return make_sequence(list(range(10, 40)), [False] * 30)


def _with_values(sequence, like):
    values = {
        key: torch.zeros((len(sequence), *value.shape[1:]), dtype=value.dtype) for key, value in like.values.items()
    }
    return replace(sequence, values=values)


STEPS = {
    "unequal": lambda rows: rows[:3],  # one row against two
    "many": lambda rows: rows,
    "empty": lambda rows: rows[:1],
    "masked": lambda rows: [_with_values(_masked_row(), rows[0]), rows[0]],
}
"""What a step holds, and so what the shares of two ranks are like."""


@pytest.fixture(scope="module")
def of_two_ranks(batch_of, model, reference, tmp_path_factory):
    """Return the gradient of every recipe, head and kind of step, all from one pair of processes."""
    keys, jobs = [], []
    for name in RECIPES:
        others = (("k2", "many"), ("k1", "empty"), ("full", "empty"), ("sequence ratio", "masked"))
        steps = [*((head, "unequal") for head in HEADS), *others]
        for head, step in steps:
            keys.append((name, head, step))
            jobs.append((name, _section(head, microbatch_tokens=80), STEPS[step](batch_of(name))))
    found = gradients_of_two(tmp_path_factory.mktemp("ranks"), model.model, reference, jobs)
    return dict(zip(keys, found, strict=True))


@pytest.mark.slow
@EVERY_RECIPE
def test_two_ranks_with_unequal_shares_are_one_process(name, of_two_ranks, batch_of, gradient_of):
    for (recipe, head, step), found in of_two_ranks.items():
        if recipe == name:
            rows = STEPS[step](batch_of(name))
            _close(found, gradient_of(name, _section(head), rows)[0])
            counts = [sum(int(rows[i].loss_T.sum()) for i in share) for share in deal([len(r) for r in rows], 2)]
            assert counts[0] != counts[1]
            assert (0 in counts) is (step in ("empty", "masked"))
