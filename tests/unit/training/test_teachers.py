"""Teachers: asked about the tokens that were sampled, at the sampler's temperature, whatever they are told first."""

import copy
from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.models.scoring import token_logprobs
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.schema import SamplingSection
from geartrain.training.features import sequence_of
from geartrain.training.teachers import Teachers
from tests.fakes.parity import TURNS, Parity, make_policy, make_tasks

TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def policy():
    policy = make_policy()
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(3)  # an untrained model hardly minds what it reads
    return policy


@pytest.fixture(scope="module")
def played(policy):
    requests = [EpisodeRequest(task, sibling, task.task_id) for task in make_tasks(2) for sibling in range(2)]
    sampling = SamplingSection(temperature=TEMPERATURE, max_new_tokens=5, rows=4)
    return play(Parity(), policy, requests, sampling=sampling, limits=Limits(256, TURNS), seed=0, policy_version=0)


def _teachers(policy, recipe, **settings):
    model = copy.deepcopy(policy.model)
    options = {"iterations": 10, "microbatch_tokens": 64, "decoder": policy.tokenizer}
    return Teachers(RECIPES[recipe], settings_of(recipe, settings), model, **options), model


def _own(trajectory):
    return list(trajectory.turns[0].prompt_ids)


def _told(trajectory):
    return [*_own(trajectory), 40, 41, 42, 43, 44]


@pytest.mark.parametrize("recipe", ["gear_b", "gear_p", "sgcd_p"])
def test_a_teacher_that_knows_no_more_agrees_with_the_sampler_at_its_temperature(policy, played, recipe):
    teachers, _ = _teachers(policy, recipe)
    sequences = [sequence_of(trajectory) for trajectory in played]
    view = teachers.view(played, sequences, _own)
    for row, sequence in enumerate(sequences):
        own_T = view.logprob_NT[row, : len(sequence)]
        torch.testing.assert_close(
            own_T[sequence.loss_T], sequence.values["behaviour"][sequence.loss_T], atol=1e-4, rtol=0
        )
    if view.divergence_NT is not None:
        assert view.divergence_NT.abs().max() < 1e-5


@pytest.mark.parametrize("teacher", ["ema", "snapshot"])
def test_a_past_self_that_has_not_moved_explains_nothing(policy, played, teacher):
    teachers, _ = _teachers(policy, "gear_a", teacher=teacher)
    sequences = [sequence_of(trajectory) for trajectory in played]
    assert teachers.view(played, sequences, _own) is None  # it weighs nothing: no pass over every token
    for gap_T, sequence in zip(teachers.gap(played, sequences, [0, 3]), (sequences[0], sequences[3]), strict=True):
        assert gap_T[sequence.loss_T].abs().max() < 1e-4


@pytest.mark.parametrize("recipe", ["gear_p", "sgcd_p"])
@pytest.mark.parametrize("opening", [_told, lambda trajectory: _own(trajectory)[:3]], ids=["longer", "shorter"])
@torch.no_grad()
def test_what_a_told_teacher_says_comes_back_to_the_tokens_it_is_about(policy, played, recipe, opening):
    teachers, model = _teachers(policy, recipe)
    view = teachers.view(played, [sequence_of(trajectory) for trajectory in played], opening)
    for row, trajectory in enumerate(played):
        prompt, ids = opening(trajectory), trajectory.token_ids()
        rest = ids[len(_own(trajectory)) :]
        told = torch.tensor([[*prompt, *rest]])
        scored = token_logprobs(model, told, torch.ones_like(told), temperature=TEMPERATURE, want_entropy=True)
        mask = torch.tensor(trajectory.action_mask()[-len(rest) :])
        compared = [(view.logprob_NT, scored.logprob_BT)]
        if recipe == "sgcd_p":  # the one that reads the teacher's entropy
            compared.append((view.entropy_NT, scored.entropy_BT))
        for found_NT, whole_BT in compared:
            found = found_NT[row, len(ids) - len(rest) : len(ids)]
            torch.testing.assert_close(found[mask], whole_BT[0, len(prompt) :][mask], atol=1e-5, rtol=0)
            assert found[~mask].abs().max() == 0
    if view.divergence_NT is not None:
        mask_NT = view.logprob_NT != 0
        assert view.divergence_NT.min() > -1e-6
        assert view.divergence_NT[mask_NT].max() > 1e-3
        assert view.divergence_NT[~mask_NT].abs().max() == 0


@pytest.mark.parametrize("recipe", ["gear_p", "sgcd_p"])
def test_a_trajectory_that_there_is_no_room_to_tell_is_marked(policy, played, recipe):
    teachers, _ = _teachers(policy, recipe)
    sequences = [sequence_of(trajectory) for trajectory in played]
    view = teachers.view(played, sequences, lambda t: None if t is played[1] else _told(t))
    assert view.scored_N.tolist() == [True, False, True, True]
    assert view.logprob_NT[1].abs().max() == 0
    nobody = teachers.view(played, sequences, lambda trajectory: None)
    assert not nobody.scored_N.any()


@pytest.mark.parametrize("recipe", ["direct_distillation", "gear_a"])
def test_a_distribution_to_match_sums_to_one_and_is_of_trained_tokens(policy, played, recipe):
    teachers, model = _teachers(policy, recipe)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    sequences = [sequence_of(trajectory) for trajectory in played]
    for found, sequence in zip(teachers.distributions(played, sequences, _told), sequences, strict=True):
        assert found.logprob_TK[sequence.loss_T].exp().sum(-1).tolist() == pytest.approx(
            [1.0] * int(sequence.loss_T.sum())
        )
        assert (found.support_TK[~sequence.loss_T] == -1).all()
        assert not found.logprob_TK.requires_grad
        observed = (found.support_TK == sequence.ids_T[:, None]).sum(-1)
        assert observed[sequence.loss_T].tolist() == [1] * int(sequence.loss_T.sum())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("recipe", "settings", "expected"),
    [
        # taken before the updates of iterations 1, 3 and 5
        ("gear_b", {"snapshot_share": 0.2, "warm_share": 0.1}, [1, 1, 2, 1, 2, 1]),
        # of 0, 2 and 4: there is no warm-up
        ("gear_a", {"teacher": "snapshot", "snapshot_share": 0.2}, [1, 2, 1, 2, 1, 2]),
        ("gear_a_sgcd", {"teacher": "snapshot", "snapshot_share": 0.0}, [1] * 6),  # of one iteration before
        ("gear_a", {"teacher": "ema", "teacher_decay": 0.0}, [0] * 6),  # the student itself
        ("gear_a", {"teacher": "ema", "teacher_decay": 1.0}, [1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_past_self_is_renewed_when_its_settings_say_so(policy, recipe, settings, expected):
    teachers, student = _teachers(policy, recipe, **settings)
    weight, seen = student.get_input_embeddings().weight, []
    with torch.no_grad():
        for iteration in range(6):
            teachers.begin(iteration)
            weight.add_(1.0)
            teachers.end()
            ahead = weight - teachers.model.get_input_embeddings().weight
            seen.append(round(float(ahead.mean())))
    assert seen == expected


@pytest.mark.parametrize("teacher", ["ema", "snapshot"])
def test_a_teacher_with_weights_of_its_own_survives_a_reload(policy, teacher):
    teachers, student = _teachers(policy, "gear_a", teacher=teacher, teacher_decay=0.5)
    with torch.no_grad():
        student.get_input_embeddings().weight.add_(1.0)
    teachers.begin(1)
    teachers.end()
    other, _ = _teachers(policy, "gear_a", teacher=teacher)
    other.load_state_dict(teachers.state_dict())
    pairs = zip(teachers.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(left, right) for left, right in pairs)
    assert not torch.equal(teachers.model.get_input_embeddings().weight, policy.model.get_input_embeddings().weight)
    assert _teachers(policy, "gear_p")[0].state_dict() is None


def test_trajectories_are_asked_about_at_the_temperature_they_were_sampled_at(policy, played):
    teachers, _ = _teachers(policy, "gear_b")
    cold = [replace(trajectory, temperature=0.3) for trajectory in played]
    sequences = [sequence_of(trajectory) for trajectory in played]
    views = [teachers.view(chosen, sequences, _own).logprob_NT for chosen in (played, cold)]
    assert (views[0] - views[1]).abs().max() > 1e-2
