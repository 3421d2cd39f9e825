"""A real, tiny environment in which one may look first or guess at once, and a policy whom a hint makes guess.

A message whose first character has an even code looks; whatever is said after looking is right. Any other message
answers at once: a guess, which is right in three episodes out of four.
"""

import torch

from geartrain.environments.environment import Step, Verdict
from geartrain.models.backbone import token_logprobs
from geartrain.rollouts.collect import Limits, play
from geartrain.trajectory import ToolCall, ToolResult
from tests.fakes.parity import make_policy, make_tasks

LOOK, GUESS = "b", "a"
ANSWER = "0 1 2 3 4 5 6 7 8 9"


class GuessingEpisode:
    def __init__(self, task, lucky):
        self.task, self.lucky, self.looked, self.won = task, lucky, False, False

    def opening(self):
        return [{"role": "system", "content": "even"}, {"role": "user", "content": self.task.prompt}]

    def step(self, message):
        if not self.looked and message and ord(message[0]) % 2 == 0:
            self.looked = True
            return Step(ToolCall("look", {}), ToolResult("right"), (), False)
        self.won = self.looked or self.lucky
        return Step(ToolCall("answer", {}), ToolResult("right"), ("answer",) if self.won else (), True)

    def verdict(self):
        return Verdict(self.won, {"answer": self.won})

    def close(self):
        pass


class Guessing:
    name = "guessing"
    episodes = 0

    def tools(self):
        return []

    def reset(self, task, *, seed):
        self.episodes += 1
        return GuessingEpisode(task, self.episodes % 4 != 0)

    def answer(self, task):
        return ANSWER

    def describe_phases(self, trajectories, tasks, *, horizon):
        return {}


class GuessingPlayers:
    def __init__(self, config):
        self.config = config

    def play(self, policy, requests, *, on_progress=lambda done: None, **options):
        options["on_episode"] = lambda _: on_progress(1)
        return play(Guessing(), policy, requests, limits=Limits.of(self.config), **options)


def make_guesser(steps=150):
    """Return a policy that looks every second time, and hardly ever once it has read the answer; and its last loss."""
    policy = make_policy()
    look, guess = (policy.tokenizer.encode(text)[0] for text in (LOOK, GUESS))
    rows = []
    for task in make_tasks(7) + make_tasks(4, "val"):
        system, user = GuessingEpisode(task, True).opening()
        told = {**user, "content": f"{user['content']}\n{ANSWER}"}
        rows += [[*policy.chat.opening_ids([system, user]), action] for action in (look, guess)]
        rows += [[*policy.chat.opening_ids([system, told]), guess]] * 2
    width = max(map(len, rows))
    ids_BT = torch.tensor([[0] * (width - len(row)) + row for row in rows])
    attention_BT = torch.tensor([[False] * (width - len(row)) + [True] * len(row) for row in rows])
    where_BT = torch.zeros_like(attention_BT)
    where_BT[:, -1] = True
    optimizer = torch.optim.Adam(policy.model.parameters(), lr=1e-2)
    for _ in range(steps):
        scored = token_logprobs(policy.model, ids_BT, attention_BT, temperature=1.0, where_BT=where_BT)
        loss = -scored.logprob_BT[:, -1].mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return policy, float(loss.detach())
