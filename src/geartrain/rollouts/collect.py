"""Play episodes: many at once, each with its own world, its own randomness and its exact token ids.

Batching is continuous. A row whose message has ended leaves the decode batch;
its environment acts at once, and the answer waits with others until enough of
them can be shown in one forward pass. A finished episode gives its row to the
next request. What an episode becomes depends on the policy and on (seed, group,
task, sibling) alone, never on the batch it ran in.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from geartrain.environments.environment import Environment, Task
from geartrain.errors import InfrastructureError, UserError
from geartrain.models.backbone import Policy
from geartrain.models.chat import common_start
from geartrain.rollouts.cache import Snapshot
from geartrain.rollouts.live import EpisodeRequest, Limits, LiveEpisode, open_episode, world_seed
from geartrain.rollouts.sampler import Sampler, sampling_mode, trajectory_uniforms
from geartrain.schema import SamplingSection
from geartrain.trajectory import Trajectory

__all__ = ["EpisodeError", "EpisodeRequest", "Limits", "play", "world_seed"]

_PREFILL_TOKENS = 8192
"""Tokens of one prefill pass; memory, never the result."""

_PATIENCE = 4
"""A prefill waits until one in so many episodes waits for it: more passes are dearer than a few idle rows."""


class EpisodeError(InfrastructureError):
    """Some episodes broke. The others are in `trajectories`."""

    def __init__(self, message: str, trajectories: list[Trajectory]) -> None:
        super().__init__(message)
        self.trajectories = trajectories


def play(
    environment: Environment,
    policy: Policy,
    requests: Sequence[EpisodeRequest],
    *,
    sampling: SamplingSection,
    limits: Limits,
    seed: int,
    policy_version: int,
    on_episode: Callable[[Trajectory], None] | None = None,
) -> list[Trajectory]:
    """Play every request and return the trajectories in request order.

    `on_episode` is called with each trajectory when it ends (in the order of ending).

    Raises UserError if a task's opening does not fit into the context, EpisodeError if
    the environment raised; either way after all other episodes have been played.
    """
    if not requests:
        return []
    with sampling_mode(policy.model):
        run = _Run(environment, policy, requests, sampling, limits, seed, policy_version, on_episode)
        try:
            run.play()
        finally:
            run.close()
    run.raise_failures()
    return [run.finished[index] for index in range(len(requests))]


@dataclass
class _Chunk:
    """Prompt ids that wait to be shown to `rows`: one row, or siblings with a common opening."""

    rows: list[int]
    ids: list[int]
    group: str | None = None


class _Run:
    """State of one call of `play`."""

    def __init__(
        self,
        environment: Environment,
        policy: Policy,
        requests: Sequence[EpisodeRequest],
        sampling: SamplingSection,
        limits: Limits,
        seed: int,
        policy_version: int,
        on_episode: Callable[[Trajectory], None] | None,
    ) -> None:
        self.environment, self.chat, self.requests = environment, policy.chat, requests
        self.limits, self.seed, self.policy_version = limits, seed, policy_version
        self.temperature, self.on_episode = sampling.temperature, on_episode
        rows = max(1, min(sampling.rows, len(requests)))
        self.sampler = Sampler(
            policy,
            temperature=sampling.temperature,
            max_new_tokens=sampling.max_new_tokens,
            rows=rows,
            context=limits.context,
        )
        self.free = list(range(rows))
        self.live: dict[int, LiveEpisode] = {}
        self.waiting: list[_Chunk] = []
        self.finished: dict[int, Trajectory] = {}
        self.failures: list[tuple[Task, Exception]] = []
        self.next = 0
        self.held: LiveEpisode | None = None
        """An episode whose opening lacks the shared prefix: it starts when the others have ended."""
        self.prefix: list[int] | None = None if self.sampler.packed else []
        """Start of every opening, kept once; None until the first opening is known."""
        self.to_come = Counter(request.group_id for request in requests)
        self.openings: dict[str, tuple[list[int], Snapshot, Tensor]] = {}
        """Groups with siblings to come: opening ids, their cache, the logits after them."""

    def play(self) -> None:
        """Run until every request has been played or has failed."""
        while True:
            self._admit()
            if not self.live:
                return
            waiting = sum(len(chunk.rows) for chunk in self.waiting)
            ready = waiting * _PATIENCE >= len(self.live) or not self.sampler.active.any()
            ended = self._show() if ready else self.sampler.step()
            for row in ended.tolist():
                self._hear(row)

    def close(self) -> None:
        """Release the worlds of episodes that are still live."""
        for live in [*self.live.values(), *([self.held] if self.held else [])]:
            live.close()

    def raise_failures(self) -> None:
        """Raise what went wrong, if anything did."""
        if not self.failures:
            return
        lines = [f"  {task.task_id}: {type(error).__name__}: {error}" for task, error in self.failures[:5]]
        message = f"{len(self.failures)} of {len(self.requests)} episodes broke:\n" + "\n".join(lines)
        if all(isinstance(error, UserError) for _, error in self.failures):
            raise UserError(message) from self.failures[0][1]
        raise EpisodeError(message, list(self.finished.values())) from self.failures[0][1]

    def _admit(self) -> None:
        """Give free rows to the next requests."""
        while self.free and (live := self._next_live()) is not None:
            if not self._fits_prefix(live):
                self.held = live
                return
            row = self.free.pop(0)
            self.live[row] = live
            group, request = live.request.group_id, live.request
            uniforms = trajectory_uniforms(self.seed, group, request.task.task_id, request.sibling, self.limits.context)
            self.sampler.seat(row, uniforms, greedy=request.greedy)
            ids = live.shown[len(self.prefix or ()) :]
            known = next((chunk for chunk in self.waiting if chunk.group == group and chunk.ids == ids), None)
            if known is not None:
                known.rows.append(row)
            elif group in self.openings and self.openings[group][0] == ids:
                self._start_late(row, group)
            else:
                self.waiting.append(_Chunk([row], ids, group))

    def _next_live(self) -> LiveEpisode | None:
        """Open the next episode that can be opened."""
        if self.held is not None:
            live, self.held = self.held, None
            return live
        while self.next < len(self.requests):
            index, request = self.next, self.requests[self.next]
            self.next += 1
            self.to_come[request.group_id] -= 1
            try:
                return open_episode(
                    self.environment, request, index, self.chat, seed=self.seed, context=self.limits.context
                )
            except Exception as error:
                self.failures.append((request.task, error))
        return None

    def _fits_prefix(self, live: LiveEpisode) -> bool:
        """Whether the opening starts with the shared prefix; agrees on a new one when no episode is live."""
        known = self.prefix is not None and live.shown[: len(self.prefix)] == self.prefix
        if self.prefix is not None and known and len(live.shown) > len(self.prefix):
            return True
        if self.live:
            return False
        shared = self.chat.shared_ids(live.messages)
        # never longer than before, so that openings that differ empty the batch a few times at most
        self.prefix = common_start(shared if self.prefix is None else self.prefix, shared)[: len(live.shown) - 1]
        self.openings.clear()
        self.sampler.share(self.prefix)
        return True

    def _start_late(self, row: int, group: str) -> None:
        """Start a sibling from the opening that another one was shown before."""
        _, snapshot, logit_V = self.openings[group]
        self.sampler.restore([row], snapshot)
        if not self.to_come[group]:
            del self.openings[group]
        for ended in self.sampler.begin([row], logit_V[None]).tolist():
            self._hear(ended)

    def _show(self) -> np.ndarray:
        """Show waiting rows their prompts in one pass and draw their first tokens."""
        chunks: list[_Chunk] = []
        budget = _PREFILL_TOKENS
        while self.waiting and (not chunks or len(self.waiting[0].ids) <= budget):
            chunks.append(self.waiting.pop(0))
            budget -= len(chunks[-1].ids)
        logit_SV = self.sampler.prefill([(chunk.rows[0], chunk.ids) for chunk in chunks])
        rows, source = [], []
        for index, chunk in enumerate(chunks):
            rows += chunk.rows
            source += [index] * len(chunk.rows)
            to_come = bool(chunk.group and self.to_come[chunk.group])
            if len(chunk.rows) > 1 or to_come:
                snapshot = self.sampler.snapshot(chunk.rows[0])
                if len(chunk.rows) > 1:
                    self.sampler.restore(chunk.rows[1:], snapshot)
                if chunk.group and to_come:
                    self.openings[chunk.group] = (chunk.ids, snapshot, logit_SV[index].clone())
        spread = logit_SV if len(rows) == len(chunks) else logit_SV[torch.tensor(source, device=logit_SV.device)]
        return self.sampler.begin(rows, spread)

    def _hear(self, row: int) -> None:
        """Give a row's message to its environment; queue the answer, or end the episode."""
        live = self.live[row]
        ids, logprobs, entropies = self.sampler.message(row)
        assert self.sampler.total(row) == live.tokens + len(ids), "the cache must hold exactly the episode's tokens"
        try:
            end = live.hear(ids, logprobs, entropies, self.chat, limits=self.limits)
            if end is None:
                self.waiting.append(_Chunk([row], live.shown))
                return
            trajectory = live.judge(end, policy_version=self.policy_version, temperature=self.temperature)
        except Exception as error:  # a broken world costs its own episode only
            self.failures.append((live.request.task, error))
            live.close()
            self._release(row)
            return
        self._release(row)
        self.finished[live.index] = trajectory
        if self.on_episode is not None:
            self.on_episode(trajectory)

    def _release(self, row: int) -> None:
        del self.live[row]
        self.sampler.free(row)
        self.free.append(row)
        self.free.sort()
