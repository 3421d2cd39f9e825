"""From sequences of unequal length to padded micro-batches under a token budget, and back in order.

Legend: N sequences, B rows of a micro-batch, T longest sequence of it.
Three masks that are never inferred from token values: attention (what is
seen), action (what the policy emitted), loss (what is trained).
Position t of a mask speaks of the token `ids[t]`, not of the logit before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from geartrain.errors import UserError


@dataclass(frozen=True)
class TokenSequence:
    """One sequence with its masks and any per-token values."""

    ids_T: Tensor
    """int64."""
    action_T: Tensor
    """bool."""
    loss_T: Tensor
    """bool; a loss token is never the first of a sequence, for nothing predicts it."""
    values: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors [T, ...] that travel with the tokens: log-probs, weights, advantages, a support's ids."""

    def __len__(self) -> int:
        return int(self.ids_T.shape[0])


@dataclass(frozen=True)
class Batch:
    """Right-padded rows. `rows` are the indices of the sequences they came from."""

    rows: Sequence[int]
    ids_BT: Tensor
    attention_BT: Tensor
    action_BT: Tensor
    loss_BT: Tensor
    values: Mapping[str, Tensor]
    """Name -> [B, T, ...], 0 on padding."""

    def to(self, device: torch.device) -> "Batch":
        """Return the batch with its tensors on `device`."""
        return Batch(
            self.rows,
            self.ids_BT.to(device),
            self.attention_BT.to(device),
            self.action_BT.to(device),
            self.loss_BT.to(device),
            {name: value_BT.to(device) for name, value_BT in self.values.items()},
        )


def with_value(sequence: TokenSequence, name: str, value_T: Tensor) -> TokenSequence:
    """Return a sequence with one more value travelling along."""
    return replace(sequence, values={**sequence.values, name: value_T})


def make_sequence(ids: Sequence[int], action: Sequence[bool], loss: Sequence[bool] | None = None) -> TokenSequence:
    """Build a sequence from lists of equal length; without `loss`, every action token is trained."""
    assert len(ids) == len(action) == len(action if loss is None else loss), "ids and masks differ in length"
    action_T = torch.tensor(action, dtype=torch.bool)
    loss_T = action_T.clone() if loss is None else torch.tensor(loss, dtype=torch.bool)
    if len(loss_T):
        loss_T[0] = False
    return TokenSequence(torch.tensor(ids, dtype=torch.int64), action_T, loss_T)


def collate(sequences: Sequence[TokenSequence], rows: Sequence[int] | None = None, *, pad_id: int = 0) -> Batch:
    """Right-pad some of `sequences` (all of them by default) into one batch."""
    chosen = list(range(len(sequences))) if rows is None else list(rows)
    picked = [sequences[row] for row in chosen]
    shape = (len(picked), max(len(sequence) for sequence in picked))
    ids_BT = torch.full(shape, pad_id, dtype=torch.int64)
    attention_BT, action_BT, loss_BT = (torch.zeros(shape, dtype=torch.bool) for _ in range(3))
    values = {
        name: torch.zeros((*shape, *value.shape[1:]), dtype=value.dtype) for name, value in picked[0].values.items()
    }
    for row, sequence in enumerate(picked):
        stop = len(sequence)
        ids_BT[row, :stop] = sequence.ids_T
        attention_BT[row, :stop] = True
        action_BT[row, :stop] = sequence.action_T
        loss_BT[row, :stop] = sequence.loss_T
        for name, value_BT in values.items():
            value_BT[row, :stop] = sequence.values[name]
    return Batch(chosen, ids_BT, attention_BT, action_BT, loss_BT, values)


def split_by_budget(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Partition indices into micro-batches of at most `budget` padded tokens, like lengths together.

    Longest first, so that a batch too large for the memory fails at once. A
    sequence longer than the budget gets a micro-batch of its own.
    """
    groups: list[list[int]] = []
    widest = 0
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not groups or (len(groups[-1]) + 1) * widest > budget:
            groups.append([])
            widest = lengths[index]
        groups[-1].append(index)
    return groups


def microbatches(
    sequences: Sequence[TokenSequence], *, budget: int, pad_id: int = 0, device: torch.device | None = None
) -> Iterator[Batch]:
    """Yield padded micro-batches that cover `sequences` once, on `device` if given; see `split_by_budget`."""
    for rows in split_by_budget([len(sequence) for sequence in sequences], budget):
        batch = collate(sequences, rows, pad_id=pad_id)
        yield batch if device is None else batch.to(device)


def restore_order(batches: Iterable[tuple[Batch, Tensor]], lengths: Sequence[int]) -> list[Tensor]:
    """Cut per-batch results [B, T, ...] back to one tensor [T_n, ...] per sequence, in the original order."""
    results: list[Tensor | None] = [None] * len(lengths)
    for batch, value_BT in batches:
        for index, row in enumerate(batch.rows):
            results[row] = value_BT[index, : lengths[row]]
    return [_present(value) for value in results]


def count_loss_tokens(sequences: Iterable[TokenSequence]) -> int:
    """Return the one denominator of an optimiser step: trained tokens after all masking.

    Raises:
        UserError: nothing is left to train on.
    """
    total = sum(int(sequence.loss_T.sum()) for sequence in sequences)
    if total == 0:
        raise UserError("a batch without a single trained token: every position is masked. Check the loss masks.")
    return total


def _present(value: Tensor | None) -> Tensor:
    assert value is not None, "a sequence is in no batch"
    return value
