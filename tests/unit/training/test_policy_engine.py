"""The engine of a policy that is held whole: what it keeps of itself, and what of others it refuses."""

import copy

import pytest
import torch

from geartrain.errors import UserError
from geartrain.training.policy_engine import WholeEngine, build_engine
from tests.fakes.parity import make_config, make_policy


def _moved(engine, model):
    """Return the norm's weights after one step towards more of an id."""
    ids_BT = torch.tensor([[1, 2, 3]])

    def piece():
        scored = engine.score(ids_BT, torch.ones_like(ids_BT), temperature=1.0)
        return -scored.logprob_BT.sum(), None

    assert list(engine.accumulate([piece])) == [None]
    assert engine.step().gradient_norm > 0
    return model.model.norm.weight.clone()


def test_it_goes_on_from_what_it_saved(tmp_path):
    section = make_config().policy
    models = [make_policy().model for _ in range(2)]
    first, second = (build_engine(model, section) for model in models)
    start = models[0].model.norm.weight.clone()
    assert not torch.equal(_moved(first, models[0]), start)
    models[1].load_state_dict(models[0].state_dict())
    second.load(tmp_path, copy.deepcopy(first.save(tmp_path, 1)))  # a checkpoint is a copy
    assert torch.equal(_moved(first, models[0]), _moved(second, models[1]))
    assert list(tmp_path.iterdir()) == []


def test_parts_of_several_ranks_are_not_its_own(tmp_path):
    engine = build_engine(make_policy().model, make_config().policy)
    assert isinstance(engine, WholeEngine)
    with pytest.raises(UserError, match=r"of 2 rank\(s\) under ZeRO 3.*policy\.sharding as it was"):
        engine.load(tmp_path, {"shards": "000000004", "world": 2, "zero": 3, "steps": 4})
