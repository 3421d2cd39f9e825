"""How fast episodes are sampled, against `generate()` of transformers on the same episodes.

One thread, CPU seconds, a Llama of the demo's size that has learned nothing, and
a scripted environment whose answers cost nothing. Messages, answers and episodes
vary in length about the given means, as real ones do. `generate()` plays turns of
the same kind: the whole batch at once, left-padded, the conversation so far
encoded anew for every turn. The default sizes are those of the demo
environment's demonstrations.
"""

import argparse
import math
import random
import time
from dataclasses import dataclass
from typing import Any

import torch

from geartrain.config import TinyModel
from geartrain.environments.environment import Step, Task, Verdict
from geartrain.models.backbone import Policy, build_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.schema import SamplingSection
from geartrain.trajectory import ToolResult


def words(count: int, seed: int) -> str:
    """Return text of about `count` tokens: one-letter words are one token each."""
    rng = random.Random(seed)
    return " ".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(count))


@dataclass
class Scripted:
    """Environment and episode in one: fixed texts, `turns` answers."""

    options: argparse.Namespace
    task: Any = None
    done: int = 0
    last: int = 0
    name: str = "scripted"

    def reset(self, task: Task, *, seed: int) -> "Scripted":
        return Scripted(self.options, task)

    def opening(self) -> list[dict[str, str]]:
        system, user = words(self.options.system, 0), words(self.options.task, int(self.task.task_id[1:]))
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def step(self, message: str) -> Step:
        self.done += 1
        rng = random.Random(f"{self.task.task_id} {self.done} {message}")
        if self.done == 1:
            self.last = round(self.options.turns * rng.uniform(0.5, 1.5))
        size = round(self.options.observation * rng.uniform(0.3, 1.7))
        return Step(None, ToolResult(words(size, self.done)), (), done=self.done >= self.last)

    def verdict(self) -> Verdict:
        return Verdict(success=False, subgoals={})

    def close(self) -> None: ...


def measure(action: Any) -> tuple[Any, float]:
    started = time.process_time()
    result = action()
    return result, time.process_time() - started


def ours(policy: Policy, options: argparse.Namespace) -> str:
    groups = options.episodes // options.siblings
    tasks = [Task(f"t{i}", "scripted", "f", "train", "", "", 1) for i in range(groups)]
    requests = [EpisodeRequest(task, s, task.task_id) for task in tasks for s in range(options.siblings)]
    trajectories, seconds = measure(
        lambda: play(
            Scripted(options),  # type: ignore[arg-type]
            policy,
            requests,
            sampling=SamplingSection(temperature=1.0, max_new_tokens=options.message * 4, rows=options.rows),
            limits=Limits(options.context, options.turns * 3),
            seed=0,
            policy_version=0,
        )
    )
    sampled = sum(len(turn.action_ids) for t in trajectories for turn in t.turns)
    lengths = [len(t.token_ids()) for t in trajectories]
    mean = sum(lengths) / len(lengths)
    return f"geartrain   {sampled / seconds:7.0f} tokens/CPU-s   {sampled} sampled, episodes of {mean:.0f} tokens"


def theirs(policy: Policy, options: argparse.Namespace) -> str:
    episodes = [
        Scripted(options, Task(f"t{i // options.siblings}", "", "", "", "", "", 1)) for i in range(options.rows)
    ]
    histories = [policy.chat.opening_ids(episode.opening()) for episode in episodes]
    sampled = 0

    def run() -> None:
        nonlocal sampled
        for _ in range(options.turns):
            longest = max(map(len, histories))
            ids_BT = torch.tensor([[0] * (longest - len(ids)) + ids for ids in histories])
            mask_BT = torch.tensor([[0] * (longest - len(ids)) + [1] * len(ids) for ids in histories])
            output = policy.model.generate(
                ids_BT,
                attention_mask=mask_BT,
                do_sample=True,
                top_k=0,
                max_new_tokens=options.message * 4,
                pad_token_id=0,
                eos_token_id=policy.chat.end_id,
            )
            for row, episode in enumerate(episodes):
                action = output[row, longest:].tolist()
                ended = policy.chat.end_id in action
                action = action[: action.index(policy.chat.end_id) + 1] if ended else action
                sampled += len(action)
                answer = episode.step(policy.chat.action_text(action)).result.content
                histories[row] = [*histories[row], *action, *policy.chat.observation_ids(answer, ended=ended)]

    _, seconds = measure(run)
    return f"generate()  {sampled / seconds:7.0f} tokens/CPU-s   {sampled} sampled"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rows", type=int, default=64, help="episodes at the same time")
    parser.add_argument("--episodes", type=int, default=192, help="episodes in all")
    parser.add_argument("--siblings", type=int, default=8)
    parser.add_argument("--turns", type=int, default=9, help="messages of an episode, about")
    parser.add_argument("--message", type=int, default=17, help="tokens of a message, about")
    parser.add_argument("--observation", type=int, default=16, help="tokens of a tool's answer, about")
    parser.add_argument("--system", type=int, default=230, help="tokens of the system prompt, about")
    parser.add_argument("--task", type=int, default=50, help="tokens of the task, about")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--skip-generate", action="store_true", help="do not run the comparison")
    parser.add_argument("--repeat", type=int, default=1, help="measurements; on a busy machine the best one counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rng = random.Random(0)
    texts = [" ".join("".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(30)) for _ in range(400)]
    tokenizer = train_tokenizer([*texts, words(200, 1), "system user assistant tool " * 50], vocabulary=1024)
    section = TinyModel(hidden=options.hidden, layers=options.layers, heads=options.heads, context=options.context)
    policy = build_policy(tokenizer, section, seed=0)
    head = torch.nn.Linear(options.hidden, len(policy.tokenizer))
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(0.1)  # near-uniform: lengths depend on the bias alone
        head.weight.copy_(policy.model.get_input_embeddings().weight)
        head.bias.zero_()
        head.bias[policy.chat.end_id] = math.log(len(policy.tokenizer) / options.message)
    policy.model.lm_head = head
    for _ in range(options.repeat):
        print(ours(policy, options), flush=True)
        if not options.skip_generate:
            print(theirs(policy, options), flush=True)


if __name__ == "__main__":
    main()
