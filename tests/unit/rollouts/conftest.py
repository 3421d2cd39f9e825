"""A small real environment, and small policies that have learned nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import transformers

from geartrain.config import TinyModel
from geartrain.environments.environment import Episode, Step, Task, ToolSpec, Verdict
from geartrain.models.backbone import Policy, build_policy, without_dropout
from geartrain.models.chat import chat_format
from geartrain.models.tokenizer import train_tokenizer
from geartrain.rollouts.collect import EpisodeRequest
from geartrain.trajectory import ToolCall, ToolResult

RULES = "Count to the target. Every message adds its length modulo 5 to the total. " + "Be quick and be right. " * 3


@dataclass
class CountingEpisode:
    """The total grows by the length of what the agent says; a message without a letter or digit first is an error."""

    task: Task
    start: int
    broken: bool = False
    total: int = 0
    messages: list[str] = field(default_factory=list)
    closed: bool = False

    def opening(self) -> list[dict[str, str]]:
        target = f"{self.task.prompt} You start at {self.start}."
        return [{"role": "system", "content": RULES}, {"role": "user", "content": target}]

    def step(self, message: str) -> Step:
        if self.broken and len(self.messages) == 1:
            raise RuntimeError("the world fell apart")
        self.messages.append(message)
        if not message[:1].isalnum():
            return Step(None, ToolResult("not a number", error="invalid_call", position=0), (), done=False)
        amount = len(message) % 5
        self.total += amount
        reached = self.total >= int(self.task.spec["target"])
        content = f"total is {self.start + self.total}" + " and so on" * amount
        return Step(
            ToolCall("add", {"amount": amount}), ToolResult(content), ("there",) if reached else (), done=reached
        )

    def verdict(self) -> Verdict:
        return Verdict(success=self.total == self.task.spec["target"], subgoals={"there": self.total > 0})

    def close(self) -> None:
        self.closed = True


@dataclass
class CountingGame:
    """Remembers its episodes, so that tests can look at them."""

    name: str = "counting"
    broken: frozenset[str] = frozenset()
    episodes: list[CountingEpisode] = field(default_factory=list)
    seeds: dict[str, set[int]] = field(default_factory=dict)

    def tools(self) -> Sequence[ToolSpec]:
        return ()

    def build_tasks(self, *, seed: int, sizes: Mapping[str, int], on_task: object = None) -> dict[str, list[Task]]:
        return {split: [self.task(index, split) for index in range(size)] for split, size in sizes.items()}

    def task(self, index: int, split: str = "train") -> Task:
        return Task(
            task_id=f"count-{index}",
            environment=self.name,
            family="count",
            split=split,
            prompt=f"Task {index}: count to {6 + index % 5}." + " Take care." * (index % 4),
            world="",
            necessary_steps=2,
            spec={"target": 6 + index % 5},
        )

    def reset(self, task: Task, *, seed: int) -> Episode:
        self.seeds.setdefault(task.task_id, set()).add(seed)
        episode = CountingEpisode(task, start=seed % 1000, broken=task.task_id in self.broken)
        self.episodes.append(episode)
        return episode

    def expert(self, task: Task, *, seed: int, flawed: bool) -> Any:
        raise NotImplementedError


@pytest.fixture
def game() -> CountingGame:
    return CountingGame()


@pytest.fixture
def make_requests():
    def make(game: CountingGame, tasks: int, siblings: int) -> list[EpisodeRequest]:
        return [EpisodeRequest(game.task(t), s, f"row-{t}") for t in range(tasks) for s in range(siblings)]

    return make


CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def untrained(kind: str) -> Policy:
    """A random model that is sharper than a fresh one and whose messages end now and then."""
    texts = [RULES, "user system assistant tool not a number total is and so on Task count to You start at"] * 20
    tokenizer = train_tokenizer(texts, vocabulary=330)
    policy = build_policy(tokenizer, TinyModel(vocabulary=330, hidden=32, layers=2, heads=2, context=512), seed=3)
    size = {"vocab_size": len(policy.tokenizer), "eos_token_id": policy.chat.end_id, "bos_token_id": None}
    torch.manual_seed(7)
    if kind == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=512, **size)
        policy = replace(policy, model=transformers.GPT2LMHeadModel(config))
    if kind == "grouped":
        shape = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **shape, **size))
        tokenizer = policy.tokenizer
        tokenizer.chat_template, tokenizer.pad_token = CHATML, tokenizer.eos_token  # the awkward kind: pad == eos
        policy = Policy(model, tokenizer, chat_format(tokenizer, "chatml"))
    head = torch.nn.Linear(32, size["vocab_size"])
    with torch.no_grad():
        weight = policy.model.get_input_embeddings().weight
        weight.mul_(0.12 / weight.std())
        head.weight.copy_(weight)
        head.bias.zero_()
        head.bias[policy.chat.end_id] = 3.0
    policy.model.lm_head = head
    return replace(policy, model=without_dropout(policy.model).eval())


@pytest.fixture(scope="session", params=["llama", "gpt2", "grouped"])
def policy(request: pytest.FixtureRequest) -> Policy:
    return untrained(request.param)


@pytest.fixture(scope="session")
def llama() -> Policy:
    return untrained("llama")
