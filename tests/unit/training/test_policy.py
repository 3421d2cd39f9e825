import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.algorithms.validity import MAX_EMPTY_IN_A_ROW
from geartrain.errors import UserError
from geartrain.training.batch import make_sequence, microbatches
from geartrain.training.policy_step import PolicyStep
from tests.fakes.parity import (
    FragileWorld,
    Killed,
    make_config,
    make_trainer,
)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_and_reports(tmp_path, recipe, monkeypatch):
    # an untrained model is hardly moved by what it reads
    monkeypatch.setattr("geartrain.algorithms.saliency.SMALLEST_PEAK", 1e-9)
    # a snapshot is one small step away: nothing of that may be taken for rounding
    config = make_config(iterations=2, settings={"gear_b": {"dead_zone": 0.0}})
    trainer = make_trainer(tmp_path, config, recipe)
    before = trainer.policy.model.get_output_embeddings().weight.clone()
    history = trainer.run()
    last = history[-1]
    assert [record["iteration"] for record in history] == [0, 1]
    assert {"start_val_sampled", "start_val_greedy"} <= set(history[0])
    assert last["trained_trajectories"] > 0
    assert last["gradient_norm"] > 0
    assert last["mismatch"] < 1e-4
    assert last["skipped_steps"] == 0
    assert {"val_sampled", "val_greedy", "kl", "entropy", "clip_fraction", "ratio_max"} <= set(last)
    assert (last["weight_spread"] > 0) is (RECIPES[recipe].weigh is not None)
    grains = sum(value for name, value in last.items() if name.startswith("grain_"))
    assert grains == pytest.approx(1.0 if RECIPES[recipe].learns_mixture else 0.0)
    own = RECIPES[recipe]
    assert {f"raw_{name}_mean" for name in own.grains} == {name for name in last if name.endswith("_mean")} - {
        "ratio_mean"
    }
    told = own.learns_mixture or (own.weigh is not None and own.teacher != "none")
    assert (last.get("teacher_ratio") is not None) is told
    weighs = own.weighs_by_past_self or own.teacher in ("privileged", "siblings")
    assert ("weight_ratio_better" in last) is (own.weigh is not None and weighs)
    if trainer.best.iteration == 0:  # the best was the start
        assert torch.equal(trainer.policy.model.get_output_embeddings().weight, before)


@pytest.mark.parametrize("moves", [False, True])
def test_embeddings_move_only_where_that_is_asked_for(tmp_path, moves):
    trainer = make_trainer(tmp_path, make_config(iterations=2, train_embeddings=moves))
    before = {name: value.clone() for name, value in trainer.policy.model.state_dict().items()}
    trainer.iterate(0)
    moved = {name for name, value in trainer.policy.model.state_dict().items() if not torch.equal(value, before[name])}
    assert ("model.embed_tokens.weight" in moved) is moves
    assert any("self_attn" in name for name in moved)


def test_every_sampled_token_of_a_kept_trajectory_is_trained_once(tmp_path):
    kept = []

    class Watched(FragileWorld):
        def score(self, trajectories):
            scored = super().score(trajectories)
            groups = {}
            for trajectory, reward in zip(scored.trajectories, scored.rewards, strict=True):
                groups.setdefault(trajectory.group_id, []).append((reward, sum(trajectory.action_mask())))
            kept.extend(n for members in groups.values() if len({r for r, _ in members}) > 1 for _, n in members)
            return scored

    record = make_trainer(tmp_path, make_config(minibatches=3), world_type=Watched).iterate(0)
    assert record["trained_trajectories"] == len(kept)
    assert record["trained_tokens"] == sum(kept)


@pytest.mark.parametrize("teacher", ["ema", "snapshot"])
def test_two_kills_leave_no_trace(tmp_path, teacher):
    settings = {"teacher": teacher, "snapshot_share": 0.5, "distil": 0.3}
    config = make_config(settings={"gear_a_sgcd": settings})
    whole = make_trainer(tmp_path / "whole", config)
    expected = whole.run()
    work = tmp_path / "killed"
    for deaths in ((1,), (3,)):
        with pytest.raises(Killed):
            make_trainer(work, config, deaths=deaths).run()
    resumed = make_trainer(work, config)
    shown = []
    assert resumed.run(shown.append) == expected
    assert shown == expected
    for name, value in whole.policy.model.state_dict().items():
        assert torch.equal(resumed.policy.model.state_dict()[name], value), name
    for name, value in whole._teachers.state_dict().items():
        assert torch.equal(resumed._teachers.state_dict()[name], value), name
    assert resumed.best.iteration == whole.best.iteration
    mixture = whole.assigner.mixture.network.state_dict()
    assert all(torch.equal(resumed.assigner.mixture.network.state_dict()[name], mixture[name]) for name in mixture)


def test_it_learns(tmp_path):
    config = make_config(iterations=30, learning_rate=3e-2, siblings=8, validate_every=30, kl_coefficient=0.0)
    trainer = make_trainer(tmp_path, config)
    start = trainer.world.validate(trainer.policy)
    history = trainer.run()
    assert start.sampled < 0.6
    assert sum(record["success"] for record in history[-5:]) / 5 > 0.9


def test_strength_zero_trains_like_grpo_bit_for_bit(tmp_path):
    config = make_config(iterations=2, settings={"gear_a_sgcd": {"strength": 0.0}})
    weights = []
    for recipe in ("grpo", "gear_a_sgcd"):
        trainer = make_trainer(tmp_path / recipe, config, recipe)
        trainer.run()
        weights.append(trainer.policy.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


UNUSUAL = {
    "sequence ratio": ("gear_a_sgcd", {"ratio": "sequence"}),
    "k1": ("grpo", {"kl_estimator": "k1"}),
    "k2": ("grpo", {"kl_estimator": "k2"}),
    "full": ("grpo", {"kl_estimator": "full", "kl_coefficient": 0.5}),
    "full rises beside a learner": ("gear_a", {"kl_coefficient": 0.0, "kl_final": 0.5, "kl_estimator": "full"}),
    "kl rises from nothing": ("grpo", {"kl_coefficient": 0.0, "kl_final": 0.5}),
    "kl rises beside a learner": ("gear_a", {"kl_coefficient": 0.0, "kl_final": 0.5}),
    "kl in the reward": ("rloo", {"kl_coefficient": 0.5, "kl_place": "reward"}),
    "full in the reward": ("ppo", {"kl_coefficient": 0.5, "kl_place": "reward", "kl_estimator": "full"}),
    "critic that learns": ("sgcd_s", {"settings": {"sgcd_s": {"critic_steps": 2}}}),
    "entropy": ("grpo", {"entropy_coefficient": 0.0, "entropy_final": 0.1}),
    "distillation": ("gear_a", {"settings": {"gear_a": {"distil": 0.5, "distil_final": 0.1}}}),
    "snapshot": ("gear_a", {"settings": {"gear_a": {"teacher": "snapshot", "distil": 0.5}}}),
    "alignment": ("gear_a", {"settings": {"gear_a": {"objective": "alignment"}}}),
    "regression": ("gear_a", {"settings": {"gear_a": {"objective": "regression"}}}),
    "learned granularity": ("gear_b", {"settings": {"gear_b": {"granularity": "learned", "dead_zone": 0.0}}}),
    "forward divergence": ("sgcd_p", {"settings": {"sgcd_p": {"direction": "forward"}}}),
}
"""Every path of the loss that no recipe takes by default: (recipe, settings of `policy`)."""
PATHS = {**{name: (name, {}) for name in RECIPES}, **UNUSUAL}
COUNTED = ("kl", "entropy", "clip_fraction", "ratio_mean", "ratio_max", "trained_tokens", "gradient_norm")


@pytest.mark.parametrize("path", PATHS)
def test_the_split_into_micro_batches_changes_nothing_but_rounding(tmp_path, path):
    recipe, settings = PATHS[path]
    records = []
    for budget in (32, 8192):
        config = make_config(microbatch_tokens=budget, validate_every=99, iterations=2, **settings)
        trainer = make_trainer(tmp_path / str(budget), config, recipe)
        trainer.iterate(0)
        again = trainer.iterate(1)  # coefficients that rise have risen
        records.append({name: again[name] for name in COUNTED})
    assert records[0] == pytest.approx(records[1], rel=1e-3, abs=1e-6)
    assert records[0]["gradient_norm"] > 0


@pytest.mark.parametrize("path", UNUSUAL)
def test_every_unusual_path_trains_on_policy(tmp_path, path):
    recipe, settings = UNUSUAL[path]
    trainer = make_trainer(tmp_path, make_config(iterations=3, validate_every=99, **settings), recipe)
    history = trainer.run()
    assert [record["skipped_steps"] for record in history] == [0, 0, 0]
    assert all(math.isfinite(record["gradient_norm"]) for record in history)
    assert max(record["mismatch"] for record in history) < 1e-4


def test_a_divergence_that_rises_from_nothing_is_one_from_the_warm_start(tmp_path):
    # measured from the first iteration on, and 0 there; against log-probs of 0 it would be nats too high
    for recipe in ("grpo", "gear_a"):
        config = make_config(iterations=3, validate_every=99, minibatches=1, kl_coefficient=0.0, kl_final=0.5)
        trainer = make_trainer(tmp_path / recipe, config, recipe)
        kl = [trainer.iterate(iteration)["kl"] for iteration in range(3)]
        assert kl[0] == pytest.approx(0.0, abs=1e-6)
        assert 0 < kl[1] < 0.1


def test_an_iteration_plays_each_sibling_of_its_tasks_once(tmp_path):
    trainer = make_trainer(tmp_path, make_config())
    played = trainer.world.play(trainer.policy, 0)
    assert len(played) == 3 * 4
    assert len({(trajectory.group_id, trajectory.sibling) for trajectory in played}) == 3 * 4


@pytest.mark.parametrize("recipe", ["gear_p", "sgcd_p", "direct_distillation"])
def test_what_a_teacher_is_told_reaches_no_student(tmp_path, recipe, monkeypatch):
    played, told, trained = [], [], []

    class Watched(FragileWorld):
        def play(self, policy, iteration, refill=0):
            played.extend(found := super().play(policy, iteration, refill))
            return found

        def opening(self, trajectory, hint):
            told.append(found := super().opening(trajectory, hint))
            return found

    step = PolicyStep.run
    monkeypatch.setattr(
        PolicyStep, "run", lambda self, rows, **rest: (trained.extend(rows), step(self, rows, **rest))[1]
    )
    trainer = make_trainer(tmp_path, make_config(iterations=2, validate_every=99), recipe, world_type=Watched)
    trainer.run()
    assert told
    openings = {tuple(trajectory.turns[0].prompt_ids) for trajectory in played}
    assert all(tuple(ids) not in openings and len(ids) > max(map(len, openings)) for ids in told)
    shown = {tuple(trajectory.token_ids()) for trajectory in played}
    assert trained
    assert all(tuple(sequence.ids_T.tolist()) in shown for sequence in trained)
    words = trainer.policy.tokenizer.decode([i for trajectory in played for i in trajectory.turns[0].prompt_ids])
    assert "any even" not in words
    assert "Checks that" not in words


def test_trajectories_that_were_changed_after_sampling_stop_the_run(tmp_path):
    class Forger(FragileWorld):
        def play(self, policy, iteration, refill=0):
            def forge(turn):
                return replace(turn, action_logprobs=[x - 0.01 for x in turn.action_logprobs])

            played = super().play(policy, iteration)
            return [replace(t, turns=[forge(turn) for turn in t.turns]) for t in played]

    with pytest.raises(UserError, match=r"disagree by 0\.01 nats"):
        make_trainer(tmp_path, make_config(), world_type=Forger).run()


class Indifferent(FragileWorld):
    """Gives everyone the same reward."""

    def score(self, trajectories):
        scored = super().score(trajectories)
        return replace(scored, rewards=[0.3] * len(trajectories))


def test_batches_without_signal_are_skipped_and_then_stop_the_run(tmp_path):
    config = make_config(iterations=MAX_EMPTY_IN_A_ROW + 1, validate_every=99)
    trainer = make_trainer(tmp_path, config, world_type=Indifferent)
    before = {name: value.clone() for name, value in trainer.policy.model.state_dict().items()}
    record = trainer.iterate(0)
    assert record["trained_trajectories"] == 0
    assert record["filtered_groups"] == record["groups"] == 3
    assert all(torch.equal(value, before[name]) for name, value in trainer.policy.model.state_dict().items())
    for iteration in range(1, MAX_EMPTY_IN_A_ROW - 1):
        trainer.iterate(iteration)
    with pytest.raises(UserError, match="nothing to learn from"):
        trainer.iterate(MAX_EMPTY_IN_A_ROW - 1)


@pytest.mark.parametrize(
    ("recipe", "settings"),
    [
        ("dapo", {"settings": {"dapo": {"overlong_share": 1.0, "refills": 0}}}),
        ("grpo", {"kl_coefficient": 0.5, "kl_place": "reward"}),
    ],
)
def test_siblings_that_differ_in_what_they_are_charged_alone_are_left_out(tmp_path, recipe, settings):
    trainer = make_trainer(tmp_path, make_config(**settings), recipe, world_type=Indifferent)
    with torch.no_grad():
        trainer.reference.model.get_output_embeddings().weight.mul_(0.0)  # a distance that differs between siblings
    scored, lesson = trainer._play(0)
    assert len(set(scored.rewards)) > 1
    assert (len(lesson.trajectories), lesson.filtered_groups) == (0, 3)


def test_dapo_plays_on_until_enough_groups_carry_a_signal(tmp_path):
    rounds = []

    class HalfFlat(FragileWorld):
        def score(self, trajectories):
            scored = super().score(trajectories)
            rounds.append(sorted({t.group_id for t in trajectories}))
            flat = rounds[-1][1:]  # one group of a round differs
            rewards = [0.3 if t.group_id in flat else float(t.sibling % 2) for t in scored.trajectories]
            return replace(scored, rewards=rewards)

    settings = {"dapo": {"refills": 9, "overlong_share": 0.0}}
    record = make_trainer(tmp_path / "dapo", make_config(settings=settings), "dapo", world_type=HalfFlat).iterate(0)
    assert len(rounds) == 3  # a batch is three groups
    assert len({group for played in rounds for group in played}) == 9  # no group is played twice
    assert (record["groups"], record["filtered_groups"], record["trained_trajectories"]) == (9, 6, 12)
    rounds.clear()
    assert make_trainer(tmp_path / "grpo", make_config(), "grpo", world_type=HalfFlat).iterate(0)["groups"] == 3
    rounds.clear()
    few = {"dapo": {"refills": 1, "overlong_share": 0.0}}
    assert (
        make_trainer(tmp_path / "few", make_config(settings=few), "dapo", world_type=HalfFlat).iterate(0)["groups"] == 6
    )


@pytest.mark.parametrize("estimator", [None, "k1", "k2", "k3", "full"])
def test_the_kl_may_be_paid_in_the_reward_by_the_whole_trajectory(tmp_path, estimator):
    paid = {"kl_place": "reward", "kl_estimator": estimator}
    trainer = make_trainer(tmp_path, make_config(kl_coefficient=0.5, kl_final=0.0, **paid), "rloo")
    free, _ = make_trainer(tmp_path, make_config(kl_coefficient=0.0), "rloo")._play(0)
    unmoved, _ = trainer._play(0)
    assert unmoved.rewards == pytest.approx(free.rewards, abs=1e-4)  # the policy is the warm start
    with torch.no_grad():
        trainer.reference.model.get_output_embeddings().weight.mul_(0.0)  # now it is uniform
    charged, _ = trainer._play(0)
    even = math.log(trainer.policy.model.config.vocab_size)
    for before, after, trajectory in zip(free.rewards, charged.rewards, charged.trajectories, strict=True):
        ratios = [logprob + even for turn in trajectory.turns for logprob in turn.action_logprobs]
        kl = {
            "k1": sum(ratios),
            "k2": sum(0.5 * ratio**2 for ratio in ratios),
            "k3": sum(math.expm1(-ratio) + ratio for ratio in ratios),
            "full": sum(even - entropy for turn in trajectory.turns for entropy in turn.action_entropies),
        }[estimator or "k1"]
        assert kl != 0
        assert after == pytest.approx(before - 0.5 * kl, abs=1e-3)


def test_a_mean_over_rows_counts_every_trajectory_alike_in_every_head(tmp_path):
    trainer = make_trainer(
        tmp_path, make_config(kl_coefficient=0.2, entropy_coefficient=0.1, minibatches=1), "grpo_rows"
    )
    sequences = []
    for length, advantage in ((3, 1.0), (9, -0.5)):
        sequence = make_sequence([5] * (length + 1), [False] + [True] * length)
        values = {"behaviour": torch.full((length + 1,), -5.0), "advantage": torch.full((length + 1,), advantage)}
        sequences.append(replace(sequence, values={**values, "reference": torch.full((length + 1,), -4.0)}))

    def gradient(chosen, denominator):
        total = 0.0
        for batch in microbatches(chosen, budget=1):
            loss, _ = trainer._step._piece(batch, 1.0, denominator, 0.0)
            total = total + loss
        return torch.autograd.grad(total, trainer.policy.model.model.norm.weight)[0]

    both = gradient(sequences, 2.0)
    apart = 0.5 * (gradient(sequences[:1], 1.0) + gradient(sequences[1:], 1.0))
    assert torch.allclose(both, apart, atol=1e-7)
    assert trainer.assigner.recipe.denominator(12, 2, 1000) == 2.0


def test_failed_rewards_are_left_out_and_counted(tmp_path):
    class Broken(FragileWorld):
        def score(self, trajectories):
            scored = super().score(trajectories)
            rewards = [None if index == 0 else reward for index, reward in enumerate(scored.rewards)]
            return replace(scored, rewards=rewards, failures=Counter({"verified.raised": 1}))

    record = make_trainer(tmp_path, make_config(), world_type=Broken).iterate(0)
    assert record["unscored"] == 1
    assert record["scoring_failures"] == {"verified.raised": 1}
    assert math.isfinite(record["gradient_norm"])


def test_the_teacher_keeps_what_its_decay_says(tmp_path):
    trainer = make_trainer(tmp_path, make_config(settings={"gear_a_sgcd": {"teacher_decay": 0.9}}))
    start = trainer.policy.model.get_output_embeddings().weight.clone()
    trainer.iterate(0)
    student = trainer.policy.model.get_output_embeddings().weight
    teacher = trainer._teachers.model.get_output_embeddings().weight
    assert torch.allclose(teacher, start + 0.1 * (student - start), atol=1e-7)
    assert not torch.equal(student, start)
