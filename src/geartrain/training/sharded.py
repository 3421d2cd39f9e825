"""An engine whose optimiser, gradients and weights may lie in parts on several ranks: DeepSpeed's ZeRO 0 to 3.

Losses reach `backward` as in `engine.Engine`: sums over the own share, divided
by the denominator of the whole step. DeepSpeed averages over ranks, so each is
multiplied by their number.

What ZeRO asks for, and the loop keeps: all ranks run as many micro-batches, and
ask for the output layer equally often, since parts are gathered when they are
used (`lockstep`).

Under ZeRO 3 the policy that plays is a whole copy, renewed once after each
update: to gather weights per sampled token would cost more than the token.

The one importer of deepspeed. Nothing is compiled at run time: its
shared-memory kernel is turned off (gloo and NCCL do without).
"""

import copy
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from geartrain import logs
from geartrain.errors import UserError
from geartrain.models.backbone import TokenScores, token_logprobs
from geartrain.placement import collectives, device_of
from geartrain.policy_section import ShardingSection
from geartrain.ranks import Ranks
from geartrain.training.engine import Piece, Schedule, StepReport, learning_rate_at

T = TypeVar("T")
SHARDS = "shards"


class _Scorer(torch.nn.Module):
    """What ZeRO 3 sees as one forward pass: it gathers the parts of what lies below this module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids_BT: Tensor, attention_BT: Tensor, options: dict[str, Any]) -> tuple[Tensor | None, ...]:
        scores = token_logprobs(self.model, ids_BT, attention_BT, **options)
        return scores.logprob_BT, scores.entropy_BT, scores.hidden_BTH, scores.top_BTK, scores.support_BTK, scores.kl_BT


class ShardedEngine:
    """AdamW under ZeRO; see `policy_engine.PolicyEngine` for what each method promises."""

    lockstep = True

    def __init__(
        self,
        model: Any,
        section: ShardingSection,
        ranks: Ranks,
        *,
        learning_rate: float,
        total_steps: int,
        gradient_clip: float,
        warmup_steps: int,
        schedule: Schedule,
        betas: tuple[float, float],
        epsilon: float,
    ) -> None:
        """Take over `model`, whose trained parameters are those that require a gradient.

        Raises:
            UserError: deepspeed is not installed.
        """
        deepspeed = _deepspeed(device_of(model))
        _meet(deepspeed, device_of(model))
        self._deepspeed, self._section, self._ranks, self._player = deepspeed, section, ranks, model
        self._learning_rate, self._total_steps = learning_rate, total_steps
        self._warmup_steps, self._schedule = warmup_steps, schedule
        own = copy.deepcopy(model) if section.zero == 3 else model
        if section.recompute:
            own.gradient_checkpointing_enable({"use_reentrant": False})
            own.train()  # dropout is 0: a policy that is trained differs from one that plays in memory alone
        trained = [parameter for parameter in own.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=learning_rate, betas=betas, eps=epsilon, weight_decay=0.0)
        self._norm: float | None = None
        if section.zero == 0:  # it would clip without saying how long the gradient was

            def clip(*_: Any) -> None:
                self._norm = float(torch.nn.utils.clip_grad_norm_(trained, gradient_clip))

            optimizer.register_step_pre_hook(clip)
        self._engine, *_ = deepspeed.initialize(
            model=_Scorer(own), optimizer=optimizer, config=_settings(section, gradient_clip)
        )
        self._loss, self._finite = 0.0, True
        self.steps = 0

    def score(self, ids_BT: Tensor, attention_BT: Tensor, **options: Any) -> TokenScores:
        """Score tokens with the weights that are trained; see `models.scoring.token_logprobs`."""
        logprob_BT, *others = self._engine(ids_BT, attention_BT, options)
        return TokenScores(logprob_BT, *others)

    def accumulate(self, pieces: Iterable[Piece[T]], *, workers: int = 1) -> Iterator[T]:
        """Add the gradients of micro-batches, one after the other; `workers` does not count here."""
        for piece in pieces:
            loss, product = piece()
            value = float(loss.detach())
            self._loss += value
            self._finite = self._finite and math.isfinite(value)
            self._engine.backward(loss * self._ranks.size)
            yield product

    def step(self) -> StepReport:
        """Clip, update, clear.

        Raises:
            UserError: the loss of a rank, or the gradient, is not finite.
        """
        numbers = torch.tensor([self._loss if self._finite else 0.0, float(not self._finite)], dtype=torch.float64)
        self._ranks.add(numbers)
        if float(numbers[1]):
            self._refuse("loss")
        rate = learning_rate_at(
            self.steps,
            peak=self._learning_rate,
            total_steps=self._total_steps,
            warmup_steps=self._warmup_steps,
            schedule=self._schedule,
        )
        for group in self._engine.optimizer.param_groups:
            group["lr"] = rate
        self._engine.step()
        norm = float(self._engine.get_global_grad_norm() if self._norm is None else self._norm)
        if not math.isfinite(norm):
            self._refuse("gradient")
        self.steps += 1
        self._loss, self._finite = 0.0, True
        return StepReport(norm, rate, float(numbers[0]), False)

    @torch.no_grad()
    def publish(self) -> None:
        """Give the policy that plays the weights that were trained; whole, once per update."""
        if self._section.zero != 3:
            return
        own = dict(self._engine.module.model.named_parameters())
        for name, played in self._player.named_parameters():
            with self._deepspeed.zero.GatheredParameters([own[name]]):
                played.copy_(own[name])

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        """Write this rank's part below `folder`, which all ranks share; return what finds it again."""
        tag = f"{step:09d}"
        target = folder / SHARDS
        self._engine.save_checkpoint(str(target), tag=tag, save_latest=False)
        self._ranks.gather(None)  # all parts are there before anything speaks of them
        return {"shards": tag, "world": self._ranks.size, "zero": self._section.zero, "steps": self.steps}

    def prune(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Remove the parts of older checkpoints, once the one of `state` is safe."""
        for old in (folder / SHARDS).iterdir() if self._ranks.leads else ():
            if old.is_dir() and old.name != state["shards"]:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Continue from what `save` returned.

        Raises:
            UserError: it was written by another number of ranks, or under another stage of ZeRO.
        """
        mine = {"world": self._ranks.size, "zero": self._section.zero}
        theirs = {name: state.get(name) for name in mine}
        if theirs != mine:
            raise UserError(
                f"{folder}: the checkpoint is of {theirs['world']} rank(s) under ZeRO {theirs['zero']}, this run has "
                f"{mine['world']} under ZeRO {mine['zero']}. Go on with as many ranks and policy.sharding.zero as they "
                "were, or move the folder away to start the stage anew."
            )
        self._engine.load_checkpoint(str(folder / SHARDS), tag=state["shards"])
        self.steps = int(state["steps"])

    def _refuse(self, what: str) -> None:
        raise UserError(
            f"training diverged: the {what} of optimiser step {self.steps + 1} is not finite. Lower the section's "
            "learning_rate; the last checkpoint is intact."
        )


def _settings(section: ShardingSection, gradient_clip: float) -> dict[str, Any]:
    zero: dict[str, Any] = {"stage": section.zero}
    if section.offload and section.zero:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": 1,  # counts nothing here: losses come divided
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,  # `step` is the boundary
        "gradient_clipping": gradient_clip if section.zero else 0.0,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": section.precision == "bfloat16"},
    }


def _deepspeed(device: torch.device) -> Any:
    os.environ.setdefault("DS_ACCELERATOR", device.type)  # else it takes a GPU that it finds
    try:
        import deepspeed
        import deepspeed.ops
    except ImportError as error:
        raise UserError(
            "policy.sharding needs deepspeed, which is not installed. `make nodes` adds it beside .venv."
        ) from error
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if logs.says_json():
        logs.adopt("DeepSpeed")
    return deepspeed


def _meet(deepspeed: Any, device: torch.device) -> None:
    """Start torch.distributed for one rank alone too: DeepSpeed does nothing without."""
    if not torch.distributed.is_initialized():
        os.environ.setdefault("LOCAL_RANK", "0")  # what torchrun would have said; DeepSpeed insists
        alone: Any = torch.distributed.HashStore()  # type: ignore[attr-defined]
        torch.distributed.init_process_group(collectives(device), store=alone, rank=0, world_size=1)
    deepspeed.init_distributed(dist_backend=torch.distributed.get_backend())
