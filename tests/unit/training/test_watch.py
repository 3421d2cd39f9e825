"""What ends a run and what is written into its history (methods.md T12), on real runs of tiny worlds."""

from dataclasses import replace

import pytest
import torch

from geartrain import live
from geartrain.algorithms.recipe import RECIPES
from geartrain.algorithms.validity import ALARMS, INERT_ITERATIONS
from geartrain.errors import UserError
from geartrain.methods import settings_of
from geartrain.models.heads import CriticHead
from geartrain.rewards.mix import RewardMix
from geartrain.stages.policy import TaskWorld
from geartrain.training.best import Validation
from geartrain.training.credit import CreditAssigner, Critic
from geartrain.training.features import TurnFeatures
from geartrain.training.policy import PolicyTrainer
from geartrain.training.watch import alarms, must_weigh, new_alarms, out_of_patience
from tests.fakes.guessing import Guessing, GuessingPlayers, make_guesser
from tests.fakes.parity import Parity, ParityPlayers, make_config, make_policy, make_tasks


class World(TaskWorld):
    """Validates as it is told to."""

    validations: tuple[Validation, ...] = ()

    def validate(self, policy):
        if not self.validations:
            return super().validate(policy)
        first, *rest = self.validations
        object.__setattr__(self, "validations", tuple(rest))
        return first


class Untelling(World):
    """Has nothing to tell a teacher."""

    def opening(self, trajectory, hint):
        return list(trajectory.turns[0].prompt_ids)


def _trainer(work, name, config, policy, *, players=ParityPlayers, environment=None, world_type=World, critic=None):
    environment = environment or Parity()
    rewards = RewardMix(policy.tokenizer, model_weight=0.0, invalid_call_reward=-0.1, learned=None)
    world = world_type(players(config), make_tasks(7), make_tasks(4, "val"), rewards, config, environment, policy.chat)
    section = config.policy
    assigner = CreditAssigner(
        RECIPES[name],
        settings_of(name, section.settings.get(name, {})),
        critic=critic,
        width=policy.model.config.hidden_size,
        iterations=section.iterations,
        seed=0,
    )
    return PolicyTrainer(policy, assigner, world, section, context=256, seed=0, work=work)


@pytest.fixture(scope="module")
def guesser():
    policy, loss = make_guesser()
    assert loss < 0.4  # log(2) / 2 is the least: even without the answer, certain with it
    return policy, {name: value.clone() for name, value in policy.model.state_dict().items()}


@pytest.mark.parametrize(("name", "collapses"), [("direct_distillation", True), ("grpo", False)])
def test_a_teacher_that_guesses_takes_the_tools_away_and_the_alarm_tells(name, collapses, guesser, tmp_path, capsys):
    policy, weights = guesser
    policy.model.load_state_dict(weights)
    config = make_config(iterations=8, siblings=8, learning_rate=1e-2, kl_coefficient=0.0, validate_every=99)
    trainer = _trainer(tmp_path, name, config, policy, players=GuessingPlayers, environment=Guessing())
    history = trainer.run()
    shares = [record["zero_tool_share"] for record in history]
    first, last = sum(shares[:2]) / 2, sum(shares[-2:]) / 2
    told = [alarm for record in history for alarm in record["alarms"] if alarm.startswith("zero_tool")]
    assert 0.2 < first < 0.7
    assert (last > 0.85) is collapses
    assert bool(told) is collapses
    assert capsys.readouterr().err.count("alarm: zero_tool") == collapses
    if collapses:
        assert sum(record["success"] for record in history[-2:]) / 2 > 0.5  # success alone does not tell


@pytest.mark.parametrize("name", ["gear_p", "gear_p_raw", "sgcd_p"])
def test_weights_that_never_weigh_end_the_run(name, tmp_path):
    config = make_config(iterations=INERT_ITERATIONS + 3, validate_every=99, kl_coefficient=0.0)
    trainer = _trainer(tmp_path, name, config, make_policy(), world_type=Untelling)
    with pytest.raises(UserError, match=r"plain GRPO.*policy\.recipe to grpo"):
        trainer.run()
    assert len(trainer.history) == INERT_ITERATIONS - 1
    assert all(record["weight_spread_within"] < 1e-6 for record in trainer.history)
    # as printed, a success is scaled down and a failure up even so: not what tells tokens apart
    assert (trainer.history[0]["weight_spread"] > 0.05) is (name == "gear_p_raw")


def test_weights_that_are_switched_off_end_no_run(tmp_path):
    config = make_config(iterations=INERT_ITERATIONS + 1, validate_every=99, settings={"gear_p": {"alpha": 0.0}})
    assert len(_trainer(tmp_path, "gear_p", config, make_policy()).run()) == INERT_ITERATIONS + 1


def test_when_weights_have_to_weigh():
    settings = settings_of("gear_b", {"warm_share": 0.2, "snapshot_share": 0.1})
    found = [must_weigh(RECIPES["gear_b"], settings, share) for share in (0.0, 0.2, 0.29, 0.35, 1.0)]
    assert found == [False, False, False, True, True]
    assert not must_weigh(RECIPES["grpo"], settings_of("grpo", {}), 1.0)
    assert must_weigh(RECIPES["sgcd_p"], settings_of("sgcd_p", {}), 0.0)
    assert must_weigh(RECIPES["gear_a"], settings_of("gear_a", {"teacher": "snapshot"}), 0.0)  # its grains weigh
    assert not must_weigh(RECIPES["sgcd_p"], settings_of("sgcd_p", {"gamma": 0.0}), 0.5)


def _dead(trainer):
    for weight in trainer.reference.model.parameters():
        weight.zero_()


def _leaky(trainer):
    assign = trainer.assigner.assign

    def leaking(*args, **options):
        batch = assign(*args, **options)
        credit = replace(batch.credit, advantage_NT=batch.credit.advantage_NT.requires_grad_())
        return replace(batch, credit=credit)

    trainer.assigner.assign = leaking


def _unbounded(trainer):
    assign = trainer.assigner.assign

    def boundless(*args, **options):
        batch = assign(*args, **options)
        return replace(batch, credit=replace(batch.credit, weight_NT=batch.credit.weight_NT * 9))

    trainer.assigner.assign = boundless


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("gear_a", _dead, "hidden states of the warm start: all"),
        ("gear_a", _leaky, "advantage: requires a gradient"),
        ("fixed_weights", _unbounded, "leave their bounds 0.5 to 2"),
        ("grpo", _unbounded, "leave their bounds 1 to 1"),
    ],
)
def test_what_makes_a_run_worthless_ends_it_before_the_first_step(name, damage, says, tmp_path):
    trainer = _trainer(tmp_path, name, make_config(), make_policy())
    before = {key: value.clone() for key, value in trainer.policy.model.state_dict().items()}
    damage(trainer)
    with pytest.raises(UserError, match=says):
        trainer.iterate(0)
    assert all(torch.equal(value, before[key]) for key, value in trainer.policy.model.state_dict().items())


def test_a_critic_that_reads_nothing_ends_the_run_before_the_first_step(tmp_path):
    def blind(trajectories):
        return [TurnFeatures(*torch.zeros(2, len(trajectory.turns), 4)) for trajectory in trajectories]

    critic = Critic(CriticHead(4, hidden=4).eval(), 0.7, blind)
    with pytest.raises(UserError, match="what the sibling critic reads: all"):
        _trainer(tmp_path, "sgcd_s", make_config(), make_policy(), critic=critic).iterate(0)


@pytest.mark.parametrize(
    ("masks", "says"),
    [
        (("loss_T",), "were not sampled by the policy"),
        (("loss_T", "action_T"), "are not the .* that the policy sampled"),
    ],
)
def test_a_loss_on_observations_ends_the_run(tmp_path, monkeypatch, masks, says):
    import geartrain.training.policy as module

    original = module.sequence_of

    def careless(trajectory):
        sequence = original(trajectory)
        # both masks wrong in the same way agree with one another
        return replace(sequence, **{mask: torch.arange(len(sequence)) > 0 for mask in masks})

    monkeypatch.setattr(module, "sequence_of", careless)
    with pytest.raises(UserError, match=says):
        _trainer(tmp_path, "grpo", make_config(kl_coefficient=0.0), make_policy()).iterate(0)


def test_drifts_are_alarms_and_told_once():
    history = [{"turns": 4.0, "tokens": 100.0, "entropy": 0.5, "alarms": []} for _ in range(3)]
    history += [{"turns": 9.0, "tokens": 120.0, "entropy": 0.01} for _ in range(3)]
    raised = alarms(history)
    assert [alarm.partition(":")[0] for alarm in raised] == ["turns", "entropy"]
    assert new_alarms(history, raised) == raised
    assert new_alarms([*history[:-1], {"alarms": ["turns: 8.0 turns an episode"]}], raised) == raised[1:]
    assert alarms([{"iteration": 0}]) == []


def test_every_alarm_has_a_meaning_for_the_report():
    start = {"turns": 4.0, "tokens": 100.0, "entropy": 0.5, "invalid_calls": 0.0, "successes": 30, "zero_tool_share": 0}
    now = {"turns": 9.0, "tokens": 300.0, "entropy": 0.01, "invalid_calls": 0.9, "successes": 30, "zero_tool_share": 1}
    now |= {"val_sampled": 0.0, "val_greedy": 0.0, "reward": 0.9, "kl": 2.0}
    start |= {"reward": 0.5, "kl": 0.01}
    for record in (start, now):
        record |= {"mixture_spread": 0.0, "granularity_spread": 0.0}
    history = [{**start, "start_val_sampled": 0.5, "start_val_greedy": 0.5}, start, start, now, now, now]
    assert [alarm.partition(":")[0] for alarm in alarms(history)] == list(ALARMS)


@pytest.mark.parametrize(
    ("name", "settings", "alarm"),
    [
        ("gear_a", {"grain_learning_rate": 1e-9}, "mixture: the grains' weights were even"),
        ("gear_b", {"granularity": "learned"}, "granularity: granularity told no turn from another"),
    ],
)
def test_credit_that_is_stuck_is_an_alarm(name, settings, alarm, tmp_path):
    config = make_config(iterations=INERT_ITERATIONS, validate_every=99, settings={name: settings})
    trainer = _trainer(tmp_path, name, config, make_policy())
    if trainer.assigner.granularity is not None:
        trainer.assigner.granularity.network.requires_grad_(False)
        for weight in trainer.assigner.granularity.network.parameters():
            weight.zero_()
        trainer.assigner.granularity.fit = lambda *_: 0.0
    *before, last = [record["alarms"] for record in trainer.run()]
    assert [told for told in last if told.startswith(alarm)]
    assert not [told for early in before for told in early if told.startswith(alarm)]


def _validations(*shares):
    return tuple(Validation(share, share, 0.0) for share in shares)


def _run_with(work, validations, deaths=None, **policy):
    config = make_config(iterations=8, validate_every=1, kl_coefficient=0.0, **policy)
    trainer = _trainer(work, "grpo", config, make_policy())
    object.__setattr__(trainer.world, "validations", _validations(*validations))
    trainer.run(deaths or (lambda record: None))
    return trainer


def test_patience_ends_a_run_and_leaves_the_best_weights(tmp_path, capsys):
    shares = (0.1, 0.4, 0.3, 0.4, 0.9, 0.9, 0.9, 0.9, 0.9)
    patient = _run_with(tmp_path / "patient", shares)
    assert "without improvement" not in capsys.readouterr().err
    hasty = _run_with(tmp_path / "hasty", shares, patience=2)
    assert "2 validations without improvement end it at 3" in capsys.readouterr().err
    assert (len(patient.history), patient.best.iteration) == (8, 4)
    assert (len(hasty.history), hasty.best.iteration) == (3, 1)
    assert hasty.history == patient.history[:3]
    once = _run_with(tmp_path / "once", shares, patience=3)
    assert (len(once.history), once.best.iteration) == (7, 4)


def test_a_killed_run_keeps_its_patience(tmp_path):
    shares = (0.5, 0.4, 0.3, 0.2, 0.1)
    whole = _run_with(tmp_path / "whole", shares, patience=3)

    def die(record):
        if record["iteration"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _run_with(tmp_path / "killed", shares, die, patience=3)
    resumed = _run_with(tmp_path / "killed", shares[3:], patience=3)
    assert resumed.history == whole.history
    assert len(whole.history) == 3
    assert _run_with(tmp_path / "killed", (), patience=3).history == whole.history


def test_no_patience_is_endless():
    history = [{"iteration": i, "val_sampled": 0.0} for i in range(99)]
    assert not out_of_patience(history, 0, None)
    assert out_of_patience(history, 50, 49)
    assert not out_of_patience(history, 50, 50)


def test_who_looks_is_told_of_each_iteration_once_and_of_each_checkpoint(tmp_path):
    lines = []
    end = live.subscribe(lines.append)
    try:
        history = _trainer(tmp_path, "grpo", make_config(iterations=2), make_policy()).run()
        _trainer(tmp_path, "grpo", make_config(iterations=2), make_policy()).run()  # resumed at its end: nothing new
    finally:
        end()
    told = [line for line in lines if line["kind"] == "iteration"]
    assert [line["record"] for line in told] == history
    assert [line["index"] for line in told] == [0, 1]
    assert all({"play", "train"} <= set(line["seconds"]) for line in told)
    assert all(0 < line["tokens"]["trained"] <= line["tokens"]["played"] for line in told)
    assert [line["step"] for line in lines if line["kind"] == "checkpoint"][-1] == 2
