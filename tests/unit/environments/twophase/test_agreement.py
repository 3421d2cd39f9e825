"""What a real episode does and what the exact process says are the same, whatever is played."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from geartrain.environments.environment import Expert, Step, Task, Verdict
from geartrain.environments.tools import render_call
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.environments.twophase.exact import INVALID, SLIP, Mdp, State, evaluate, key_steps, uniform
from geartrain.environments.twophase.replay import estimated_policy, exact_steps, messages, trace
from geartrain.trajectory import ToolResult

Small = Callable[..., Task]
Play = Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]


def sequences(mdp: Mdp, left_out: str, state: State = State()) -> Iterator[list[str]]:  # noqa: B008 - a tuple
    """Every sequence of abstract actions to the end, but those with `left_out`."""
    if not mdp.actions(state):
        yield []
    for action in mdp.actions(state):
        if action != left_out:
            yield from ([action, *rest] for rest in sequences(mdp, left_out, mdp.next(state, action)))


def replay(
    environment: TwoPhaseEnvironment, mdp: Mdp, task: Task, said: list[tuple[str, str]]
) -> tuple[State, Verdict]:
    """Play (action, message) pairs through a real episode; phases, ends and errors agree after each."""
    episode, state, steps = environment.reset(task, seed=0), State(), []
    for action, message in said:
        step = episode.step(message)
        assert (step.result.error is not None) is (action == INVALID), (state, action, message, step.result)
        state = mdp.next(state, action)
        assert episode.phase == mdp.phase(state), (state, action)
        assert step.done is (mdp.phase(state) == "end")
        steps.append(step)
    assert [action for _, action in trace(mdp, steps)] == [action for action, _ in said]
    return state, episode.verdict()


def agrees(mdp: Mdp, state: State, verdict: Verdict) -> None:
    assert verdict.success is mdp.success(state), (state, verdict)
    assert ("do: something broke for good" in verdict.reasons) is state.broken
    planned = [held for name, held in verdict.subgoals.items() if name.startswith("plan:")]
    assert all(planned[: len(state.choices)]) is mdp.fits(state.choices)
    assert not any(planned[len(state.choices) :])
    if mdp.phase(state) == "do":
        stops = [stop["name"] for stop in mdp.stops(state)[: state.cleared]]
        done = [name[3:] for name, held in verdict.subgoals.items() if name.startswith("do:") and held]
        assert set(done) == set(stops) - {(mdp.spec["detour"] or {}).get("name")}


@pytest.mark.parametrize(
    ("family", "budget", "left_out"),
    # an order takes 6 calls, and without errors, which three families and the next test cover, there are 10 times fewer
    [("route", 5, ""), ("recipe", 5, ""), ("convoy", 5, ""), ("order", 6, INVALID)],
)
def test_every_sequence_of_actions_has_the_verdict_that_the_process_says(
    environment: TwoPhaseEnvironment, smallest: Small, family: str, budget: int, left_out: str
) -> None:
    task = smallest(family, budget)
    mdp, successes, played = Mdp.of(task), 0, 0
    said: dict[tuple[State, str], str] = {}
    for actions in sequences(mdp, left_out):
        state, pairs = State(), []
        for action in actions:
            if (state, action) not in said:
                said[state, action] = messages(mdp, state, action)[0]
            pairs.append((action, said[state, action]))
            state = mdp.next(state, action)
        end, verdict = replay(environment, mdp, task, pairs)
        agrees(mdp, end, verdict)
        successes += verdict.success
        played += 1
    assert played > 1000
    assert 0 < successes < played


@pytest.mark.parametrize("family", ["route", "recipe", "convoy", "order"])
def test_every_message_in_every_state_of_a_whole_task(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], family: str
) -> None:
    """One path to each state, then every action there, in every message that it stands for."""
    of_family = [task for split in ("train", "ood") for task in tasks[split] if task.family == family]
    task = next(
        task
        for task in of_family
        if 2 <= len(task.spec["stops"]) <= 3 and {stop["fragile"] for stop in task.spec["stops"]} == {True, False}
    )
    mdp = Mdp.of(task)
    paths: dict[State, list[tuple[str, str]]] = {State(): []}
    for state in mdp.states:
        if state.calls > 5:  # later states are the same ones again, with fewer calls left
            continue
        for action in mdp.actions(state):
            after = mdp.next(state, action)
            for message in messages(mdp, state, action):
                path = [*paths[state], (action, message)]
                paths.setdefault(after, path)
                end, verdict = replay(environment, mdp, task, path)
                assert end == after
                agrees(mdp, end, verdict)


def test_random_play_succeeds_as_often_as_the_process_says(environment: TwoPhaseEnvironment, smallest: Small) -> None:
    task = smallest("recipe")
    mdp, rng, wins, episodes = Mdp.of(task), random.Random(0), 0, 1500
    for _ in range(episodes):
        episode, state = environment.reset(task, seed=0), State()
        while mdp.actions(state):
            action = rng.choice(mdp.actions(state))
            episode.step(rng.choice(messages(mdp, state, action)))
            state = mdp.next(state, action)
        wins += episode.verdict().success
    expected = evaluate(mdp, uniform(mdp)).v[State()]
    assert abs(wins / episodes - expected) < 4 * (expected * (1 - expected) / episodes) ** 0.5


def test_a_shorter_horizon_ends_earlier(smallest: Small) -> None:
    task = smallest("route")
    assert Mdp.of(task, horizon=3).horizon == 3
    assert Mdp.of(task, horizon=99).horizon == task.spec["budget"]
    assert max(state.calls for state in Mdp.of(task, horizon=3).states) == 3


def test_turns_of_another_task_are_refused(environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]]) -> None:
    one, other = tasks["train"][0], tasks["train"][1]
    step = environment.reset(one, seed=0).step(render_call("look", {}))
    planned = replace(step, call=replace(step.call, name="plan", arguments={"choice": "nowhere"}))
    with pytest.raises(ValueError, match="wrong task"):
        trace(Mdp.of(other), [planned])
    with pytest.raises(ValueError, match="not legal"):
        trace(Mdp.of(one, horizon=1), [step, replace(step, call=None, result=ToolResult("error", "no_call"))])


def test_exact_steps_of_an_experts_episode(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    """The flawed expert's fatal step has an advantage below 0; every good step of a success has one of at least 0."""
    for task in [task for task in tasks["train"] if len(task.spec["flaws"]) == 2][:6]:
        mdp = Mdp.of(task)
        episodes = [
            [step for _, step in play(task, environment.expert(task, seed=seed, flawed=True))[0]] for seed in range(30)
        ]
        traces = [trace(mdp, steps) for steps in episodes]
        values = evaluate(mdp, estimated_policy(mdp, traces, prior=0.5))
        decisive = set(key_steps(mdp, values, 0.05))
        flawless = [step for _, step in play(task, environment.expert(task, seed=0, flawed=False))[0]]
        good = exact_steps(mdp, values, flawless)
        assert [step.phase for step in good] == ["plan"] * (1 + len(task.spec["decisions"])) + ["do"] * (
            len(good) - 1 - len(task.spec["decisions"])
        )
        planned = slice(1, 1 + len(task.spec["decisions"]))
        assert max(step.advantage for step in good[planned]) > 0.05
        assert any(state in decisive for state, _ in trace(mdp, flawless)[planned])
        for steps, pairs in zip(episodes, traces, strict=True):
            for (state, action), exact in zip(pairs, exact_steps(mdp, values, steps), strict=True):
                if action == SLIP and values.v[state] > 0 and mdp.stops(state)[state.cleared]["fragile"]:
                    assert exact.advantage == pytest.approx(-values.v[state])
                    assert exact.stake >= values.v[state]


def test_an_estimated_policy_is_what_was_counted(smallest: Small) -> None:
    mdp = Mdp.of(smallest("route"))
    start = State()
    policy = estimated_policy(mdp, [[(start, "look")], [(start, "look")], [(start._replace(calls=1), "invalid")]])
    actions = len(mdp.actions(start))
    assert policy(start)["look"] == pytest.approx((2 + 1 / actions) / 4)
    assert policy(start) == policy(start._replace(calls=2))
    assert policy(start._replace(seen=True)) == pytest.approx(uniform(mdp)(start))
