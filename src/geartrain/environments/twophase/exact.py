"""Ground truth for credit: the exact values of every state of a task, for any policy (ours).

A task is a small Markov decision process. Its states count the calls used, so
no state comes twice and backward induction is exact. Dynamics and success come
from the drawn truth in a task's spec; an episode judges by the facts instead,
and the tests play both against each other.

Abstract actions (what they stand for in calls: `replay.py`):

    look  plan:0 plan:1 ...              while planning; `look` is harmless, but shows the board
    do:right do:slip do:wait look        at a stop; a slip jams it, or breaks what is fragile for good
    repair look                          at a jammed stop
    finish look                          when every stop is done
    invalid                              always: any message that is answered by an error
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from geartrain.environments.environment import Task

LOOK, RIGHT, SLIP, WAIT, REPAIR, FINISH, INVALID = (
    "look",
    "do:right",
    "do:slip",
    "do:wait",
    "repair",
    "finish",
    "invalid",
)
PLAN = "plan:"
_TOLERANCE = 1e-9


class State(NamedTuple):
    """What decides the future of an episode, and whether the board was seen."""

    calls: int = 0
    seen: bool = False
    """The board was looked at; False again once the plan is made, when it no longer matters."""
    choices: tuple[int, ...] = ()
    """Indices of the options planned so far."""
    cleared: int = 0
    jammed: bool = False
    broken: bool = False
    finished: bool = False


Policy = Callable[[State], Mapping[str, float]]
"""From a state to the probabilities of its legal actions; an action left out has probability 0."""


@dataclass(frozen=True)
class Mdp:
    """The abstract process of one task."""

    spec: Mapping[str, Any]
    horizon: int
    """Calls after which an episode is over."""

    @classmethod
    def of(cls, task: Task, *, horizon: int | None = None) -> "Mdp":
        """Return the process of a task. `horizon` is for rollouts that are cut before the task's own budget ends."""
        budget: int = task.spec["budget"]
        return cls(task.spec, budget if horizon is None else min(budget, horizon))

    def phase(self, state: State) -> str:
        """Return "plan", "do" or "end"."""
        if state.finished or state.calls >= self.horizon:
            return "end"
        return "plan" if len(state.choices) < len(self.spec["truth"]["ok"]) else "do"

    def stops(self, state: State) -> list[Mapping[str, Any]]:
        """Return the stops that a complete plan leads to."""
        truth, stops = self.spec["truth"], self.spec["stops"]
        if truth["ordered"]:
            rest = [index for index in range(len(stops)) if index not in state.choices]
            return [stops[index] for index in (*state.choices, *rest)]
        detour = any(truth["detour"][number][choice] for number, choice in enumerate(state.choices))
        return [self.spec["detour"], *stops] if detour else list(stops)

    def actions(self, state: State) -> tuple[str, ...]:
        """Return the legal abstract actions; none when the episode is over."""
        phase = self.phase(state)
        if phase == "end":
            return ()
        if phase == "plan":
            truth = self.spec["truth"]
            taken = state.choices if truth["ordered"] else ()
            options = range(len(truth["ok"][len(state.choices)]))
            return (LOOK, *(f"{PLAN}{index}" for index in options if index not in taken), INVALID)
        if state.jammed:
            return (REPAIR, LOOK, INVALID)
        if state.cleared == len(self.stops(state)):
            return (FINISH, LOOK, INVALID)
        return (RIGHT, SLIP, WAIT, LOOK, INVALID)

    def next(self, state: State, action: str) -> State:
        """Return the state after a legal action. Raises ValueError on one that is not legal."""
        if action not in self.actions(state):
            raise ValueError(
                f"{action!r} is not legal in {state}; legal: {', '.join(self.actions(state)) or 'nothing'}"
            )
        after = state._replace(calls=state.calls + 1)
        if action.startswith(PLAN):
            choices = (*state.choices, int(action.removeprefix(PLAN)))
            complete = len(choices) == len(self.spec["truth"]["ok"])
            return after._replace(choices=choices, seen=state.seen and not complete)
        if action == SLIP:
            fragile = self.stops(state)[state.cleared]["fragile"]
            return after._replace(broken=True) if fragile else after._replace(jammed=True)
        if action == LOOK:
            return after._replace(seen=True) if self.phase(state) == "plan" else after
        if action == RIGHT:
            return after._replace(cleared=state.cleared + 1)
        if action == REPAIR:
            return after._replace(jammed=False)
        return after._replace(finished=True) if action == FINISH else after

    def fits(self, choices: Sequence[int]) -> bool:
        """Return whether every choice of a (possibly unfinished) plan is right."""
        truth = self.spec["truth"]
        return all(
            truth["ok"][number][choice]
            # `after` is of options that all decisions share
            and (not truth["ordered"] or set(truth["after"][choice]) <= set(choices[:number]))
            for number, choice in enumerate(choices)
        )

    def success(self, state: State) -> bool:
        """Return whether a state is a success: finished (so every stop is done), nothing broken, and a right plan."""
        return state.finished and not state.broken and self.fits(state.choices)

    @cached_property
    def edges(self) -> Mapping[State, Mapping[str, State]]:
        """Legal action -> next state, of every state that can be reached; calls ascending, in a fixed order."""
        found: dict[State, dict[str, State]] = {}
        frontier = [State()]
        while frontier:
            level = {state: {a: self.next(state, a) for a in self.actions(state)} for state in frontier}
            found |= level
            frontier = list(dict.fromkeys(after for row in level.values() for after in row.values()))
        return found

    @property
    def states(self) -> list[State]:
        """Every state that can be reached, calls ascending, in a fixed order."""
        return list(self.edges)


@dataclass(frozen=True)
class Values:
    """Exact values under one policy. Units: probability of success."""

    v: Mapping[State, float]
    q: Mapping[State, Mapping[str, float]]
    """Of every legal action of every state that is not over."""

    def advantage(self, state: State, action: str) -> float:
        """Return A = Q - V, in [-1, 1]. Raises KeyError on a state or an action that is not of this process."""
        return self.q[state][action] - self.v[state]

    def stake(self, state: State) -> float:
        """Return max A - min A over the legal actions, in [0, 1]: how much the choice matters; 0 at the end."""
        return max(self.q[state].values()) - min(self.q[state].values()) if state in self.q else 0.0


def evaluate(mdp: Mdp, policy: Policy) -> Values:
    """Return exact V and Q of every reachable state, by backward induction.

    Raises:
        ValueError: the policy gives probability to an illegal action, a negative one, or they do not sum to 1.
    """
    v: dict[State, float] = {}
    q: dict[State, dict[str, float]] = {}
    for state in reversed(mdp.states):
        if not mdp.edges[state]:
            v[state] = float(mdp.success(state))
            continue
        chances = _checked(mdp, policy, state)
        q[state] = {action: v[after] for action, after in mdp.edges[state].items()}
        v[state] = sum(chances.get(action, 0.0) * value for action, value in q[state].items())
    return Values(v, q)


def visit(mdp: Mdp, policy: Policy) -> dict[State, float]:
    """Return the probability that an episode passes through each state; for one count of calls they sum to at most 1.

    Raises ValueError as `evaluate`.
    """
    chance = dict.fromkeys(mdp.states, 0.0)
    chance[State()] = 1.0
    for state, row in mdp.edges.items():
        if chance[state] and row:
            for action, probability in _checked(mdp, policy, state).items():
                chance[row[action]] += chance[state] * probability
    return chance


def policy_gradient(mdp: Mdp, policy: Policy) -> dict[State, dict[str, float]]:
    """Return d P(success) / d logit of every (state, action) of a softmax policy: visit * pi * A.

    Source: the policy gradient theorem (Sutton et al., 2000), with exact values. Raises ValueError as `evaluate`.
    """
    values, chance = evaluate(mdp, policy), visit(mdp, policy)
    gradient = {}
    for state, actions in values.q.items():
        chances = policy(state)
        gradient[state] = {a: chance[state] * chances.get(a, 0.0) * values.advantage(state, a) for a in actions}
    return gradient


def key_steps(mdp: Mdp, values: Values, threshold: float = 0.1) -> list[State]:
    """Return the states whose stake exceeds `threshold` (a difference of success probabilities), calls ascending."""
    return [state for state in mdp.states if values.stake(state) > threshold]


def uniform(mdp: Mdp) -> Policy:
    """Return the policy that takes every legal action, `invalid` included, with the same probability."""
    return lambda state: dict.fromkeys(mdp.actions(state), 1 / len(mdp.actions(state)))


def expert_action(mdp: Mdp, state: State) -> str | None:
    """Return what somebody who knows the truth does: look once, plan what fits, the right verb, mend, finish.

    None when the episode is over, and when no option that is left fits.
    """
    phase = mdp.phase(state)
    if phase == "end":
        return None
    if phase == "do":
        return next(action for action in (REPAIR, FINISH, RIGHT) if action in mdp.actions(state))
    if not state.seen and not state.choices:
        return LOOK
    plans = (action for action in mdp.actions(state) if action.startswith(PLAN))
    return next((plan for plan in plans if mdp.fits((*state.choices, int(plan.removeprefix(PLAN))))), None)


def tilted(policy: Policy, wanted: Callable[[State], str | None], nats: float) -> Policy:
    """Return a policy with the logit of one action per state raised by `nats`; where none is wanted it stays as it is.

    A uniform policy tilted towards `expert_action` is an expert that errs the more, the lower `nats` is.
    """

    def chances(state: State) -> Mapping[str, float]:
        action = wanted(state)
        raised = {name: p * math.exp(nats * (name == action)) for name, p in policy(state).items()}
        total = sum(raised.values())
        return {name: p / total for name, p in raised.items()}

    return chances


def softmax(mdp: Mdp, logits: Mapping[tuple[State, str], float]) -> Policy:
    """Return the softmax policy of a table of logits; what the table leaves out is 0."""

    def chances(state: State) -> dict[str, float]:
        actions = mdp.edges[state]
        raw = np.array([logits.get((state, action), 0.0) for action in actions])
        weights = np.exp(raw - raw.max())
        return dict(zip(actions, (weights / weights.sum()).tolist(), strict=True))

    return chances


def _checked(mdp: Mdp, policy: Policy, state: State) -> Mapping[str, float]:
    chances = policy(state)
    legal = chances.keys() <= mdp.edges[state].keys() and min(chances.values(), default=0.0) >= 0
    if not (legal and abs(sum(chances.values()) - 1) <= _TOLERANCE):  # put so that NaN is refused too
        raise ValueError(f"policy in {state}: not a distribution over {', '.join(mdp.actions(state))}: {dict(chances)}")
    return chances
