"""What the agent is shown, what it cannot break, and that the same actions give the same bytes."""

import json
import random
import string
from collections.abc import Callable
from dataclasses import replace

import pytest

from geartrain.environments.environment import Expert, Step, Task, Verdict
from geartrain.environments.tools import render_call
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.environments.twophase.drafts import VERBS, WORDS
from geartrain.environments.twophase.episode import TwoPhaseEpisode
from geartrain.errors import UserError

Play = Callable[[Task, Expert], tuple[list[tuple[str, Step]], Verdict]]
SPEC = {
    "parameters": {"load": 40},
    "decisions": [
        {
            "name": "route",
            "options": [
                {"name": "amber", "facts": ["holds 20", "shortcut"]},
                {"name": "birch", "facts": ["holds 50", "detour"]},
                {"name": "cedar", "facts": ["holds 40", "direct"]},
            ],
        }
    ],
    "stops": [
        {"name": "gate", "state": "shut", "fragile": False},
        {"name": "ford", "state": "locked", "fragile": True},
    ],
    "detour": {"name": "arch", "state": "wet", "fragile": False},
    "budget": 12,
}
TASK = Task("x", "twophase", "route", "train", "Bring 40 crates.", "train-ashby", 5, SPEC)


@pytest.fixture
def episode(environment: TwoPhaseEnvironment) -> TwoPhaseEpisode:
    return environment.reset(TASK, seed=0)


def say(episode: TwoPhaseEpisode, name: str, **arguments: object) -> str:
    return episode.step(render_call(name, arguments)).result.content


def test_a_session(episode: TwoPhaseEpisode) -> None:
    assert episode.phase == "plan"
    options = {"amber": "holds 20, shortcut", "birch": "holds 50, detour", "cedar": "holds 40, direct"}
    board = [f'route {{"choice": "{name}"}}: {facts}' for name, facts in options.items()]
    assert say(episode, "look").split("\n") == board
    assert say(episode, "do", action="open").startswith("error not_planned")
    assert say(episode, "plan", choice="birch") == "route: birch; stop 1 of 3: arch wet"
    assert episode.phase == "do"
    assert say(episode, "do", action="wait") == "nothing happens; stop 1 of 3: arch wet"
    assert say(episode, "do", action="open") == "arch is jammed, repair it"
    assert say(episode, "do", action="dry") == "error jammed: arch is jammed, repair it"
    assert say(episode, "repair") == "mended; stop 1 of 3: arch wet"
    assert say(episode, "do", action="dry") == "arch done; stop 2 of 3: gate shut"
    assert say(episode, "do", action="open") == "gate done; stop 3 of 3: ford locked, fragile"
    assert say(episode, "do", action="unlock") == "ford done; all stops done"
    assert not episode.verdict().success
    step = episode.step(render_call("finish", {}))
    assert (step.result.content, step.done, episode.phase) == ("finished", True, "end")
    assert episode.verdict() == Verdict(True, {"plan:route": True, "do:gate": True, "do:ford": True})
    again = episode.step(render_call("look", {}))
    assert (again.result.error, again.done, again.call) == ("episode_over", True, None)


def test_a_wrong_plan_shows_in_nothing_but_the_verdict(environment: TwoPhaseEnvironment) -> None:
    shown = []
    for choice in ("amber", "cedar"):
        episode = environment.reset(TASK, seed=0)
        calls = [("plan", {"choice": choice}), ("do", {"action": "open"}), ("do", {"action": "unlock"}), ("finish", {})]
        shown.append([episode.step(render_call(*call)).result.content.replace(choice, "") for call in calls])
        assert episode.verdict().success is (choice == "cedar")
    assert shown[0] == shown[1]
    episode = environment.reset(TASK, seed=0)
    say(episode, "plan", choice="amber")
    assert episode.verdict().reasons == (
        "plan: amber holds 20, the load is 40",
        "do: 0 stops are done",
        "not finished",
    )


def test_what_is_fragile_breaks_for_good(episode: TwoPhaseEpisode) -> None:
    for name, arguments in (("plan", {"choice": "cedar"}), ("do", {"action": "open"})):
        episode.step(render_call(name, arguments))
    assert say(episode, "do", action="force") == "ford broke for good; stop 2 of 2: ford locked, fragile"
    assert say(episode, "do", action="unlock") == "ford done; all stops done"
    say(episode, "finish")
    assert episode.verdict().reasons == ("do: something broke for good",)
    assert episode.verdict().progress == 1.0


def test_calls_run_out(environment: TwoPhaseEnvironment) -> None:
    episode = environment.reset(replace(TASK, spec={**SPEC, "budget": 3}), seed=0)
    assert not episode.step("nonsense").done
    assert not episode.step(render_call("look", {})).done
    last = episode.step(render_call("plan", {"choice": "cedar"}))
    assert last.done
    assert last.result.content.endswith("; no calls left")
    assert last.subgoals == ("plan:route",)
    assert not episode.verdict().success


@pytest.mark.parametrize(
    ("before", "call", "kind"),
    [
        ([], ("plan", {"choice": "delta"}), "unknown_option"),
        ([], ("plan", {"choice": 3}), "wrong_type"),
        ([], ("plan", {}), "missing_argument"),
        ([], ("repair", {}), "nothing_to_repair"),
        ([], ("finish", {}), "not_planned"),
        ([], ("do", {"action": "fly"}), "invalid_value"),
        ([], ("query_database", {"sql": "SELECT 1"}), "unknown_tool"),
        ([], ("look", {"at": "route"}), "unexpected_argument"),
        (["cedar"], ("plan", {"choice": "cedar"}), "already_planned"),
        (["cedar"], ("finish", {}), "stops_left"),
        (["cedar", "open", "unlock"], ("do", {"action": "open"}), "nothing_to_do"),
        (["cedar", "dry"], ("do", {"action": "wait"}), "jammed"),
    ],
)
def test_faults_have_kinds(episode: TwoPhaseEpisode, before: list[str], call: tuple[str, dict], kind: str) -> None:
    for word in before:
        name = ("do", {"action": word}) if word in WORDS else ("plan", {"choice": word})
        assert episode.step(render_call(*name)).result.error is None
    verdict, phase = episode.verdict(), episode.phase
    step = episode.step(render_call(*call))
    assert (step.result.error, step.subgoals, step.done) == (kind, (), False)
    assert (episode.verdict(), episode.phase) == (verdict, phase)


def test_the_same_actions_give_the_same_bytes(
    environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]], play: Play
) -> None:
    for task in [*tasks["train"][:20], *tasks["ood"][:5]]:
        restored = Task.from_record(json.loads(json.dumps(task.to_record())))
        logs = [
            [
                (message, step.result, step.subgoals)
                for message, step in play(one, environment.expert(one, seed=3, flawed=True))[0]
            ]
            for one in (task, restored)
        ]
        assert repr(logs[0]).encode() == repr(logs[1]).encode()
        openings = [environment.reset(one, seed=seed).opening() for one, seed in ((task, 0), (restored, 9))]
        assert openings[0] == openings[1]


def test_the_opening_hides_board_and_stops(environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]]) -> None:
    for task in tasks["train"][:40]:
        text = environment.reset(task, seed=0).opening()[1]["content"]
        named = [option["name"] for decision in task.spec["decisions"] for option in decision["options"]]
        assert not any(name in text for name in [*named, *(f" {stop['name']}" for stop in task.spec["stops"])])


def test_no_message_raises(environment: TwoPhaseEnvironment, tasks: dict[str, list[Task]]) -> None:
    rng = random.Random(0)
    task = replace(tasks["train"][2], spec={**tasks["train"][2].spec, "budget": 10**6})
    calls = [
        render_call(name, arguments)
        for name, arguments in (
            ("look", {}),
            *(("plan", {"choice": option["name"]}) for option in task.spec["decisions"][0]["options"]),
            *(("do", {"action": verb}) for verb in VERBS.values()),
            ("repair", {}),
            ("finish", {}),
        )
    ]
    episode = environment.reset(task, seed=0)
    for index in range(3000):
        if index % 50 == 0:
            episode = environment.reset(task, seed=0)
        if index % 3 == 0:
            message = bytes(rng.randrange(256) for _ in range(rng.randrange(60))).decode("utf-8", "surrogateescape")
        elif index % 3 == 1:
            message = "".join(rng.choice(string.printable) for _ in range(rng.randrange(60)))
        else:
            message = rng.choice(calls)
            at = rng.randrange(len(message))
            message = message[:at] + rng.choice(['"', "{", "\x00", "", ",", "\ud800", "x"]) + message[at + 1 :]
        step = episode.step(message)
        assert step.result.error != "internal_error", message
        assert step.result.error is None or step.result.content.startswith(f"error {step.result.error}")


def test_arguments_of_every_type(episode: TwoPhaseEpisode) -> None:
    for value in (None, True, 1, 1.5, "", " ", "cedar ", [], {}, ["cedar"], "x" * 5000, "\u0000"):
        for name, argument in (("plan", "choice"), ("do", "action")):
            step = episode.step(render_call(name, {argument: value}))
            assert step.result.error in {"wrong_type", "unknown_option", "invalid_value", "episode_over"}


def test_a_task_of_another_environment_is_refused(environment: TwoPhaseEnvironment) -> None:
    with pytest.raises(UserError, match="of environment 'analyst'"):
        environment.reset(replace(TASK, environment="analyst"), seed=0)


def test_siblings_share_nothing(environment: TwoPhaseEnvironment) -> None:
    one, other = environment.reset(TASK, seed=0), environment.reset(TASK, seed=0)
    say(one, "plan", choice="amber")
    assert other.phase == "plan"
    assert say(other, "plan", choice="cedar").endswith("gate shut")
