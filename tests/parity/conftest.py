"""One ragged batch that every comparison uses, and the peers themselves.

Nothing here may import from `tests`: verl's wheel brings a package of that name.

Legend: B rows, T positions; position t of every tensor speaks of token t.
"""

import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

CLIP_LOW, CLIP_HIGH = 0.2, 0.28
LIMIT = 16
"""Longest allowed completion: longer than any row, so that it is no length of the batch by accident."""


@dataclass(frozen=True)
class Ragged:
    """Rows of 11, 7, 1, 9, 4 and 11 tokens in float64; rows 0 and 3 hold two and three turns, row 5 may be masked."""

    logprob_BT: Tensor
    behaviour_BT: Tensor
    reference_BT: Tensor
    advantage_B: Tensor
    completion_BT: Tensor
    """int64, 1 where a token is: what a peer calls completion mask or attention mask."""
    tool_BT: Tensor
    """int64, 0 where a tool spoke."""

    @property
    def mask(self) -> Tensor:
        """Bool [B, T], trained positions."""
        return (self.completion_BT * self.tool_BT).bool()

    @property
    def advantage(self) -> Tensor:
        """[B, T]: one advantage per row, at every position."""
        return self.advantage_B[:, None].expand(self.logprob_BT.shape)

    @property
    def tokens(self) -> int:
        """Trained tokens."""
        return int(self.mask.sum())

    def rows(self, chosen: slice) -> "Ragged":
        """Return some rows, as a micro-batch holds them."""
        return Ragged(**{name: value[chosen] for name, value in vars(self).items()})


def make_batch(*, masked_row: bool) -> Ragged:
    """Return the batch; what lies at positions that nobody may look at is finite, and large."""
    generator = torch.Generator().manual_seed(6)
    shape = (6, 11)
    completion_BT = (torch.arange(11) < torch.tensor([11, 7, 1, 9, 4, 11])[:, None]).long()
    tool_BT = torch.ones(shape, dtype=torch.int64)
    tool_BT[0, 3:6] = tool_BT[3, 1:4] = tool_BT[3, 6] = 0
    if masked_row:
        tool_BT[5] = 0
    mask_BT = (completion_BT * tool_BT).bool()

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(shape, generator=generator, dtype=torch.float64)

    logprob_BT = -noise(1.5).abs()
    behaviour_BT = torch.where(mask_BT, logprob_BT + noise(0.4), logprob_BT + 3.0)
    reference_BT = torch.where(mask_BT, logprob_BT + noise(0.4), logprob_BT - 3.0)
    advantage_B = torch.tensor([1.3, -0.7, 0.4, -1.1, 0.9, -0.5], dtype=torch.float64)
    return Ragged(logprob_BT, behaviour_BT, reference_BT, advantage_B, completion_BT, tool_BT)


@pytest.fixture(params=[False, True], ids=["every-row-trains", "one-row-masked"])
def batch(request: pytest.FixtureRequest) -> Ragged:
    return make_batch(masked_row=request.param)


@pytest.fixture
def full_batch() -> Ragged:
    return make_batch(masked_row=False)


@pytest.fixture
def batch_with_masked_row() -> Ragged:
    return make_batch(masked_row=True)


@pytest.fixture
def value_and_gradient() -> Callable[[Callable[[Tensor], Tensor], Tensor], tuple[Tensor, Tensor]]:
    def measure(loss: Callable[[Tensor], Tensor], logprob_BT: Tensor) -> tuple[Tensor, Tensor]:
        leaf_BT = logprob_BT.detach().clone().requires_grad_()
        value = loss(leaf_BT)
        (gradient_BT,) = torch.autograd.grad(value, leaf_BT)
        return value.detach(), gradient_BT

    return measure


@pytest.fixture(scope="session")
def core_algos() -> Any:
    """verl's `trainer/ppo/core_algos.py`, from the wheel.

    On the way verl imports ray (201 MB), of which it needs one name, for annotations: an empty module with that
    name stands in for it, and whatever else verl asked of it would raise.
    """
    if "ray" not in sys.modules:
        sys.modules["ray"] = types.ModuleType("ray")
        sys.modules["ray"].ObjectRef = type("ObjectRef", (), {})
    from verl.trainer.ppo import core_algos

    return core_algos


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random Llama of one layer and 32 words, for trainers that must have one."""
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model")
    words = {"<pad>": 0, "<eos>": 1, **{f"w{index}": index for index in range(2, 32)}}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")),
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<pad>",
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def make_trainer(tiny_model: Path, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that constructs TRL's GRPOTrainer, in training mode, and trains nothing."""

    def make(*, accumulation: int = 1, rows: int = 6, rewards: Any = None, rollout: Any = None, **settings: Any) -> Any:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)  # TRL sets a field that transformers renamed
            warnings.filterwarnings("ignore", category=UserWarning, message=".*rollout_func.*experimental")
            arguments = GRPOConfig(
                output_dir=str(tmp_path),
                use_cpu=True,
                bf16=False,
                report_to=[],
                per_device_train_batch_size=rows // accumulation,
                gradient_accumulation_steps=accumulation,
                max_completion_length=LIMIT,
                **{"num_generations": 3, "beta": 0.0, "epsilon": CLIP_LOW, "epsilon_high": CLIP_HIGH, **settings},
            )
            trainer = GRPOTrainer(
                model=str(tiny_model),
                reward_funcs=rewards or (lambda completions, **rest: [0.0] * len(completions)),
                args=arguments,
                train_dataset=Dataset.from_dict({"prompt": ["w2 w3"] * rows}),
                rollout_func=rollout,
            )
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = accumulation  # the training loop would set it
        return trainer

    return make
