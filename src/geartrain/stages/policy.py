"""Stage `policy`: policy optimisation from the warm start, with verified rewards and weighted credit."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from geartrain.algorithms.recipe import RECIPES
from geartrain.artifacts import write_atomically
from geartrain.config import Config
from geartrain.credit_table import FOLDER as EPISODES
from geartrain.datasets.task_sets import read_tasks
from geartrain.environments import load_environment
from geartrain.environments.environment import Environment, Task
from geartrain.errors import UserError
from geartrain.features import clock, headroom
from geartrain.features.frames import FRAMES, SAMPLER, Frame, read_frame, require_rows
from geartrain.features.history import History
from geartrain.features.statistics import played
from geartrain.features.tables import FOLDER
from geartrain.models.backbone import Policy, load_policy, save_policy
from geartrain.models.chat import ChatFormat
from geartrain.placement import own_device
from geartrain.preemption import leave_if_asked
from geartrain.progress import bar
from geartrain.ranks import ALONE, Ranks, deal_whole, in_place
from geartrain.rewards.assembly import assemble
from geartrain.rewards.description import describe_channels, disagreement
from geartrain.rewards.mix import RewardMix, Scored
from geartrain.rollouts.collect import EpisodeRequest, Limits
from geartrain.rollouts.players import Players, deal
from geartrain.rollouts.quality import describe_families, describe_play, used_no_tool
from geartrain.seeds import pick, seed_of
from geartrain.stages.stage import Job, Metrics, live_record, stage
from geartrain.training.best import Validation
from geartrain.training.credit import CreditAssigner, load_critic
from geartrain.training.credit_report import credit_records
from geartrain.training.lesson import Scored as Rewarded
from geartrain.training.lesson import task_batch, whole_lesson
from geartrain.training.policy import PolicyTrainer
from geartrain.training.recorder import Recorder
from geartrain.training.world import Record
from geartrain.trajectory import Trajectory

CREDIT_TASKS = 6
"""Tasks of `val` whose credit is written down before and after."""


@stage(
    inputs=("tasks", "warm_start", "preferences", "reward_model", "critic"),
    sections=("model", "environment", "policy"),
    together=True,
)
def run(job: Job) -> Metrics:
    """Write a Hugging Face folder, `history.jsonl`, `credit_before.jsonl`, `credit_after.jsonl` and tables `features/`.

    Raises:
        UserError: an empty `val`, or a run that cannot learn or diverges.
    """
    config = job.config
    own, device = job.work / f"rank-{job.ranks.rank}", own_device()
    with closing(Players(job.inputs["warm_start"], job.inputs["tasks"] / "worlds", config, own, device)) as players:
        policy = _load(job.inputs["warm_start"], config, device)
        frame = read_frame(job.inputs["preferences"] / FRAMES, SAMPLER)
        world = _world(job, policy, players, frame)
        metrics = _train(job, world, policy, _assigner(job, policy))
    if job.ranks.leads:
        world.history.write(job.outputs["policy"] / FOLDER, frame.as_of)
    return {**metrics, "frame": frame.told()}


def _assigner(job: Job, policy: Policy) -> CreditAssigner:
    section, device = job.config.policy, policy.model.device
    recipe = RECIPES[section.recipe]
    critic = load_critic(job.inputs["critic"], policy.tokenizer.decode, device=device) if recipe.needs_critic else None
    return CreditAssigner(
        recipe,
        section.method_settings,
        critic=critic,
        width=policy.model.config.get_text_config().hidden_size,
        iterations=section.iterations,
        seed=job.config.seed,
        device=device,
    )


def _train(job: Job, world: "TaskWorld", policy: Policy, assigner: CreditAssigner) -> Metrics:
    config, section, output = job.config, job.config.policy, job.outputs["policy"]
    trainer = PolicyTrainer(
        policy,
        assigner,
        world,
        section,
        context=config.model.context,
        seed=config.seed,
        work=job.work / "checkpoints",
        ranks=job.ranks,
        recorder=_recorder(job),
    )
    _write_credit(output / "credit_before.jsonl", world, policy, trainer)
    with bar("policy", total=section.iterations) as advance:
        history = trainer.run(lambda record: advance(1, status=f"success {record['success']:.2f}"))
    if job.ranks.leads:
        save_policy(policy, output)
        write_atomically(output / "history.jsonl", _lines(history))
    _write_credit(output / "credit_after.jsonl", world, policy, trainer)
    return _summarise(trainer, history)


def _recorder(job: Job) -> Recorder:
    section = job.config.policy
    folder = live_record(job.work).with_suffix("") / EPISODES
    earlier = [path for path in folder.parent.parent.glob(f"policy-*/{EPISODES}") if path != folder]
    grains = tuple(RECIPES[section.recipe].grains)
    if not job.ranks.leads:
        return Recorder()
    return Recorder(folder, megabytes=section.record_megabytes, grains=grains, earlier=earlier)


def _audit(job: Job) -> Path:
    """Return where this rank says what every tool of the reward said."""
    return live_record(job.work).with_suffix("") / f"reward_audit-{job.ranks.rank}.jsonl"


@dataclass(frozen=True)
class TaskWorld:
    """Task sets, players and rewards, as the loop asks for them."""

    players: Players
    train: Sequence[Task]
    val: Sequence[Task]
    rewards: RewardMix
    config: Config
    environment: Environment
    chat: ChatFormat
    ranks: Ranks = ALONE
    history: History = field(default_factory=History)
    """What is known of the train tasks, by this run and before it."""

    def play(self, policy: Policy, iteration: int, refill: int = 0) -> list[Trajectory]:
        """Play the siblings of the iteration's tasks; those of a refill are drawn anew, in groups of their own."""
        section, root = self.config.policy, self.config.seed
        order = root if not refill else seed_of(root, "refill", refill)
        indices = self._draw(iteration, order)
        seed = seed_of(root, "policy", iteration)
        tasks, suffix = [self.train[i] for i in indices], f"#{refill}" if refill else ""
        return self.play_tasks(policy, tasks, section.siblings, seed=seed, policy_version=iteration, suffix=suffix)

    def _draw(self, iteration: int, seed: int) -> list[int]:
        section = self.config.policy
        if section.task_sampling == "uniform":
            return task_batch(len(self.train), section.tasks_per_iteration, iteration, seed=seed)
        success_N = self.history.expected_success([(task.task_id, task.family) for task in self.train])
        chances_N = headroom.headroom(success_N, section.siblings)
        drawn = headroom.draw(
            chances_N, section.tasks_per_iteration, seed=seed_of(seed, "tasks by headroom", iteration)
        )
        return self.ranks.first(drawn)  # the last bit of a power may differ on another node

    def remember(self, iteration: int, scored: Rewarded) -> None:
        """Keep what an iteration's episodes say of their tasks, known from the next one on."""
        episodes = [played(t, reward) for t, reward in zip(scored.trajectories, scored.rewards, strict=True)]
        self.history.observe(clock.after(iteration), episodes)

    def state_dict(self) -> dict[str, Any]:
        """Return what is remembered."""
        return self.history.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`'s value."""
        self.history.load_state_dict(state)

    def play_tasks(
        self,
        policy: Policy,
        tasks: Sequence[Task],
        siblings: int,
        *,
        seed: int,
        policy_version: int = 0,
        suffix: str = "",
    ) -> list[Trajectory]:
        """Play siblings of given tasks; the group of a trajectory is its task's id and the suffix."""
        requests = [
            EpisodeRequest(task, sibling, task.task_id + suffix) for task in tasks for sibling in range(siblings)
        ]
        return self._play(policy, requests, seed=seed, policy_version=policy_version)

    def _play(
        self, policy: Policy, requests: Sequence[EpisodeRequest], *, seed: int, policy_version: int
    ) -> list[Trajectory]:
        options: dict[str, Any] = {"sampling": self.config.policy.sampling, "seed": seed}
        options["policy_version"] = policy_version
        shares = deal(requests, self.ranks.size)
        mine = [requests[index] for index in shares[self.ranks.rank]]
        options["on_progress"] = lambda done: leave_if_asked()
        played = self.ranks.gather(self.players.play(policy, mine, **options) if mine else [])
        return in_place(shares, played)

    def score(self, trajectories: Sequence[Trajectory]) -> Scored:
        """Score trajectories of the train or val tasks."""
        groups, turns = [t.group_id for t in trajectories], [len(t.turns) for t in trajectories]
        shares = deal_whole(groups, turns, self.ranks.size)
        mine = self.rewards.score([trajectories[row] for row in shares[self.ranks.rank]], self._tasks)
        scored = self.ranks.gather(mine)
        return Scored(
            in_place(shares, [part.rewards for part in scored]),
            in_place(shares, [part.trajectories for part in scored]),
            sum((part.failures for part in scored), Counter()),
            max(part.judge_seconds for part in scored),
        )

    def validate(self, policy: Policy) -> Validation:
        """Play `val` greedily and once sampled, always with the same noise."""
        requests = [EpisodeRequest(task, 0, task.task_id, greedy) for greedy in (True, False) for task in self.val]
        both = self._play(policy, requests, seed=seed_of(self.config.seed, "policy validation"), policy_version=0)
        greedy, sampled = both[: len(self.val)], both[len(self.val) :]
        return Validation(
            _share(t.success for t in greedy), _share(t.success for t in sampled), _share(t.progress for t in both)
        )

    def describe(self, trajectories: Sequence[Trajectory]) -> Record:
        """Return how the episodes went, and each of their phases; shares and means over episodes or turns."""
        turns = sum(len(trajectory.turns) for trajectory in trajectories)
        successes = [trajectory for trajectory in trajectories if trajectory.success]
        return {
            "success": _share(t.success for t in trajectories),
            "successes": len(successes),
            "progress": _share(t.progress for t in trajectories),
            "turns": turns / len(trajectories),
            "tokens": _share(len(t.token_ids()) for t in trajectories),
            "invalid_calls": sum(t.invalid_calls for t in trajectories) / max(1, turns),
            "truncated": _share(t.truncated for t in trajectories),
            "zero_tool_share": _share(used_no_tool(t) for t in successes) if successes else None,
            **describe_play(trajectories),
            "families": describe_families(trajectories, self.train, self.val),
            "channels": describe_channels(trajectories),
            "disagreement": disagreement(trajectories),
            "reward_drift": self.history.reward_drift(trajectories[0].policy_version),
            **self.environment.describe_phases(trajectories, self._tasks, horizon=Limits.of(self.config).turns),
        }

    def answer(self, trajectory: Trajectory) -> str:
        """Return the ground truth of a trajectory's task, in words."""
        return self.environment.answer(self._tasks[trajectory.task_id])

    def opening(self, trajectory: Trajectory, hint: str) -> list[int] | None:
        """Return the opening ids with a hint after the task; None where the rest would no longer fit the context."""
        episode = self.environment.reset(self._tasks[trajectory.task_id], seed=trajectory.seed)
        try:
            *before, last = episode.opening()
        finally:
            episode.close()
        ids = self.chat.opening_ids([*before, {**last, "content": f"{last['content']}\n{hint}"}])
        rest = len(trajectory.token_ids()) - len(trajectory.turns[0].prompt_ids)
        return ids if len(ids) + rest <= self.config.model.context else None

    @cached_property
    def _tasks(self) -> dict[str, Task]:
        return {task.task_id: task for task in (*self.train, *self.val)}

    def credit(self, policy: Policy, trainer: PolicyTrainer) -> list[Record]:
        """Describe the credit of fresh siblings of some `val` tasks."""
        tasks = pick(self.val, CREDIT_TASKS, self.config.seed, "credit tasks")
        siblings = self.config.policy.siblings
        played = self.play_tasks(policy, tasks, siblings, seed=seed_of(self.config.seed, "credit"))
        lesson = whole_lesson(self.score(played), trainer.assigner.recipe.advantage)
        prompts = {task.task_id: task.prompt for task in tasks}
        return credit_records(trainer.weigh(lesson), trainer.assigner, lesson, prompts)


def _world(job: Job, policy: Policy, players: Players, frame: Frame) -> TaskWorld:
    config, section = job.config, job.config.policy
    train, val = (read_tasks(job.inputs["tasks"], split) for split in ("train", "val"))
    if len(train) < section.tasks_per_iteration or not val:
        raise UserError(
            f"{job.inputs['tasks']}: {len(train)} training and {len(val)} validation tasks; policy needs "
            f"{section.tasks_per_iteration} and 1. Lower policy.tasks_per_iteration or raise tasks.train."
        )
    require_rows(frame, {"task_id": [task.task_id for task in train]})
    rewards = RewardMix.load(
        job.inputs["reward_model"],
        tokenizer=policy.tokenizer,
        model_weight=section.reward_model_weight,
        invalid_call_reward=section.invalid_call_reward,
        progress_weight=section.progress_weight,
        learned_in_ties=section.learned_in_ties,
        device=policy.model.device,
        panel=assemble(section.tools, iterations=section.iterations, audit=_audit(job)),
    )
    environment = load_environment(config.environment, job.inputs["tasks"] / "worlds")
    history = History.of_frame(frame.table)
    return TaskWorld(players, train, val, rewards, config, environment, policy.chat, job.ranks, history)


def _load(folder: Path, config: Config, device: torch.device) -> Policy:
    sharding = config.policy.sharding
    dtype = config.model.dtype if sharding is None else sharding.precision  # whoever plays has the trainer's weights
    return load_policy(folder, dtype=dtype, context=config.model.context, device=device)


def _write_credit(path: Path, world: TaskWorld, policy: Policy, trainer: PolicyTrainer) -> None:
    if world.ranks.first(path.exists()):  # of the warm start, by a run that was killed since
        return
    records = world.credit(policy, trainer)
    if world.ranks.leads:
        write_atomically(path, _lines(records))


def _summarise(trainer: PolicyTrainer, history: Sequence[Record]) -> Metrics:
    best = trainer.best.validation
    assert best is not None
    last = history[-5:]
    return {
        "iterations": len(history),
        "best_iteration": trainer.best.iteration,
        "val_sampled": round(best.sampled, 4),
        "val_greedy": round(best.greedy, 4),
        "first_success": round(history[0]["success"], 4),
        "last_success": round(_share(record["success"] for record in last), 4),
        "skipped_steps": sum(record.get("skipped_steps", 0) for record in history),
        "iterations_without_signal": sum(not record["trained_trajectories"] for record in history),
        "worst_mismatch": max((record["mismatch"] for record in history if "mismatch" in record), default=None),
    }


def _lines(records: Sequence[Record]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)


def _share(values: Any) -> float:
    listed = [float(value) for value in values]
    return sum(listed) / len(listed) if listed else 0.0
