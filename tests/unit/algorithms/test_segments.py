"""Golden cases of the segmenter (methods.md T7)."""

import pytest
import torch

from geartrain.algorithms.segments import open_segments, share_onset

SETTINGS = {"onset": 0.125, "growth": 1.5, "floor": 0.05, "longest": 100}


def _open(signal, entropy, turn=None, **given):
    turn = [0] * len(signal) if turn is None else turn
    found = open_segments(*(torch.tensor([values]) for values in (signal, entropy, turn)), **SETTINGS | given)
    return found[0].tolist()


@pytest.mark.parametrize(
    ("signal", "entropy", "turn", "expected"),
    [
        pytest.param([0.0, 0.125, 0.05], [1.0] * 3, None, [-1, -1, -1], id="no spike: the onset itself is none"),
        pytest.param([0.0, 0.0, 0.9], [1.0] * 3, None, [-1, -1, 2], id="spike at the end"),
        pytest.param([0.9, 0.0, 0.0, 0.0], [1.0, 1.4, 1.6, 1.0], None, [0, 0, -1, -1], id="closed by entropy"),
        pytest.param([0.9, 0.0, 0.5, 0.0], [1.0, 1.0, 1.6, 1.0], None, [0, 0, 2, 2], id="what closes may open anew"),
        pytest.param([0.9, 0.8, 0.7], [1.0] * 3, None, [0, 0, 0], id="adjacent spikes share the first"),
        pytest.param([0.9, 0.0, 0.0], [0.0, 0.04, 0.06], None, [0, 0, -1], id="zero entropy at the onset: the floor"),
        pytest.param([0.9, 0.0, 0.0, 0.0], [1.0] * 4, [0, -1, 0, 0], [0, -1, -1, -1], id="a gap in the mask closes"),
        pytest.param([0.9, 0.0, 0.0, 0.0], [1.0] * 4, [0, 0, 1, 1], [0, 0, -1, -1], id="a turn's end closes"),
        pytest.param([9.0, 9.0], [1.0, 1.0], [-1, -1], [-1, -1], id="observations open nothing"),
    ],
)
def test_golden_cases(signal, entropy, turn, expected):
    assert _open(signal, entropy, turn) == expected


def test_a_segment_has_a_longest_length():
    assert _open([0.9, 0.0, 0.0, 0.0], [1.0] * 4, longest=2) == [0, 0, -1, -1]


def test_rows_do_not_meet():
    signal = torch.tensor([[0.0, 0.9], [0.0, 0.0]])
    found = open_segments(signal, torch.ones(2, 2), torch.zeros(2, 2, dtype=torch.int64), **SETTINGS)
    assert found.tolist() == [[-1, 1], [-1, -1]]


def test_tokens_of_a_segment_share_its_onset_and_others_keep_their_own():
    shared = share_onset(torch.tensor([[0.9, 0.2, 0.05, 0.3]]), torch.tensor([[0, 0, -1, 3]]))
    assert shared[0].tolist() == pytest.approx([0.9, 0.9, 0.05, 0.3])
