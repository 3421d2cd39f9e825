"""Episodes of `twophase` under a policy that is known: a table on states, spoken token by token.

A table gives every legal abstract action a probability. Said aloud, an action
is one of the messages that it stands for, each as likely as the others, in the
ids of a real tokenizer; so log-probs and entropies of single tokens are exact,
and an episode is a trajectory like any that a model has played.

A teacher is another table on the same states. What heads would read of a
model's hidden states is put together here from what the agent has seen and
from the table itself; nothing of the truth is in it.

Legend: T positions, S turns, H width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from geartrain.algorithms.divergence import Direction, categorical_divergence
from geartrain.config import TinyModel
from geartrain.datasets.demonstrations import demonstrate_all
from geartrain.environments.environment import Environment, Task
from geartrain.environments.twophase.exact import FINISH, INVALID, LOOK, PLAN, REPAIR, Mdp, Policy, State
from geartrain.environments.twophase.replay import messages, trace
from geartrain.models.backbone import build_policy
from geartrain.models.chat import ChatFormat
from geartrain.models.tokenizer import train_tokenizer
from geartrain.rollouts.collect import EpisodeRequest, Limits
from geartrain.rollouts.live import open_episode
from geartrain.seeds import seed_of
from geartrain.training.features import TurnFeatures
from geartrain.trajectory import Trajectory

KINDS = (LOOK, "plan", "do", REPAIR, FINISH, INVALID)
"""What an action can be seen to be."""
WIDTH = 9 + len(KINDS) + 1
"""Of the features of a state, or of a state and what was done in it."""
DEMONSTRATIONS, VOCABULARY = 100, 1024
"""What the tokenizer reads, and its size."""
Row = Mapping[int, float]
"""Next id -> probability; only ids that some message of the state goes on with."""


@dataclass(frozen=True)
class Table:
    """A policy on the states of one task, and how it speaks."""

    mdp: Mdp
    policy: Policy
    """The same whatever the number of calls used."""
    chat: ChatFormat
    _said: dict[State, dict[tuple[int, ...], float]] = field(default_factory=dict)

    def said(self, state: State) -> Mapping[tuple[int, ...], float]:
        """Return the probability of every message that the policy may say in a state, by its ids."""
        timeless = state._replace(calls=0)
        if timeless not in self._said:
            found: dict[tuple[int, ...], float] = {}
            for action, chance in self.policy(state).items():
                texts = messages(self.mdp, state, action)
                found |= {_ids(self.chat, text): chance / len(texts) for text in texts}
            self._said[timeless] = found
        return self._said[timeless]

    def rows(self, state: State, ids: Sequence[int]) -> list[Row]:
        """Return the distribution that each of the ids of a message is drawn from, after those before it."""
        left = self.said(state)
        found: list[Row] = []
        for place, chosen in enumerate(ids):
            chances: dict[int, float] = {}
            for message, chance in left.items():
                chances[message[place]] = chances.get(message[place], 0.0) + chance
            total = sum(chances.values())
            found.append({name: chance / total for name, chance in chances.items()})
            left = {message: chance for message, chance in left.items() if message[place] == chosen}
        return found


@dataclass(frozen=True)
class Told:
    """What another table makes of the tokens of an episode; 0 where nothing was sampled."""

    logprob_T: Tensor
    entropy_T: Tensor
    divergence_T: Tensor
    """Of the table that played from the other one."""


def speech(environment: Environment, tasks: Sequence[Task]) -> ChatFormat:
    """Return how a tokenizer that has read demonstrations of some tasks writes a conversation."""
    shown = demonstrate_all(environment, tasks, count=DEMONSTRATIONS, seed=0, max_turns=16)
    texts = [text for demonstration in shown for text in demonstration.texts()]
    tokenizer = train_tokenizer(texts, vocabulary=VOCABULARY)
    return build_policy(tokenizer, TinyModel(hidden=16, layers=1, heads=1, context=256), seed=0).chat


def play(environment: Environment, task: Task, table: Table, *, sibling: int, seed: int, limits: Limits) -> Trajectory:
    """Play one episode; the same arguments give the same episode. Raises what the environment raises."""
    request = EpisodeRequest(task, sibling, task.task_id)
    live = open_episode(environment, request, 0, table.chat, seed=seed, context=limits.context)
    rng = np.random.default_rng(seed_of(seed, task.task_id, sibling))
    state, end = State(), None
    while end is None:
        chances = table.policy(state)
        action = list(chances)[rng.choice(len(chances), p=list(chances.values()))]
        texts = messages(table.mdp, state, action)
        ids = list(_ids(table.chat, texts[rng.integers(len(texts))]))
        rows = table.rows(state, ids)
        logprobs = [math.log(row[chosen]) for row, chosen in zip(rows, ids, strict=True)]
        end = live.hear(ids, logprobs, [entropy(row) for row in rows], table.chat, limits=limits)
        state = table.mdp.next(state, action)
    return live.judge(end, policy_version=0, temperature=1.0)


def reread(own: Table, teacher: Table, trajectory: Trajectory, *, direction: Direction) -> Told:
    """Return what `teacher` makes of an episode that `own` has played."""
    told = torch.zeros(3, len(trajectory.token_ids()))
    pairs = trace(own.mdp, trajectory.turns)
    for (state, _), turn, (first, _) in zip(pairs, trajectory.turns, trajectory.action_spans(), strict=True):
        both = zip(own.rows(state, turn.action_ids), teacher.rows(state, turn.action_ids), strict=True)
        for place, (mine, theirs) in enumerate(both):
            if len(mine) == 1:  # nothing to choose
                continue
            student, other = (torch.tensor([math.log(row[name]) for name in mine]) for row in (mine, theirs))
            divergence = float(categorical_divergence(student, other, direction))
            chosen = turn.action_ids[place]
            told[:, first + place] = torch.tensor([math.log(theirs[chosen]), entropy(theirs), divergence])
    return Told(*told)


def features(table: Table, trajectory: Trajectory) -> TurnFeatures:
    """Describe every turn's state, without and with what was done: as the agent sees it, and as the table rates it."""
    states, actions = [], []
    confidence = 0.0
    for state, action in trace(table.mdp, trajectory.turns):
        chances = table.policy(state)
        seen = [*_visible(table.mdp, state), confidence, entropy(chances)]
        states.append([*seen, *[0.0] * (len(KINDS) + 1)])
        kind = action.split(":")[0]
        actions.append([*seen, *(float(kind == name) for name in KINDS), math.log(chances[action])])
        if action.startswith(PLAN):
            confidence += math.log(chances[action])
    return TurnFeatures(torch.tensor(states), torch.tensor(actions))


def entropy(chances: Mapping[int, float] | Mapping[str, float]) -> float:
    """Return the entropy of a distribution, nats."""
    return -sum(chance * math.log(chance) for chance in chances.values() if chance > 0)


@lru_cache(maxsize=4096)
def _ids(chat: ChatFormat, text: str) -> tuple[int, ...]:
    return tuple(chat.action_ids(text))


def _visible(mdp: Mdp, state: State) -> list[float]:
    """Return what the tools' answers have told of a state."""
    planning, decisions = mdp.phase(state) == "plan", len(mdp.spec["truth"]["ok"])
    road = len(mdp.spec["stops"]) if planning else len(mdp.stops(state))
    shares = [state.calls / mdp.horizon, len(state.choices) / decisions, state.cleared / road]
    return [*shares, float(planning), float(state.seen), float(state.jammed), float(state.broken)]
