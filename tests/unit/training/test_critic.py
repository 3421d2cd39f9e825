import copy
import json
from dataclasses import replace

import pytest
import torch

from geartrain.errors import UserError
from geartrain.models.heads import CriticHead
from geartrain.training.critic import (
    CriticData,
    Labelling,
    action_key,
    judge_critic,
    label_turns,
    pearson,
    shuffle_labels,
    split_by_task,
    train_critic,
)
from geartrain.training.features import TurnFeatures
from geartrain.training.online_critic import OnlineCritic
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn


def _turn(name, result="ok", subgoals=(), **arguments):
    text = json.dumps({"name": name, "arguments": arguments})
    return Turn([1], [2], [-0.1], text, ToolCall(name, arguments), ToolResult(result), subgoals)


def _trajectory(sibling, turns, success, progress=None, task="task"):
    progress = float(success) if progress is None else progress
    return Trajectory(task, "family", task, sibling, 0, 0, 1.0, turns, success, progress, "finished")


def _features(trajectories, width=4):
    return [TurnFeatures(torch.zeros(len(t.turns), width), torch.zeros(len(t.turns), width)) for t in trajectories]


def _label(trajectories, **settings):
    options = {"shrinkage": 0.0, "subgoal_credit": 0.0, "clip": 5.0, **settings}
    return label_turns(trajectories, _features(trajectories), **options)


def test_the_decisive_step_gets_the_credit_and_the_shared_start_none():
    siblings = [
        _trajectory(0, [_turn("look"), _turn("open", key="red"), _turn("finish")], True),
        _trajectory(1, [_turn("look"), _turn("open", key="blue"), _turn("finish")], False),
    ]
    assert _label(siblings).credit_S.tolist() == [0.0, 1.0, 0.0, 0.0, -1.0, 0.0]


def test_the_same_call_spelled_in_another_order_is_the_same_action():
    first = _turn("mail", to="a", subject="b")
    second = Turn([], [], [], "...", ToolCall("mail", {"subject": "b", "to": "a"}), ToolResult("ok"))
    assert action_key(first) == action_key(second)
    broken = Turn([], [], [], "mail a", None, ToolResult("no call", "no_call"))
    assert action_key(broken) == "mail a"


def test_an_answer_that_differs_parts_the_states():
    siblings = [
        _trajectory(0, [_turn("look", "sun"), _turn("go", way="left")], True),
        _trajectory(1, [_turn("look", "rain"), _turn("go", way="right")], False),
    ]
    assert _label(siblings).support_S.tolist() == [0.0, 0.0, 0.0, 0.0]


def test_progress_tells_failures_apart():
    siblings = [
        _trajectory(0, [_turn("a")], False, progress=0.5),
        _trajectory(1, [_turn("b")], False, progress=0.0),
    ]
    assert _label(siblings).credit_S.tolist() == [0.25, -0.25]


def test_tasks_are_not_compared_with_one_another():
    data = _label([_trajectory(0, [_turn("a")], True, task="x"), _trajectory(0, [_turn("b")], False, task="y")])
    assert data.credit_S.tolist() == [0.0, 0.0]
    assert data.task_S == ["x", "y"]


def test_similar_states_can_be_compared_where_histories_differ():
    siblings = [
        _trajectory(0, [_turn("look", "sun"), _turn("go", way="left")], True),
        _trajectory(1, [_turn("look", "rain"), _turn("go", way="right")], False),
    ]
    place = torch.tensor([[1.0, 0.0], [-1.0, 0.1]])
    features = [TurnFeatures(place, place), TurnFeatures(place, place)]
    data = label_turns(siblings, features, shrinkage=0.0, subgoal_credit=0.0, clip=5.0, similarity=0.95)
    assert data.credit_S.tolist() == [0.0, 1.0, 0.0, -1.0]


def test_rollouts_without_a_turn_are_refused():
    with pytest.raises(UserError, match="no turn at all"):
        _label([_trajectory(0, [], False)])


def _planted(tasks=40, turns=30):
    """Credit is a function of the action's embedding; the state is noise."""
    generator = torch.Generator().manual_seed(0)
    state = torch.randn(tasks * turns, 6, generator=generator)
    action = torch.randn(tasks * turns, 6, generator=generator)
    credit = 0.3 * action[:, 0] + 0.05 * torch.randn(tasks * turns, generator=generator)
    names = [f"task-{i // turns}" for i in range(tasks * turns)]
    ones_S = torch.ones(len(names))
    return CriticData(state, action, credit, ones_S, torch.zeros(len(names)), names, ones_S)


SETTINGS = {"hidden": 16, "learning_rate": 1e-2, "epochs": 20, "seed": 0}


def test_a_planted_credit_is_found_on_held_out_tasks_and_shuffled_labels_find_nothing():
    training, validation = split_by_task(_planted(), validation_share=0.25, seed=0)
    assert not set(training.task_S) & set(validation.task_S)
    head, history = train_critic(training, validation, **SETTINGS)
    assert judge_critic(head, validation)["correlation"] > 0.9
    assert min(record["error"] for record in history) < history[0]["error"]
    control, _ = train_critic(shuffle_labels(training, seed=0), validation, **SETTINGS)
    assert abs(judge_critic(control, validation)["correlation"]) < 0.3
    # the head speaks in units of credit although it was trained on standardised labels
    predicted = head(validation.state_SH, validation.action_SH)
    assert predicted.std().item() == pytest.approx(0.3, rel=0.2)


def test_training_repeats():
    training, validation = split_by_task(_planted(8), validation_share=0.25, seed=0)
    first, _ = train_critic(training, validation, **SETTINGS)
    torch.rand(3)
    second, _ = train_critic(training, validation, **SETTINGS)
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())


def test_turns_of_weight_zero_teach_nothing():
    training, validation = split_by_task(_planted(), validation_share=0.25, seed=0)
    wrong_S = torch.arange(len(training)) % 2 == 0
    spoiled = replace(training, credit_S=torch.where(wrong_S, -training.credit_S, training.credit_S))
    found = []
    for data in (spoiled, replace(spoiled, weight_S=2.0 * ~wrong_S)):
        head, _ = train_critic(data, validation, **SETTINGS)
        found.append(judge_critic(head, validation)["correlation"])
    assert abs(found[0]) < 0.5
    assert found[1] > 0.9


def test_labels_that_never_vary_give_a_critic_that_claims_nothing():
    data = _planted(4)
    flat = replace(data, credit_S=data.credit_S * 0)
    training, validation = split_by_task(flat, validation_share=0.25, seed=0)
    head, _ = train_critic(training, validation, **SETTINGS)
    assert judge_critic(head, validation)["correlation"] is None


def test_one_task_cannot_be_split():
    with pytest.raises(UserError, match="at least 2 tasks"):
        split_by_task(_planted(1), validation_share=0.2, seed=0)


def test_pearson():
    assert pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 6.1])) == pytest.approx(1.0, abs=1e-3)
    assert pearson(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 1.0])) is None
    assert pearson(torch.tensor([1.0]), torch.tensor([2.0])) is None


def _online(steps, reliability=0.5):
    torch.manual_seed(0)
    settings = {"critic_steps": steps, "critic_learning_rate": 1e-2, "critic_decay": 0.5}
    labelling = Labelling(shrinkage=1.0, subgoal_credit=0.5, clip=5.0)
    return OnlineCritic(CriticHead(4, hidden=8), reliability, labelling, settings, iterations=20)


def _batch(seed):
    """Siblings whose first action decides: the features show it."""
    generator = torch.Generator().manual_seed(seed)
    trajectories, features = [], []
    for sibling in range(8):
        good = sibling % 2 == 0
        turns = [_turn("ask", what="a" if good else "b"), _turn("finish")]
        trajectories.append(_trajectory(sibling, turns, good, task=f"t{seed}"))
        state = torch.randn(2, 4, generator=generator)
        action = torch.randn(2, 4, generator=generator)
        action[0, 0] = 2.0 if good else -2.0
        features.append(TurnFeatures(state, action))
    return trajectories, features


def test_an_online_critic_is_judged_by_batches_that_it_has_not_seen_and_then_learns_them():
    critic = _online(steps=8)
    found = [critic.fit(*_batch(seed)) for seed in range(15)]
    assert found[-1]["critic_correlation"] > 0.6 > abs(found[0]["critic_correlation"])
    assert found[-1]["critic_loss"] < 0.5 * found[0]["critic_loss"]
    assert critic.reliability == pytest.approx(found[-1]["critic_reliability"])


def test_the_queried_copy_lags_behind_and_a_restored_critic_goes_on_alike():
    critic, other = _online(steps=4), _online(steps=4)
    critic.fit(*_batch(0))
    assert not torch.equal(critic.target.outer.weight, critic.head.outer.weight)
    other.load_state_dict(copy.deepcopy(critic.state_dict()))
    assert other.fit(*_batch(1)) == critic.fit(*_batch(1))
    assert torch.equal(other(_batch(2)[1]), critic(_batch(2)[1]))


def test_without_steps_a_critic_stays_as_it_was_trained():
    critic = _online(steps=0)
    before = critic(_batch(0)[1])
    told = critic.fit(*_batch(0))  # it is measured all the same: a policy leaves such a critic behind
    assert set(told) == {"critic_correlation", "critic_reliability"}
    assert told["critic_reliability"] == 0.5
    assert torch.equal(critic(_batch(0)[1]), before)
    assert (critic.reliability, critic.state_dict()) == (0.5, {})
