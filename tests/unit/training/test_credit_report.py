"""What is written down of the credit of single turns."""

import pytest
import torch

from geartrain.algorithms.past_self import progress_granularity
from geartrain.training.credit_numbers import turn_means
from geartrain.training.credit_report import credit_records
from tests.fakes.parity import make_config, make_policy
from tests.fakes.synthetic import episodes, lesson_of, trainer_of


@pytest.mark.parametrize(("name", "source"), [("gear_b", "progress"), ("gear_b", "learned"), ("grpo", None)])
def test_a_turn_has_the_granularity_that_weighed_it(name, source, tmp_path):
    played = episodes()
    trainer = trainer_of(
        name, make_policy(), make_config().policy, tmp_path, {"granularity": source} if source else None
    )
    lesson = lesson_of(name, played)
    batch = trainer.weigh(lesson)
    records = credit_records(batch, trainer.assigner, lesson, {t.task_id: "" for t in played})
    found = [turn["granularity"] for record in records for turn in record["turns"]]
    assert len(found) == sum(len(t.turns) for t in played)
    if source is None:
        assert set(found) == {None}
        return
    evidence = batch.evidence
    coarse_NT = progress_granularity(evidence.progress_NT) if source == "progress" else evidence.granularity_NT
    expected = turn_means(coarse_NT, evidence.turn_NT, len(found))
    assert torch.allclose(torch.tensor(found), expected, atol=1e-4)
    assert 0 <= min(found) <= max(found) <= 1
