"""How often the frozen warm start is asked, where a KL is paid in the reward."""

from collections import Counter

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.methods import settings_of
from geartrain.models.heads import CriticHead
from geartrain.rewards.mix import RewardMix
from geartrain.stages.policy import TaskWorld
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.policy import PolicyTrainer
from tests.fakes.parity import Parity, ParityPlayers, make_config, make_policy, make_tasks


def _trainer(trainer_type, work, config, recipe):
    policy, section = make_policy(), config.policy
    torch.manual_seed(11)
    width = policy.model.config.hidden_size
    assigner = CreditAssigner(
        RECIPES[recipe],
        settings_of(recipe, section.settings.get(recipe, {})),
        critic=Critic(CriticHead(width, hidden=8).eval(), 0.7, None),
        width=width,
        iterations=section.iterations,
        seed=0,
    )
    rewards = RewardMix(policy.tokenizer, model_weight=0.0, invalid_call_reward=-0.1, learned=None)
    tasks = make_tasks(7), make_tasks(4, "val")
    world = TaskWorld(ParityPlayers(config), *tasks, rewards, config, Parity(), policy.chat)
    return trainer_type(policy, assigner, world, section, context=256, seed=0, work=work)


class AsksTwice(PolicyTrainer):
    """As before the reference remembered: what a charge asked is asked again for the lesson."""

    def _train(self, lesson, iteration):
        self.reference.forget()
        return super()._train(lesson, iteration)


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("rloo", {}),
        ("rloo", {"kl_coefficient": 0.0, "kl_final": 0.2}),  # nothing is charged at first
        ("sgcd_s", {}),  # its critic reads hidden states
        ("dapo", {"settings": {"dapo": {"refills": 2, "overlong_share": 0.5}}}),
        ("dapo", {"learn_from_cut": False, "settings": {"dapo": {"refills": 2, "overlong_share": 0.5}}}),
    ],
)
def test_the_reference_scores_what_was_played_once(tmp_path, recipe, settings):
    config = make_config(**{"kl_coefficient": 0.1, "kl_place": "reward", "iterations": 3, **settings})
    histories, scored = [], Counter()
    for trainer_type in (PolicyTrainer, AsksTwice):
        trainer = _trainer(trainer_type, tmp_path / trainer_type.__name__, config, recipe)

        def count(module, args, given, name=trainer_type.__name__):
            if given["input_ids"].tolist() != [[1, 2]]:  # asked once, to see how a model is built
                scored[name] += len(given["input_ids"])

        trainer.reference.model.base_model.register_forward_pre_hook(count, with_kwargs=True)
        histories.append(trainer.run())
    assert histories[0] == histories[1]
    needed = [r["episodes" if r["kl_coefficient"] > 0 else "trained_trajectories"] for r in histories[0]]
    assert scored["PolicyTrainer"] == sum(needed) < scored["AsksTwice"]
