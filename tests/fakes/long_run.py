"""A long training that nobody ran: its live record and its episodes, by the writers that a real one uses."""

import json
import math
import random
import time
from collections import Counter
from pathlib import Path

import yaml

from geartrain import live
from geartrain.algorithms.recipe import RECIPES
from geartrain.credit_table import FOLDER
from geartrain.methods import settings_of
from geartrain.training.credit import CreditAssigner
from geartrain.training.in_flight import InFlight
from geartrain.training.lesson import Pooled, describe_lesson, select_lesson
from geartrain.training.recorder import Recorder
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn

RECIPE = "fixed_weights"
FAMILIES = ("comparison", "drill_down", "ranking", "series", "share", "two_reports")
KEY = "7a" * 32
HOSTILE = "<img src=x onerror=alert(1)> \u202edetrever </script><script>document.title='owned'</script>"
"""What a model may say; in the first turn of the first sibling."""
PROFILE = Path(__file__).parents[2] / "profiles/smoke.yaml"


def write_long_run(
    folder, *, iterations, tasks=10, siblings=5, seed=0, ended=None, recipe=RECIPE, rise=1.0, distinct=None
):
    """Write a workspace with a `policy` of so many iterations, `tasks * siblings` episodes each; `ended` is how.

    With `distinct` the episodes of so many iterations are played again and again, which is quicker to write.
    """
    distinct = distinct or iterations
    folder.mkdir(parents=True)
    record = yaml.safe_load(PROFILE.read_text())
    record["seed"], record["policy"]["recipe"] = seed, recipe
    (folder / "params.yaml").write_text(yaml.safe_dump(record, sort_keys=False))
    path = folder / ".geartrain" / live.FOLDER / f"policy-{KEY[:16]}.jsonl"
    assigner = CreditAssigner(
        RECIPES[RECIPE], settings_of(RECIPE, {}), critic=None, width=8, iterations=iterations, seed=0
    )
    known: dict[int, tuple[list, list]] = {}
    flight = InFlight(folder / ".geartrain" / "work" / path.stem)
    recorder = Recorder(path.with_suffix("") / FOLDER, megabytes=10_000, grains=tuple(RECIPES[RECIPE].grains))
    parameters = {name: record[name] for name in ("seed", "threads", "model", "environment", "policy")}
    with live.telling(path, stage="policy", key=KEY, pid=1, parameters=parameters) as ending:
        for index in range(iterations):
            rng = random.Random(f"{seed} {index}")
            share = rise * (1 - math.exp(-3 * index / iterations))
            if index < distinct:
                known[index] = _episodes(rng, share, tasks, siblings, index)
                flight.write(index, 0, known[index][0])
            played, rewards = known[index % distinct]
            scored = Pooled(rewards, played, Counter())
            lesson = select_lesson(scored, RECIPES[RECIPE].advantage)
            summary = {}
            if lesson.trajectories:
                batch = assigner.assign(lesson, None)
                recorder.credited(batch)
                summary = assigner.summary(batch)
            recorder.write(index, flight.rounds(index % distinct), scored, lesson)
            line = {**_numbers(rng, share, index), **describe_lesson(scored, lesson), **summary}
            line["success"] = sum(t.success for t in played) / len(played)
            seconds, tokens = {"play": 3 + rng.random(), "train": 2 + rng.random()}, {"played": 9000, "trained": 7000}
            live.emit("iteration", index=index, seconds=seconds, tokens=tokens, record=line)
            live.emit("progress", label="policy", done=index + 1, total=iterations, status="success 0.41")
        flight.forget(but=iterations)
        live.emit("checkpoint", step=iterations, seconds=0.1)
        ending["metrics"] = {}
    if ended is None:  # it is at work still
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:-1]))
    elif ended != "complete":
        _end_otherwise(path, ended)
    return folder


def _end_otherwise(path, ended):
    lines = path.read_text().splitlines(keepends=True)
    told = {"time": time.time(), "kind": "end", "outcome": ended, "reason": "the loss is <not> finite"}
    path.write_text("".join(lines[:-1]) + json.dumps(told) + "\n")


def _numbers(rng, share, index):
    noise = [rng.gauss(0, 1) for _ in range(12)]
    record = {
        "iteration": index,
        "kl": 0.002 + 0.045 * share + 0.002 * abs(noise[0]),
        "entropy": 0.21 - 0.09 * share + 0.006 * noise[1],
        "clip_fraction": 0.012 + 0.004 * abs(noise[2]),
        "gradient_norm": 0.42 + 0.12 * abs(noise[3]),
        "invalid_calls": max(0.0, 0.071 - 0.05 * share + 0.004 * noise[4]),
        "turns": 8.9 - 1.1 * share + 0.1 * noise[5],
        "mismatch": 2e-6 * abs(noise[6]),
        "zero_tool_share": 0.0,
        "learning_rate": 3e-4 * (1 - 0.9 * share),
        "alarms": ["entropy: fell to a tenth of what it was <b>at first</b>"] if index % 500 == 499 else [],
    }
    if index % 5 == 4:
        record |= {"val_sampled": 0.33 + 0.26 * share + 0.01 * noise[7], "val_greedy": 0.37 + 0.27 * share}
    return record | ({"start_val_sampled": 0.32, "start_val_greedy": 0.35} if index == 0 else {})


def _episodes(rng, share, tasks, siblings, index):
    played, rewards = [], []
    for task in range(tasks):
        number = rng.randrange(400)
        name, family = f"train-{number:04d}", FAMILIES[number % len(FAMILIES)]
        for sibling in range(siblings):
            success = rng.random() < 0.3 + 0.4 * share
            progress = 1.0 if success else rng.randrange(4) / 4
            turns = [_turn(rng, place, index == task == sibling == 0) for place in range(rng.randint(3, 7))]
            told = Trajectory(
                name, family, f"{name}#{task}", sibling, number, index, 0.7, turns, success, progress, "finished",
                {"verified": float(success), "learned": rng.gauss(0, 1)},
            )  # fmt: skip
            played.append(told)
            rewards.append(float(success) or 0.2 * progress)
    return played, rewards


def _turn(rng, place, hostile):
    action = [rng.randrange(10, 4000) for _ in range(rng.randint(12, 24))]
    prompt = [rng.randrange(10, 4000) for _ in range(30 if place else 120)]
    logprobs = [-rng.random() for _ in action]
    call = ToolCall("query_database", {"sql": f"SELECT country, SUM(total) FROM invoice LIMIT {rng.randint(1, 9)}"})
    text = json.dumps({"name": call.name, "arguments": dict(call.arguments)})
    failed = rng.random() < 0.1
    result = ToolResult("no q7 here", "unknown_result", 3) if failed else ToolResult("q1: USA|148.2; Canada|91.0")
    if hostile and place == 0:
        text, result = HOSTILE, ToolResult(HOSTILE)
    reward = 0.25 * (rng.random() < 0.4) - 0.1 * failed
    token_rewards = [-1.0 if failed and not at else 0.0 for at in range(len(action))]
    goals = ("queried",) if place == 1 else ()
    return Turn(prompt, action, logprobs, text, call, result, goals, reward, token_rewards, [0.2] * len(action))
