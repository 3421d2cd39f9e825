import pytest
import torch

from geartrain.errors import UserError
from geartrain.training.batch import (
    collate,
    count_loss_tokens,
    make_sequence,
    microbatches,
    restore_order,
    split_by_budget,
)


def _sequences(*lengths: int):
    return [make_sequence([7] * n, [t > 0 for t in range(n)]) for n in lengths]


def test_padding_is_never_inferred_from_a_token_value():
    # the sequence ends in the pad id, which is trained like any other token
    batch = collate([make_sequence([5, 6, 0], [False, True, True]), make_sequence([5], [False])], pad_id=0)
    assert batch.ids_BT.tolist() == [[5, 6, 0], [5, 0, 0]]
    assert batch.attention_BT.tolist() == [[True, True, True], [True, False, False]]
    assert batch.loss_BT.tolist() == [[False, True, True], [False, False, False]]


def test_loss_and_action_are_separate_masks_and_the_first_token_is_never_trained():
    sequence = make_sequence([1, 2, 3], [True, True, True], [True, True, False])
    assert sequence.action_T.tolist() == [True, True, True]
    assert sequence.loss_T.tolist() == [False, True, False]


def test_micro_batches_respect_the_budget_and_cover_every_sequence_once():
    lengths = [3, 17, 4, 4, 9, 1, 16, 2]
    groups = split_by_budget(lengths, 32)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    assert all(len(group) * max(lengths[i] for i in group) <= 32 for group in groups)
    padded = sum(len(group) * max(lengths[i] for i in group) for group in groups)
    assert padded < 1.25 * sum(lengths)


def test_a_sequence_longer_than_the_budget_goes_alone():
    assert split_by_budget([40, 2], 10) == [[0], [1]]


def test_results_return_in_the_order_of_the_sequences():
    lengths = [2, 9, 4, 1, 7]
    sequences = [make_sequence([n] * n, [False] * n) for n in lengths]
    results = [(batch, batch.ids_BT.float() * 10) for batch in microbatches(sequences, budget=12)]
    restored = restore_order(results, lengths)
    assert [value_T.tolist() for value_T in restored] == [[n * 10.0] * n for n in lengths]


def test_values_travel_with_their_tokens():
    first, second = _sequences(3, 2)
    first = type(first)(first.ids_T, first.action_T, first.loss_T, {"weight": torch.tensor([1.0, 2.0, 3.0])})
    second = type(second)(second.ids_T, second.action_T, second.loss_T, {"weight": torch.tensor([4.0, 5.0])})
    batch = collate([first, second], [1, 0])
    assert batch.rows == [1, 0]
    assert batch.values["weight"].tolist() == [[4.0, 5.0, 0.0], [1.0, 2.0, 3.0]]


def test_a_batch_without_trained_tokens_is_refused():
    assert count_loss_tokens(_sequences(3, 2)) == 3
    with pytest.raises(UserError, match="every position is masked"):
        count_loss_tokens(_sequences(1, 1))
