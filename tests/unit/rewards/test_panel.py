"""Tools in the mix: weighed by family and phase, asked where they can count, and what there is without a verdict."""

from geartrain.environments.environment import Task
from geartrain.rewards.mix import RewardMix
from geartrain.rewards.outcome import measured
from geartrain.rewards.panel import Panel
from geartrain.rewards.reading import spoken
from geartrain.rewards.toolbox import metric_tool, rule_tool
from geartrain.rewards.tools import Cost, Tool
from geartrain.rewards.weights import Phase, Weights

OPEN = Task("t", "text", "f", "test", "Tell in a sentence where the boxes are.", "", 1, {"verdict": False})


class Words:
    def decode(self, token_ids, skip_special_tokens=False):
        return ""


class Siblings:
    """Prefers later siblings."""

    name = "siblings"

    def score(self, trajectories, tasks):
        return [measured(float(t.sibling)) for t in trajectories]


LIKES = Tool(Siblings(), "rule", Cost.CPU, "prefers later siblings")


def build_mix(*tools, weights=None, **options):
    panel = Panel(tools, weights or Weights({"siblings": 0.1}), **options)
    return RewardMix(Words(), model_weight=0.0, invalid_call_reward=0.0, learned=None, panel=panel)


def test_a_weight_of_a_family_goes_before_that_of_a_phase_and_that_before_the_rest():
    weights = Weights({"a": 0.1, "b": 0.2}, {"f": {"a": 0.9}}, [Phase(0.0, {"a": 0.3}), Phase(0.5, {"a": 0.4})])
    assert [weights.of("a", family="g", share=share) for share in (0.0, 0.49, 0.5, 1.0)] == [0.3, 0.3, 0.4, 0.4]
    assert weights.of("a", family="f", share=1.0) == 0.9
    assert weights.of("b", family="f", share=1.0) == 0.2
    assert weights.of("c", family="f", share=1.0) == 0.0


def test_weights_follow_the_run_and_the_family(episode):
    weights = Weights({"siblings": 0.0}, {"g": {"siblings": 0.2}}, [Phase(0.5, {"siblings": 0.1})])
    mix = build_mix(LIKES, weights=weights, iterations=11)

    def shift(**fields):
        group = [episode(sibling=0, success=True, **fields), episode(sibling=1, **fields)]
        return mix.score(group, {}).rewards[1]

    assert shift(policy_version=4) == 0.0
    assert shift(policy_version=5) == 0.1 * 0.5
    assert shift(policy_version=4, family="g") == 0.2 * 0.5


def test_a_tied_group_is_not_asked_about_and_every_raw_value_is_kept(episode):
    mix = build_mix(LIKES)
    tied = [episode("a", 0), episode("a", 1)]
    apart = [episode("b", 2, success=True), episode("b", 3)]
    scored = mix.score([*tied, *apart], {})
    assert [t.rewards["siblings"] for t in scored.trajectories] == [None, None, 2.0, 3.0]
    assert scored.failures == {"n/a siblings.tied": 2}
    assert scored.rewards == [0.0, 0.0, 1.0 - 0.05, 0.05]
    assert scored.shares == {"siblings": [0.0, 0.0, -0.05, 0.05]}


def test_without_a_verdict_soundness_stands_in_for_it():
    texts = ["The boxes are in the hall.", "The boxes are in the hall.", "", "The boxes are\u200b in the hall."]
    group = [spoken(OPEN, text, sibling=i) for i, text in enumerate(texts)]
    mix = build_mix(LIKES, rule_tool("length"), rule_tool("characters"))
    first, second, empty, hidden = mix.score(group, {"t": OPEN}).rewards
    assert 0.9 < first < second
    assert max(empty, hidden) < 0.3
    assert mix.score(group, {"t": OPEN}).failures["n/a verified.no_verdict"] == 4


def test_without_a_verdict_and_without_a_gate_opinions_alone_order():
    group = [spoken(OPEN, "x", sibling=i) for i in range(3)]
    rewards = build_mix(LIKES).score(group, {"t": OPEN}).rewards
    assert rewards == sorted(rewards)
    assert len(set(rewards)) == 3


def test_a_metric_that_does_not_apply_moves_nothing(episode):
    group = [episode(sibling=0, success=True), episode(sibling=1)]
    mix = build_mix(metric_tool("exact"), weights=Weights({"exact": 1.0}))
    assert mix.score(group, {}).rewards == [1.0, 0.0]
