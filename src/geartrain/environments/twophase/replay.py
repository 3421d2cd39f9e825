"""Between calls and abstract actions: read played turns as (state, action) pairs, and write actions as messages.

So the credit that any method gives to the turns of a real rollout can be held
against the exact advantage of the same steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from geartrain.environments.tools import render_call
from geartrain.environments.twophase.drafts import VERBS
from geartrain.environments.twophase.drafts import WAIT as WAIT_VERB
from geartrain.environments.twophase.exact import (
    FINISH,
    INVALID,
    LOOK,
    PLAN,
    REPAIR,
    RIGHT,
    SLIP,
    WAIT,
    Mdp,
    Policy,
    State,
    Values,
)
from geartrain.trajectory import ToolCall, ToolResult

Pair = tuple[State, str]


class Played(Protocol):
    """What is read of a turn: a `trajectory.Turn` or an `environment.Step` will do."""

    @property
    def call(self) -> ToolCall | None:
        """The parsed call."""
        ...

    @property
    def result(self) -> ToolResult:
        """What the tool answered."""
        ...


class ExactStep(NamedTuple):
    """The truth about one turn."""

    advantage: float
    """Exact A of what was done, in [-1, 1]."""
    stake: float
    """max A - min A of the state, in [0, 1]: how much the choice mattered."""
    phase: str
    """"plan" or "do"."""


def trace(mdp: Mdp, turns: Iterable[Played]) -> list[Pair]:
    """Return one (state, abstract action) per turn of an episode, from its start.

    Raises:
        ValueError: the turns are not of this task, or go on after its end.
    """
    state, pairs = State(), []
    for turn in turns:
        action = _abstract(mdp, state, turn)
        pairs.append((state, action))
        state = mdp.next(state, action)
    return pairs


def exact_steps(mdp: Mdp, values: Values, turns: Iterable[Played]) -> list[ExactStep]:
    """Return the truth about every turn of an episode. Raises ValueError as `trace`."""
    return [
        ExactStep(values.advantage(state, action), values.stake(state), mdp.phase(state))
        for state, action in trace(mdp, turns)
    ]


def messages(mdp: Mdp, state: State, action: str) -> list[str]:
    """Return messages that an abstract action stands for; of `do:slip` every one, of `invalid` one per kind.

    Raises ValueError on an action that is not legal in `state`.
    """
    if action not in mdp.actions(state):
        raise ValueError(f"{action!r} is not legal in {state}")
    if action == INVALID:
        return _faults(mdp, state)
    if action.startswith(PLAN):
        option = mdp.spec["decisions"][len(state.choices)]["options"][int(action.removeprefix(PLAN))]
        return [render_call("plan", {"choice": option["name"]})]
    if action in (LOOK, REPAIR, FINISH):
        return [render_call(action, {})]
    right = _right_verb(mdp, state)
    if action == SLIP:
        return [_do(verb) for verb in (*VERBS.values(), "force", "drag") if verb != right]
    return [_do(right if action == RIGHT else WAIT_VERB)]


def estimated_policy(mdp: Mdp, episodes: Iterable[Sequence[Pair]], *, prior: float = 1.0) -> Policy:
    """Return the policy that played `episodes` of one task, as far as their counts show it.

    Counts are pooled over the number of calls used, which an agent hardly heeds.
    `prior` is added to the count of every legal action, in shares that sum to it:
    high draws towards the uniform policy, and it must be above 0, since a state
    may never have been visited.
    """
    assert prior > 0.0, prior
    counts: dict[State, dict[str, int]] = {}
    for pairs in episodes:
        for state, action in pairs:
            row = counts.setdefault(state._replace(calls=0), {})
            row[action] = row.get(action, 0) + 1

    def chances(state: State) -> Mapping[str, float]:
        actions, row = mdp.actions(state), counts.get(state._replace(calls=0), {})
        total = sum(row.values()) + prior
        return {action: (row.get(action, 0) + prior / len(actions)) / total for action in actions}

    return chances


def _abstract(mdp: Mdp, state: State, turn: Played) -> str:
    """Return what a turn did. An error is `invalid`, whatever it is; of the rest the call decides."""
    if turn.result.error is not None or turn.call is None:
        return INVALID
    call, action = turn.call, turn.call.name
    if call.name == "plan" and mdp.phase(state) == "plan":
        names = [option["name"] for option in mdp.spec["decisions"][len(state.choices)]["options"]]
        choice = call.arguments["choice"]
        action = f"{PLAN}{names.index(choice)}" if choice in names else choice
    elif call.name == "do":
        verb = call.arguments["action"]
        right = _right_verb(mdp, state)
        action = WAIT if verb == WAIT_VERB else RIGHT if verb == right else SLIP
    if action not in mdp.actions(state):
        raise ValueError(
            f"turn {state.calls + 1}: the tools accepted {call.name!r}, which this task does not; wrong task?"
        )
    return action


def _right_verb(mdp: Mdp, state: State) -> str:
    """Return the verb that clears the stop; empty where there is none."""
    if mdp.phase(state) != "do" or state.cleared >= len(mdp.stops(state)):
        return ""
    return VERBS[mdp.stops(state)[state.cleared]["state"]]


def _faults(mdp: Mdp, state: State) -> list[str]:
    broken: list[tuple[str, dict[str, Any]]] = [("sing", {}), ("do", {"action": "sing"}), ("plan", {"choice": "sing"})]
    if REPAIR not in mdp.actions(state):
        broken.append(("repair", {}))
    if FINISH not in mdp.actions(state):
        broken.append(("finish", {}))
    if RIGHT not in mdp.actions(state):
        broken.append(("do", {"action": WAIT_VERB}))
    planning = mdp.phase(state) == "plan"
    named = [option["name"] for decision in mdp.spec["decisions"] for option in decision["options"]]
    legal = {a for a in mdp.actions(state) if a.startswith(PLAN)}
    now = [o["name"] for o in mdp.spec["decisions"][len(state.choices)]["options"]] if planning else []
    possible = {now[int(a.removeprefix(PLAN))] for a in legal}
    broken += [("plan", {"choice": name}) for name in dict.fromkeys(named) if name not in possible]
    return ["", "look", '{"name": "look"', *(render_call(name, arguments) for name, arguments in broken)]


def _do(verb: str) -> str:
    return render_call("do", {"action": verb})
