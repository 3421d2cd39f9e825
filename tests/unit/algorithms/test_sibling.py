import pytest
import torch

from geartrain.algorithms.sibling import match_by_similarity, match_exactly, sibling_labels, state_keys

PLAIN = {"shrinkage": 0.0, "subgoal_credit": 0.0, "clip": 5.0}


def _labels(match, actions, outcomes, subgoals=None, **settings):
    subgoals = [False] * len(actions) if subgoals is None else subgoals
    return sibling_labels(match, actions, torch.tensor(outcomes), torch.tensor(subgoals), **{**PLAIN, **settings})


def test_contrast_of_actions_in_one_state():
    # a: 1, 1, 0 -> 2/3; b: 0 -> 0
    labels = _labels(match_exactly(["s"] * 4), ["a", "a", "a", "b"], [1.0, 1.0, 0.0, 0.0])
    assert labels.credit_S.tolist() == pytest.approx([2 / 3] * 3 + [-2 / 3])
    assert labels.support_S.tolist() == [1.0] * 4


def test_the_same_action_with_mixed_outcomes_says_nothing_about_the_action():
    labels = _labels(match_exactly(["s"] * 4), ["a"] * 4, [1.0, 0.0, 1.0, 0.0])
    assert labels.credit_S.tolist() == [0.0] * 4
    assert labels.support_S.tolist() == [0.0] * 4


def test_states_are_not_mixed():
    labels = _labels(match_exactly(["s", "s", "t", "t"]), ["a", "b", "a", "b"], [1.0, 0.0, 0.0, 1.0])
    assert labels.credit_S.tolist() == [1.0, -1.0, -1.0, 1.0]


def test_few_siblings_are_trusted_less():
    few = _labels(match_exactly(["s"] * 2), ["a", "b"], [1.0, 0.0], shrinkage=1.0)
    many = _labels(match_exactly(["s"] * 8), ["a", "b"] * 4, [1.0, 0.0] * 4, shrinkage=1.0)
    assert few.credit_S.tolist() == [0.5, -0.5]
    assert many.credit_S.tolist() == pytest.approx([0.8, -0.8] * 4)


def test_a_subgoal_earns_credit_whatever_the_outcome():
    labels = _labels(match_exactly(["s", "t"]), ["a", "b"], [0.0, 0.0], [True, False], subgoal_credit=0.5)
    assert labels.credit_S.tolist() == [0.5, 0.0]


@pytest.mark.parametrize("siblings", [2, 8, 16])
def test_labels_are_bounded_however_many_siblings_there_are(siblings):
    # the article multiplies 1.5 per sibling of opposite outcome: 17 at 8 siblings, 438 at 16
    outcomes = [1.0] + [0.0] * (siblings - 1)
    labels = _labels(match_exactly(["s"] * siblings), ["a"] + ["b"] * (siblings - 1), outcomes, subgoal_credit=0.5)
    assert labels.credit_S.abs().max() <= 1.0
    clipped = _labels(match_exactly(["s"] * 2), ["a", "b"], [1.0, 0.0], [True, True], subgoal_credit=9.0, clip=5.0)
    assert clipped.credit_S.tolist() == [5.0, 5.0]


def _literal(turns, success, opposite):
    """The article's label of every step, to the letter: its horizon, its factor per sibling, its precedence."""
    trajectory = {"states": turns, "actions": turns}
    labels = []
    for step in range(turns):
        credit = 0.9 ** (len(trajectory) - 1 - step) if success else -1.0
        for _ in range(opposite):
            credit = credit * 1.2 if success else 1.5
        labels.append(credit)
    return labels


def test_the_articles_own_labels_explode_and_turn_the_sign_of_a_failure():
    assert _literal(20, True, 0)[::19] == pytest.approx([0.9, 0.9**-18])  # instead of 0.9 ** 19 and 1
    assert _literal(1, False, 1) == [1.5]  # a failure is credited
    assert _literal(1, True, 16)[0] > 16  # one factor for every sibling


def test_failure_is_never_credited_for_failing():
    # the article's precedence slip gives every failed sibling + 1.5
    labels = _labels(match_exactly(["s"] * 3), ["a", "b", "b"], [1.0, 0.0, 0.0])
    assert labels.credit_S[1] < 0
    assert labels.credit_S[2] < 0


def test_a_state_is_its_whole_history():
    first = state_keys(["look", "open", "end"], ["a room", "a door", ""])
    other = state_keys(["look", "open", "end"], ["a room", "locked", ""])
    assert first[0] == other[0]
    assert first[1] == other[1]
    assert first[2] != other[2]
    assert state_keys(["ab", "x"], ["c", ""])[1] != state_keys(["a", "x"], ["bc", ""])[1]
    assert len(set(first)) == 3


def test_similar_states_are_matched_across_trajectories_once_each():
    embedding = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [0.1, 0.9], [0.95, 0.05]])
    trajectory = torch.tensor([0, 0, 1, 1, 2])
    match = match_by_similarity(embedding, trajectory, threshold=0.95)
    assert match[0].tolist() == [True, False, True, False, True]
    assert match[1].tolist() == [False, True, False, True, False]
    assert match.diagonal().all()


def test_a_common_direction_of_all_embeddings_does_not_make_states_similar():
    apart = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]) + torch.tensor([100.0, 100.0])
    assert match_by_similarity(apart, torch.tensor([0, 1]), threshold=0.9).tolist() == [[True, False], [False, True]]
