"""The tools that come with geartrain, declared: rules and metrics; how a reward model becomes one."""

from geartrain.rewards.channel import Channel
from geartrain.rewards.fusion import SCALE_FLOOR
from geartrain.rewards.judge import JudgePairs, JudgeScores
from geartrain.rewards.metrics import METRICS, Metric
from geartrain.rewards.rules import RULES, Rule
from geartrain.rewards.tools import Applies, Cost, Registry, Tool
from geartrain.rewards.verified import PROGRESS_WEIGHT, Verified

RULE_WORDS = {
    "length": "a window of words; empty is 0",
    "repetition": "what was said before, runs of words, lines, one character",
    "copying": "the prompt's own words given back",
    "characters": "hidden characters, words of two alphabets",
    "language": "the language that is wished for",
    "format": "JSON with the wished keys and nothing around it",
    "relevance": "whether it speaks of what was asked",
    "prose": "sentences, not a heap of keywords",
    "address": "words for a judge, verdicts of its own, marks of a chat's format",
}
SUGGESTED = {
    **dict.fromkeys(RULES, 0.0),
    "copying": 0.1,
    "relevance": 0.1,
    "exact": 0.3,
    "chrf": 0.3,
}
"""Weights to begin with where `policy.tools` names none and somebody asks for an explanation: every rule objects."""
JUDGE_WEIGHT = 0.1
"""Of a judge beside them."""
METRIC_WORDS = {
    "exact": "equal to the reference after a declared normalisation",
    "bleu": "sentence BLEU (sacrebleu)",
    "chrf": "chrF2 (sacrebleu)",
    "rouge": "ROUGE-L, F-measure (rouge-score)",
}


def verified_tool(progress_weight: float = PROGRESS_WEIGHT) -> Tool:
    """Return the environment's verdict as a tool."""
    channel = Verified(progress_weight=progress_weight)
    return Tool(channel, "verifier", Cost.NONE, "the environment's verdict and progress")


def learned_tool(channel: Channel) -> Tool:
    """Return a trained reward model as a tool; its channel is `Learned`."""
    return Tool(channel, "model", Cost.MODEL, "the trained reward model's opinion, in nats", floor=SCALE_FLOOR)


JUDGE_WORDS = {
    JudgeScores.name: "a language model's score by a rubric, 1 to 10",
    JudgePairs.name: "a language model's comparisons, in both orders",
}


def scores_tool(channel: JudgeScores) -> Tool:
    """Return a language model's scores as a tool."""
    return Tool(channel, "judge", Cost.SERVER, JUDGE_WORDS[channel.name], batch=1)


def pairs_tool(channel: JudgePairs) -> Tool:
    """Return a language model's comparisons as a tool; groups must reach it whole, so it is asked for all at once."""
    return Tool(channel, "judge", Cost.SERVER, JUDGE_WORDS[channel.name], batch=10**6)


def rule_tool(name: str) -> Tool:
    """Return a rule as a tool. Raises KeyError."""
    return Tool(Rule(name, RULES[name]), "rule", Cost.CPU, RULE_WORDS[name], gate=True)


def metric_tool(name: str) -> Tool:
    """Return a metric as a tool; its library is loaded when it is first asked. Raises KeyError."""
    channel = Metric(name, METRICS[name])
    return Tool(channel, "metric", Cost.CPU, METRIC_WORDS[name], applies=Applies(reference=True))


def built_in() -> Registry:
    """Return every tool that works by itself."""
    return Registry([verified_tool(), *map(rule_tool, RULES), *map(metric_tool, METRICS)])
