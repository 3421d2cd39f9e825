"""Episodes of one policy, played by several processes.

The requests are dealt out by group, so that siblings share their opening's
prefill. What an episode becomes does not depend on who plays it, up to the last
bits of sums over batches of another shape; one process gives the same bits on
every run.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from geartrain.config import Config, EnvironmentSection
from geartrain.environments import load_environment
from geartrain.models.backbone import HEAVY, Policy, load_policy
from geartrain.placement import CPU, hands
from geartrain.ranks import deal_whole
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.rollouts.parallel import Crew
from geartrain.trajectory import Trajectory


@dataclass
class Players:
    """A crew that plays; close it. With one thread, one group or a GPU, episodes are played in this process."""

    model: Path
    """Folder of the policy; its weights are replaced by those of the policy that is given."""
    worlds: Path
    config: Config
    """`threads`, `model` and `environment` are read."""
    work: Path
    """Folder for weights on their way to the processes."""
    device: torch.device = CPU
    """Where the policy lies."""
    _crew: Crew = field(init=False)

    def __post_init__(self) -> None:
        workers = hands(self.config.threads, self.device)
        self._crew = Crew(workers, threads=self.config.threads, imports=(__name__, *HEAVY))

    def play(
        self,
        policy: Policy,
        requests: Sequence[EpisodeRequest],
        *,
        on_progress: Callable[[int], Any] = lambda done: None,
        **options: Any,
    ) -> list[Trajectory]:
        """Play every request, as `rollouts.collect.play` with `options`; return trajectories in request order.

        Raises what `play` raises; from another process, UserError or InfrastructureError with the same message.
        """
        shares = [share for share in deal(requests, self._crew.workers) if share]
        if len(shares) < 2:
            return _play(policy, self.worlds, self.config, requests, options, on_progress)
        weights = self.work / f"weights.{os.getpid()}.pt"
        self.work.mkdir(parents=True, exist_ok=True)
        torch.save(policy.model.state_dict(), weights)
        try:
            pieces = [
                (self.model, weights, self.worlds, self.config, [requests[i] for i in share], options)
                for share in shares
            ]
            played = self._crew.run(_play_apart, pieces, on_progress=on_progress)
        finally:
            weights.unlink()
        found = dict(zip(chain.from_iterable(shares), chain.from_iterable(played), strict=True))
        return [found[index] for index in range(len(requests))]

    def close(self) -> None:
        """End the processes."""
        self._crew.close()


def deal(requests: Sequence[EpisodeRequest], hands: int) -> list[list[int]]:
    """Share out the indices of requests, whole groups at a time, so that all have as many steps to play."""
    return deal_whole([r.group_id for r in requests], [r.task.necessary_steps for r in requests], hands)


def _play_apart(model: Path, weights: Path, worlds: Path, config: Config, *rest: Any) -> list[Trajectory]:
    """Play as `_play` does, with weights from a file; runs in a process of the crew."""
    policy = _policy(model, config.model.dtype, config.model.context)
    policy.model.load_state_dict(torch.load(weights, mmap=True, weights_only=True))
    return _play(policy, worlds, config, *rest)


def _play(
    policy: Policy,
    worlds: Path,
    config: Config,
    requests: Sequence[EpisodeRequest],
    options: dict[str, Any],
    on_progress: Callable[[int], Any],
) -> list[Trajectory]:
    return play(
        _environment(worlds, config.environment.model_dump_json()),
        policy,
        requests,
        limits=Limits.of(config),
        on_episode=lambda _: on_progress(1),
        **options,
    )


@lru_cache(maxsize=1)
def _policy(model: Path, dtype: str, context: int) -> Policy:
    return load_policy(model, dtype=dtype, context=context)


@lru_cache(maxsize=1)
def _environment(worlds: Path, section: str) -> Any:
    return load_environment(EnvironmentSection.model_validate_json(section), worlds)
