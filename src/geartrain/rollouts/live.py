"""One episode while it is played: its world, what it is shown, what it said. Knows nothing of rows or batches."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from geartrain.config import Config
from geartrain.environments.environment import Environment, Episode, Task
from geartrain.errors import UserError
from geartrain.models.chat import ChatFormat
from geartrain.seeds import seed_of
from geartrain.trajectory import Trajectory, Turn


@dataclass(frozen=True)
class EpisodeRequest:
    """One episode to play. Requests of one `group_id` are siblings: same task, same world, other randomness."""

    task: Task
    sibling: int
    group_id: str
    greedy: bool = False
    """Take the likeliest token; log-probs are still those at the sampling temperature."""


@dataclass(frozen=True)
class Limits:
    """Where an episode is cut."""

    context: int
    """Longest episode in tokens; one that would pass it ends as "max_context"."""
    max_turns: int
    """Most messages; then it ends as "max_turns"."""
    spare_turns: int | None = None
    """Most messages beyond a task's necessary ones, if that is fewer; None sets no such limit."""

    @classmethod
    def of(cls, config: Config) -> "Limits":
        """Return the limits that a configuration sets."""
        return cls(config.model.context, config.environment.max_turns, config.environment.spare_turns)

    def turns(self, task: Task) -> int:
        """Return the most messages of an episode of `task`."""
        if self.spare_turns is None:
            return self.max_turns
        return min(self.max_turns, task.necessary_steps + self.spare_turns)


def world_seed(seed: int, group_id: str) -> int:
    """Return the seed of a group's world, the same for all its siblings."""
    return seed_of("world", seed, group_id)


@dataclass
class LiveEpisode:
    """An episode in progress. Open it with `open_episode`."""

    index: int
    """Place of its request."""
    request: EpisodeRequest
    seed: int
    """Seed of its world."""
    episode: Episode
    messages: Sequence[dict[str, str]]
    """The opening, as messages."""
    shown: list[int]
    """Prompt ids of the turn in progress."""
    tokens: int
    """Length of the episode, `shown` included."""
    turns: list[Turn] = field(default_factory=list)

    def hear(
        self, ids: list[int], logprobs: list[float], entropies: list[float], chat: ChatFormat, *, limits: Limits
    ) -> str | None:
        """Give a sampled message to the environment.

        Returns why the episode has ended, or None; then `shown` is what the model is
        shown next. Raises what the environment raises; the turn is then lost.
        """
        text, ended = chat.action_text(ids), ids[-1] == chat.end_id
        step = self.episode.step(text)
        shown = [] if step.done else chat.observation_ids(step.result.content, ended=ended)
        turn = Turn(self.shown, ids, logprobs, text, step.call, step.result, step.subgoals, action_entropies=entropies)
        self.turns.append(turn)
        self.tokens += len(ids)
        if step.done:
            return "finished"
        if len(self.turns) >= limits.turns(self.request.task):
            return "max_turns"
        if self.tokens + len(shown) >= limits.context:
            return "max_context"
        self.shown = shown
        self.tokens += len(shown)
        return None

    def judge(self, end: str, *, policy_version: int, temperature: float) -> Trajectory:
        """Ask for the verdict, close the world and return the record. Raises what the environment raises."""
        verdict = self.episode.verdict()
        self.episode.close()
        return Trajectory(
            task_id=self.request.task.task_id,
            family=self.request.task.family,
            group_id=self.request.group_id,
            sibling=self.request.sibling,
            seed=self.seed,
            policy_version=policy_version,
            temperature=temperature,
            turns=self.turns,
            success=verdict.success,
            progress=verdict.progress,
            end=end,
        )

    def close(self) -> None:
        """Release the world of an episode that did not end well; never raises."""
        with suppress(Exception):
            self.episode.close()


def open_episode(
    environment: Environment, request: EpisodeRequest, index: int, chat: ChatFormat, *, seed: int, context: int
) -> LiveEpisode:
    """Start an episode.

    Raises UserError if the opening leaves no room in `context`, and what the environment raises.
    """
    own_seed = world_seed(seed, request.group_id)
    episode = environment.reset(request.task, seed=own_seed)
    try:
        messages = episode.opening()
        ids = chat.opening_ids(messages)
        if len(ids) >= context:
            raise UserError(f"the opening has {len(ids)} tokens, the context {context}: raise model.context")
    except BaseException:
        with suppress(Exception):
            episode.close()
        raise
    return LiveEpisode(index, request, own_seed, episode, messages, ids, len(ids))
