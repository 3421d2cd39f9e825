"""What a teacher is told reaches nobody else: no player, no trained sequence, no reference pass (methods.md T10)."""

import pytest

import geartrain.training.policy_step as policy_step
import geartrain.training.reference_policy as reference_policy
import geartrain.training.teachers as teachers
from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.rewards.mix import RewardMix
from geartrain.stages.policy import TaskWorld
from geartrain.training.credit import CreditAssigner
from geartrain.training.policy import PolicyTrainer
from tests.fakes.parity import Parity, ParityPlayers, make_config, make_policy, make_tasks

HINTS = {
    "gear_p": "any even character",
    "direct_distillation": "any even character",
    "sgcd_p": "Checks that successful attempts met",
}


class WatchedPlayers(ParityPlayers):
    """Keeps every id that a model reads while it plays, and every episode that comes of it."""

    def __init__(self, config):
        super().__init__(config)
        self.read, self.recorded = [], []

    def play(self, policy, requests, **options):
        embeddings = policy.model.get_input_embeddings()
        hook = embeddings.register_forward_hook(lambda module, ids, out: self.read.extend(ids[0].tolist()))
        try:
            played = super().play(policy, requests, **options)
        finally:
            hook.remove()
        self.recorded += [trajectory.token_ids() for trajectory in played]
        return played


def _watch(monkeypatch, module, name, seen):
    """Note the sequences that a module hands to a function."""
    original = getattr(module, name)

    def watched(*args, **options):
        sequences = next((a for a in args if isinstance(a, list) and a and hasattr(a[0], "ids_T")), [])
        seen.extend(sequence.ids_T.tolist() for sequence in sequences)
        return original(*args, **options)

    monkeypatch.setattr(module, name, watched)


@pytest.mark.parametrize("name", HINTS)
def test_hints_are_read_by_the_teacher_alone(name, tmp_path, monkeypatch):
    asked, trained, compared = [], [], []
    _watch(monkeypatch, teachers, "frozen_pass", asked)
    _watch(monkeypatch, policy_step, "microbatches", trained)
    _watch(monkeypatch, reference_policy, "frozen_pass", compared)
    config, policy = make_config(iterations=2, validate_every=1, kl_coefficient=0.1), make_policy()
    players = WatchedPlayers(config)
    rewards = RewardMix(policy.tokenizer, model_weight=0.0, invalid_call_reward=-0.1, learned=None)
    world = TaskWorld(players, make_tasks(7), make_tasks(4, "val"), rewards, config, Parity(), policy.chat)
    width = policy.model.config.hidden_size
    assigner = CreditAssigner(RECIPES[name], settings_of(name, {}), critic=None, width=width, iterations=2, seed=0)
    PolicyTrainer(policy, assigner, world, config.policy, context=256, seed=0, work=tmp_path).run()

    def told(rows):
        return [HINTS[name] in policy.tokenizer.decode(row) for row in rows]

    assert any(told(asked))
    if name != "sgcd_p":  # which asks the student too, without the hint
        assert all(told(asked))
    for rows in (players.recorded, players.read, trained, compared):
        assert len(rows) > 10
        assert not any(told(rows))
