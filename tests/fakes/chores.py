"""What this project does with models, as functions of the device: the same numbers are asked of each device.

A chore returns nested dicts, lists, numbers and tensors; `numbers` makes one list of them, and insists that no tensor
was left on a device: what a chore returns is what records, files and other ranks are told.
"""

import copy
import math
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.models.heads import load_critic_head, save_head
from geartrain.models.reward_model import RewardModel
from geartrain.rewards.mix import RewardMix
from geartrain.rollouts.sampler import Sampler, trajectory_uniforms
from geartrain.training.batch import make_sequence
from geartrain.training.credit import load_critic
from geartrain.training.critic import CriticData, Labelling, judge_critic, train_critic
from geartrain.training.features import TextEncoder, frozen_pass, sequence_of
from geartrain.training.online_critic import OnlineCritic
from geartrain.training.reward_model import Settings, Trainer, prepare
from geartrain.training.supervised import Plan, train_supervised
from tests.fakes.parity import Killed, make_config, make_policy, make_trainer
from tests.fakes.synthetic import (
    CONTEXT,
    HEADS,
    LIVELY,
    episodes,
    lesson_of,
    moved,
    near_the_policy,
    prepared_by,
    step_gradient,
    trainer_of,
)
from tests.fakes.tiny_bert import make_encoder, make_pairs, save_encoder

CPU = torch.device("cpu")


def numbers(tree):
    """Return every number of a nested value, in order; texts are left out."""
    if isinstance(tree, torch.Tensor):
        assert tree.device == CPU, f"a tensor [{tuple(tree.shape)}] was left on {tree.device}"
        return numbers(tree.double().flatten().tolist())
    if is_dataclass(tree):
        tree = {field.name: getattr(tree, field.name) for field in fields(tree)}
    if isinstance(tree, dict):
        return [number for name in sorted(tree, key=str) for number in numbers(tree[name])]
    if isinstance(tree, list | tuple):
        return [number for value in tree for number in numbers(value)]
    if tree is None or isinstance(tree, str):
        return []
    return [float(tree)]


def lively_policy(device, dtype=torch.float32):
    """A tiny policy whose answers depend on what it reads."""
    policy = make_policy()
    with torch.no_grad():
        for weight in policy.model.parameters():
            weight.mul_(8.0 if weight.ndim == 2 else 1.0)
    return replace(policy, model=policy.model.to(device, dtype))


def _weights(model):
    return {name: value.cpu() for name, value in model.state_dict().items()}


def _rollout(device, work, *, packed):
    sampler = Sampler(lively_policy(device), temperature=0.8, max_new_tokens=7, rows=4, context=CONTEXT, packed=packed)
    for row in range(4):
        sampler.seat(row, trajectory_uniforms(1, "g", "t", row, CONTEXT), greedy=row == 2)
    if packed:
        sampler.share([11, 12, 13])
    shown = [(2, [7, 8]), (0, [20, 21, 22, 23]), (1, [30])]
    found = []
    for _ in range(2):
        logit_SV = sampler.prefill(shown)
        sampler.restore([3], sampler.snapshot(0))
        waiting = sampler.begin([row for row, _ in shown], logit_SV).tolist()
        while sampler.active.any():
            waiting += sampler.step().tolist()
        found += [sampler.message(row) for row in sorted(waiting)]
        sampler.free(3)
    return found


def _frozen(device, work):
    policy = lively_policy(device)
    trajectories = episodes()
    sequences = [sequence_of(t) for t in trajectories]
    asked = [replace(s, values={"support": torch.stack([s.ids_T, s.ids_T + 1], dim=-1)}) for s in sequences]
    shared = {"microbatch_tokens": 100, "want_turns": True, "want_entropy": True}
    reference = moved(policy.model, seed=1)
    top = frozen_pass(policy.model, trajectories, sequences, top=3, reference=reference, **shared)
    return top, frozen_pass(policy.model, trajectories, asked, **shared)


def _gradient(device, work, *, head, recipe="gear_a_sgcd"):
    """One optimiser step's gradient, in float64."""
    policy = lively_policy(device, torch.float64)
    section = make_config(kl_coefficient=0.5, iterations=8).policy
    trajectories = near_the_policy(policy.model, episodes())
    sequences = prepared_by(trainer_of(recipe, policy, section, work), lesson_of(recipe, trajectories), iteration=4)
    settings = make_config(minibatches=1, microbatch_tokens=160, **HEADS[head]).policy
    gradient, loss = step_gradient(policy.model, recipe, settings, sequences, reference=moved(policy.model, seed=1))
    return loss, gradient.cpu()


def _kl_in_reward(device, work, *, estimator):
    config = make_config(iterations=1, kl_place="reward", kl_estimator=estimator, kl_coefficient=0.5)
    trainer = make_trainer(work, config, "grpo", policy=make_policy(device=device))
    return trainer.run()


def _config(recipe, **policy):
    lively = {**LIVELY.get(recipe, {}), **({"dead_zone": 0.0} if recipe == "gear_b" else {})}
    return make_config(**{"iterations": 2, "settings": {recipe: lively} if lively else {}, **policy})


def train(device, work, recipe):
    """The policy loop of a recipe: it plays, weighs, learns and validates."""
    trainer = make_trainer(work, _config(recipe), recipe, policy=make_policy(device=device))
    history = trainer.run()
    learned = {
        name: learner["network"] for name, learner in trainer.assigner.state_dict().items() if "network" in learner
    }
    return history, _weights(trainer.policy.model), {name: on_cpu(value) for name, value in learned.items()}


def on_cpu(state):
    return {name: value.cpu() for name, value in state.items()}


def _renewed_teacher(device, work, *, kind):
    settings = {"gear_a_sgcd": {"teacher": kind, "snapshot_share": 0.3, "teacher_decay": 0.5, "distil": 0.3}}
    trainer = make_trainer(work, make_config(iterations=3, settings=settings), policy=make_policy(device=device))
    return trainer.run(), on_cpu(trainer._teachers.state_dict())


def _resumed(device, work, *, first, then):
    """A run that is killed on one device and goes on, on another."""
    config = make_config()
    places = {"here": device, "cpu": CPU}
    try:
        make_trainer(work, config, deaths=(2,), policy=make_policy(device=places[first])).run()
    except Killed:
        trainer = make_trainer(work, config, policy=make_policy(device=places[then]))
        return trainer.run(), _weights(trainer.policy.model)
    raise AssertionError("the run was not killed")


def _sequences():
    rows = [[2 + i, 3 + i % 8, 4, 5 + i % 5, 1, 9 + i] for i in range(12)]
    return [make_sequence(row, [False, True, True, True, True, True]) for row in rows]


def _supervised(device, work, *, matrices):
    model, sequences = make_policy(device=device).model, _sequences()
    options = {"learning_rate": 1e-2, "matrix_learning_rate": matrices, "warmup": 0.1, "precision": "float32"}
    options |= {"microbatch_tokens": 12, "checkpoint_every": 2}
    plan = Plan.make([6] * 12, epochs=2.0, batch_tokens=18, seed=3)
    cut = replace(plan, steps=plan.steps[:3])  # its checkpoint is where the whole plan goes on

    def silent(record):
        pass

    train_supervised(copy.deepcopy(model), sequences, cut, work=work, on_step=silent, **options)
    return train_supervised(model, sequences, plan, work=work, on_step=silent, **options), _weights(model)


def _critic_data():
    generator = torch.Generator().manual_seed(4)
    state_SH, action_SH = (torch.randn(60, 8, generator=generator) for _ in range(2))
    credit_S = action_SH[:, 0] + 0.3 * state_SH[:, 1]
    return CriticData(state_SH, action_SH, credit_S, torch.arange(60) % 3, credit_S.sign(), ["t"] * 60, torch.ones(60))


def _critic(device, work):
    data, options = _critic_data(), {"hidden": 8, "learning_rate": 1e-2, "epochs": 4, "seed": 0, "device": device}
    head, history = train_critic(data, data, **options)
    save_head(head, work / "head.safetensors")
    loaded = load_critic_head(work / "head.safetensors", device=device)
    judged = [judge_critic(one, data) for one in (head, loaded)]
    return history, judged, on_cpu(loaded.state_dict())


def _online_critic(device, work):
    trajectories = episodes()
    policy = lively_policy(device)
    scores = frozen_pass(
        policy.model, trajectories, [sequence_of(t) for t in trajectories], microbatch_tokens=999, want_turns=True
    )
    features = [score.turns for score in scores]
    data = Labelling(1.0, 0.5, 5.0).label(trajectories, features)
    head, _ = train_critic(data, data, hidden=8, learning_rate=1e-2, epochs=2, seed=0, device=device)
    settings = {"critic_steps": 3, "critic_decay": 0.5, "critic_learning_rate": 1e-2}
    critic = OnlineCritic(head, 0.5, Labelling(1.0, 0.5, 5.0), settings, iterations=2)
    before = critic(features)
    return before, critic.fit(trajectories, features), critic(features)


def _text_critic(device, work):
    """A critic that reads texts, from its artifact."""
    encoder = TextEncoder(save_encoder(work / "bert"), lambda ids: "query a ; good", max_tokens=24, device=device)
    encoder.save(work / "encoder")
    trajectories = episodes()
    features = encoder(trajectories)
    data = Labelling(1.0, 0.5, 5.0).label(trajectories, features)
    head, _ = train_critic(data, data, hidden=8, learning_rate=1e-2, epochs=2, seed=0, device=device)
    save_head(head, work / "critic.safetensors")
    labels = '{"shrinkage": 1.0, "subgoal_credit": 0.5, "clip": 5.0}'
    (work / "critic.json").write_text(f'{{"features": "encoder", "reliability": 0.5, "labels": {labels}}}')
    critic = load_critic(work, lambda ids: "query a ; good", device=device)
    scored = OnlineCritic(critic.head, 0.5, None, {}, iterations=1)(critic.encoder(trajectories))
    return features, scored


REWARD_SETTINGS = Settings(
    epochs=2.0,
    learning_rate=1e-2,
    batch_pairs=4,
    train_layers=1,
    patience=100,
    margin_weight=0.5,
    seed=0,
    bfloat16=False,
)


def _reward_model(device, work):
    encoder, tokenizer = make_encoder()
    model = RewardModel.new(encoder.to(device), tokenizer, max_tokens=32)
    prepared = prepare(model, make_pairs())
    trainer = Trainer(model, prepared, REWARD_SETTINGS)
    history = trainer.run(work / "checkpoints", lambda record: None)
    model.trusted = True
    model.save(work / "model")
    loaded = RewardModel.load(work / "model", device=device)
    again = Trainer(RewardModel.new(make_encoder()[0].to(device), tokenizer, max_tokens=32), prepared, REWARD_SETTINGS)
    resumed = again.run(work / "checkpoints", lambda record: None)  # of which nothing but the end is left
    # what all texts have in common has no gradient: rounding alone moves it
    told = trainer.raw("validation"), again.raw("validation"), torch.tensor(loaded.score(prepared.texts)).reshape(-1, 2)
    return history, resumed, [raw_P2[:, 0] - raw_P2[:, 1] for raw_P2 in told]


def _learned_reward(device, work):
    encoder, tokenizer = make_encoder(positions=512)
    model = RewardModel.new(encoder.to(device), tokenizer, max_tokens=500)
    torch.nn.init.ones_(model.head.weight)
    model.trusted = True
    model.save(work)
    config = make_config(reward_model_weight=0.5)
    policy = make_policy(device=device)
    mix = RewardMix.load(
        work,
        tokenizer=policy.tokenizer,
        model_weight=0.5,
        invalid_call_reward=-0.1,
        learned_in_ties=True,
        device=device,
    )
    world = make_trainer(work / "policy", config, policy=policy).world
    scored = replace(world, rewards=mix).score(world.play(policy, 0))
    assert not scored.failures, scored.failures
    return scored.rewards, [trajectory.rewards for trajectory in scored.trajectories]


CHORES = {
    "rollout, packed": partial(_rollout, packed=True),
    "rollout, padded": partial(_rollout, packed=False),
    "frozen pass": _frozen,
    **{f"policy step, {head}": partial(_gradient, head=head) for head in HEADS},
    **{f"KL in the reward, {kind}": partial(_kl_in_reward, estimator=kind) for kind in ("k1", "full")},
    **{f"train {recipe}": partial(train, recipe=recipe) for recipe in RECIPES},
    **{f"teacher, {kind}": partial(_renewed_teacher, kind=kind) for kind in ("ema", "snapshot")},
    "begun here, ended on the CPU": partial(_resumed, first="here", then="cpu"),
    "begun on the CPU, ended here": partial(_resumed, first="cpu", then="here"),
    "killed and resumed here": partial(_resumed, first="here", then="here"),
    "supervised, AdamW": partial(_supervised, matrices=None),
    "supervised, Muon": partial(_supervised, matrices=1e-2),
    "critic": _critic,
    "critic that goes on learning": _online_critic,
    "critic that reads texts": _text_critic,
    "reward model": _reward_model,
    "learned reward": _learned_reward,
}
"""Name -> (device, folder) -> numbers."""
ELSEWHERE = {"begun here, ended on the CPU", "begun on the CPU, ended here"}
"""Chores that are done on the CPU in part."""


def same(found, expected, *, tolerance=1e-4):
    """Insist that two lists of numbers agree, NaN with NaN."""
    assert len(found) == len(expected) > 0
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if not (math.isnan(one) and math.isnan(other)):
            assert np.isclose(one, other, rtol=tolerance, atol=tolerance), (place, one, other)


def fresh(work: Path, name: str) -> Path:
    folder = work / name
    folder.mkdir()
    return folder
