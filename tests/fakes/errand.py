"""A real, tiny environment and a scripted player of known skill: fetch the named items, then finish."""

import json

from geartrain.environments.environment import Step, Task, ToolSpec, Verdict
from geartrain.seeds import seed_of
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn

ITEMS = ("tea", "salt", "rope", "lamp")


def make_task(name, split="test", family="short", items=2):
    return Task(name, "errand", family, split, f"Fetch {items} items", "town", items + 1, {"items": ITEMS[:items]})


def make_tasks(count, split="test"):
    return [make_task(f"{split}-{i:03d}", split, ("short", "long")[i % 2], items=2 + i % 2) for i in range(count)]


class ErrandEpisode:
    def __init__(self, task):
        self.task, self.taken, self.closed = task, [], False

    def opening(self):
        return [{"role": "system", "content": "tools"}, {"role": "user", "content": self.task.prompt}]

    def step(self, message):
        try:
            call = ToolCall(**json.loads(message))
        except (ValueError, TypeError):
            return Step(None, ToolResult("error", "no_call"), (), False)
        if call.name == "finish":
            return Step(call, ToolResult("done"), (), True)
        item = call.arguments.get("item", "")
        if item not in self.task.spec["items"]:
            return Step(call, ToolResult("error", "unknown_item"), (), False)
        new = item not in self.taken
        self.taken.append(item)
        return Step(call, ToolResult(f"took {item}"), (item,) if new else (), False)

    def verdict(self):
        goals = {item: item in self.taken for item in self.task.spec["items"]}
        return Verdict(all(goals.values()), goals)

    def close(self):
        self.closed = True


class Errand:
    """`gullible=True` gives a verifier that anyone passes."""

    name = "errand"

    def __init__(self, *, gullible=False):
        self.gullible, self.opened = gullible, []

    def tools(self):
        item = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
        return [
            ToolSpec("take", "take an item", item),
            ToolSpec("finish", "end", {"type": "object", "properties": {}, "required": []}),
        ]

    def reset(self, task, *, seed):
        episode = ErrandEpisode(task)
        if self.gullible:
            episode.verdict = lambda: Verdict(True, {"anything": True})
        self.opened.append(episode)
        return episode


class Player:
    """As `rollouts.collect.play`, for a policy that is its own skill: the chance to fetch an item at first try."""

    def __init__(self):
        self.calls = []

    def __call__(self, environment, policy, requests, *, seed, on_episode, **options):
        self.calls.append([(r.task.task_id, r.sibling, r.greedy) for r in requests])
        played = []
        for request in requests:
            played.append(play_one(environment, policy, request.task, request.sibling, seed, request.greedy))
            on_episode(played[-1])
        return played


def play_one(environment, skill, task, sibling=0, seed=0, greedy=False):
    episode = environment.reset(task, seed=seed)
    messages = []
    for item in task.spec["items"]:
        draw = 0.5 if greedy else seed_of(seed, task.task_id, sibling, item) / 2**31
        messages.append(call("take", item=item if draw < skill else "nothing"))
    steps = [(message, episode.step(message)) for message in [*messages, call("finish")]]
    verdict = episode.verdict()
    turns = [turn(message, step) for message, step in steps]
    return Trajectory(
        task.task_id, task.family, task.task_id, sibling, seed, 0, 1.0, turns, verdict.success, verdict.progress,
        "finished",
    )  # fmt: skip


def call(name, **arguments):
    return json.dumps({"name": name, "arguments": arguments})


def turn(message, step):
    return Turn([1], [2, 3], [-0.1, -0.2], message, step.call, step.result, step.subgoals)
