import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from geartrain.environments.environment import Task
from geartrain.models.reward_model import RewardModel
from geartrain.rewards.channel import Tasks
from geartrain.rewards.learned import Learned
from geartrain.rewards.mix import RewardMix
from geartrain.rewards.outcome import Failed, NotApplicable, Outcome, Value, measured
from geartrain.trajectory import ToolResult, Trajectory, Turn
from tests.fakes.tiny_bert import make_encoder


class Words:
    """Decoder stub of word-level ids; the grains have their own tests."""

    def decode(self, token_ids: list[int], skip_special_tokens: bool = False) -> str:
        return "x" * len(token_ids)


class Table:
    """A channel that says what it is told to."""

    name = "learned"

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values

    def score(self, trajectories: Sequence[Trajectory], tasks: Tasks) -> list[Outcome]:
        return [measured(self._values[trajectory.sibling]) for trajectory in trajectories]


def build_mix(learned: object, **options: object) -> RewardMix:
    settings = {"model_weight": 0.1, "invalid_call_reward": -0.1, **options}
    return RewardMix(Words(), learned=learned, **settings)  # type: ignore[arg-type]


def reward_model(*, trusted: bool = True, max_tokens: int = 64) -> RewardModel:
    model = RewardModel.new(*make_encoder(), max_tokens=max_tokens)
    torch.nn.init.constant_(model.head.weight[:, ::3], 1.0)
    model.trusted = trusted
    return model


def test_raw_values_of_every_channel_are_kept_and_failures_are_none(episode: Callable[..., Trajectory]) -> None:
    group = [episode(sibling=0, success=True), episode(sibling=1, progress=0.5), episode(sibling=2)]
    scored = build_mix(Table([700.0, math.nan, -700.0])).score(group, {})
    assert [t.rewards for t in scored.trajectories] == [
        {"verified": 1.0, "learned": 700.0},
        {"verified": 0.1, "learned": None},
        {"verified": 0.0, "learned": -700.0},
    ]
    assert scored.failures == {"learned.not_finite": 1}
    assert scored.rewards[1] == 0.1  # the verified value alone
    assert scored.rewards[0] is not None
    assert scored.rewards[0] > 1.0


def test_a_failed_verdict_leaves_no_reward_and_does_not_poison_the_group(episode: Callable[..., Trajectory]) -> None:
    group = [episode(sibling=0, progress=math.nan), episode(sibling=1, success=True), episode(sibling=2)]
    scored = build_mix(None).score(group, {})
    assert scored.rewards == [None, 1.0, 0.0]
    assert scored.failures == {"verified.progress_out_of_range": 1}


def test_groups_are_normalised_apart(episode: Callable[..., Trajectory]) -> None:
    first = [episode("a", 0, success=True), episode("a", 1)]
    second = [episode("b", 2, success=True), episode("b", 3)]
    mix = build_mix(Table([1.0, -1.0, 500.0, 900.0]))
    together = mix.score([first[0], second[0], first[1], second[1]], {}).rewards
    assert [together[0], together[2]] == mix.score(first, {}).rewards
    assert [together[1], together[3]] == mix.score(second, {}).rewards


def test_the_model_is_asked_only_where_its_opinion_can_count(episode: Callable[..., Trajectory]) -> None:
    tied = [episode("a", 0), episode("a", 1), episode("a", 2, progress=math.nan)]
    apart = [episode("b", 3, success=True), episode("b", 4)]
    table = Table([3.0, 4.0, 5.0, 6.0, 7.0])
    scored = build_mix(table).score([*tied, *apart], {})
    assert [t.rewards["learned"] for t in scored.trajectories] == [None, None, None, 6.0, 7.0]
    assert scored.failures == {"n/a learned.tied": 3, "verified.progress_out_of_range": 1}
    everywhere = build_mix(table, learned_in_ties=True).score([*tied, *apart], {})
    assert [t.rewards["learned"] for t in everywhere.trajectories] == [3.0, 4.0, 5.0, 6.0, 7.0]
    assert scored.rewards[3:] == everywhere.rewards[3:]


def test_success_cannot_be_traded_for_the_models_praise(episode: Callable[..., Trajectory]) -> None:
    group = [episode(sibling=0, success=True), episode(sibling=1, progress=1.0), *[episode(sibling=i) for i in (2, 3)]]
    scored = build_mix(Table([-1e9, 1e9, 5.0, 0.0]), model_weight=1e9).score(group, {})
    assert max(range(4), key=lambda i: scored.rewards[i] or 0.0) == 0


def test_weight_zero_and_no_folder_need_no_model() -> None:
    for folder, weight in ((None, 0.1), ("nowhere", 0.0)):
        mix = RewardMix.load(folder, tokenizer=Words(), model_weight=weight, invalid_call_reward=0.0)  # type: ignore[arg-type]
        assert mix.score([], {}).rewards == []


def test_a_saved_model_is_loaded_and_used(
    tmp_path, episode: Callable[..., Trajectory], task: Callable[[str], Task]
) -> None:
    reward_model().save(tmp_path)
    mix = RewardMix.load(tmp_path, tokenizer=Words(), model_weight=0.5, invalid_call_reward=0.0)
    scored = mix.score([episode(sibling=0, success=True), episode(sibling=1)], {"t": task("t")})
    assert all(isinstance(t.rewards["learned"], float) for t in scored.trajectories)
    assert not scored.failures


def test_a_learned_score_is_found_once_per_text_and_given_to_every_sibling_that_says_it(
    episode: Callable[..., Trajectory], turn: Callable[..., Turn], task: Callable[[str], Task]
) -> None:
    asked: list[int] = []

    class Counting(RewardModel):
        def score(self, texts, **options):  # type: ignore[no-untyped-def, override]
            asked.append(len(texts))
            return super().score(texts, **options)

    model = reward_model()
    counting = Counting(
        model.encoder, model.tokenizer, model.head, max_tokens=64, calibration=model.calibration, trusted=True
    )
    other = [turn(arguments={"sql": "good revenue"})]
    outcomes = Learned(counting, bfloat16=False).score(
        [episode(), episode(turns=other), episode(), episode()], {"t": task("t")}
    )
    assert asked == [2]
    assert outcomes[0] == outcomes[2] == outcomes[3] != outcomes[1]
    assert all(isinstance(outcome, Value) for outcome in outcomes)


def test_what_the_model_cannot_judge_fails_by_kind_and_the_rest_is_judged(
    episode: Callable[..., Trajectory], turn: Callable[..., Turn], task: Callable[[str], Task]
) -> None:
    long = [turn("generate_report", content=f"{word} = good") for word in 2 * "abcdefgh"]
    batch = [episode("unknown"), episode(), episode(turns=long)]
    outcomes = Learned(reward_model(max_tokens=20), bfloat16=False).score(batch, {"t": task("t")})
    assert isinstance(outcomes[0], Failed)
    assert isinstance(outcomes[1], Value)
    assert isinstance(outcomes[2], Failed)
    assert (outcomes[0].reason, outcomes[2].reason) == ("unknown_task", "too_long")


def test_an_untrusted_model_has_no_say(episode: Callable[..., Trajectory], task: Callable[[str], Task]) -> None:
    group = [episode(sibling=0, success=True), episode(sibling=1)]
    learned = Learned(reward_model(trusted=False), bfloat16=False)
    assert learned.score(group, {"t": task("t")}) == [NotApplicable("not_trusted")] * 2
    scored = build_mix(learned).score(group, {"t": task("t")})
    assert scored.rewards == [1.0, 0.0]
    assert scored.failures == {"n/a learned.not_trusted": 2}


def test_the_verdict_does_not_leak_into_what_the_model_reads(
    episode: Callable[..., Trajectory], turn: Callable[..., Turn], task: Callable[[str], Task]
) -> None:
    plain = episode(turns=[turn()])
    told = replace(
        plain, success=True, progress=1.0, turns=[replace(plain.turns[0], subgoals=("found:a",), reward=1.0)]
    )
    first, second = Learned(reward_model(), bfloat16=False).score([plain, told], {"t": task("t")})
    assert first == second


def test_the_same_arguments_give_the_same_result(
    episode: Callable[..., Trajectory], task: Callable[[str], Task]
) -> None:
    mix = build_mix(Learned(reward_model(), bfloat16=False))
    group = [episode(sibling=i, success=i == 0, turns=[plain_turn(i)]) for i in range(4)]
    assert mix.score(group, {"t": task("t")}) == mix.score(group, {"t": task("t")})


def plain_turn(index: int) -> Turn:
    return Turn([1], [2], [0.0], "x", None, ToolResult("error", f"kind_{'abcd'[index]}"))
