"""From trajectories to what credit methods look at, token by token.

Legend: N trajectories, T positions, S turns of all trajectories.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from geartrain.algorithms.evidence import Evidence, spread
from geartrain.algorithms.returns import turn_returns
from geartrain.algorithms.sibling import state_keys
from geartrain.trajectory import Trajectory


def gather(
    trajectories: Sequence[Trajectory],
    *,
    advantage_N: Tensor,
    reward_N: Tensor,
    run_share: float,
    step_discount: float = 0.0,
    token_discount: float = 0.0,
) -> Evidence:
    """Return what the trajectories themselves say; critics, teachers and value heads add theirs.

    Args:
        trajectories: with step and token rewards filled; groups whole, or filtered as groups.
        advantage_N: verified group advantage.
        reward_N: total rewards.
        run_share: share of the run that is over.
        step_discount: of later step rewards, per turn.
        token_discount: of later token rewards, per sampled token.
    """
    turn_NT = turn_index(trajectories)
    turns = [turn for trajectory in trajectories for turn in trajectory.turns]
    return Evidence(
        advantage_N=advantage_N,
        group_N=group_index(trajectories),
        sibling_N=torch.tensor([trajectory.sibling for trajectory in trajectories]),
        mask_NT=turn_NT >= 0,
        step_NT=spread(_step_returns(trajectories, step_discount), turn_NT),
        token_NT=_token_returns(trajectories, turn_NT, token_discount),
        turn_NT=turn_NT,
        logprob_NT=_padded([t.behaviour_logprobs() for t in trajectories]),
        entropy_NT=_padded([t.entropies() for t in trajectories]),
        progress_NT=spread(_progress(trajectories), turn_NT),
        reward_N=reward_N,
        row_S=torch.tensor([row for row, t in enumerate(trajectories) for _ in t.turns], dtype=torch.int64),
        state_S=[key for t in trajectories for key in _states(t)],
        step_reward_S=torch.tensor([turn.reward for turn in turns]),
        run_share=run_share,
    )


def turn_index(trajectories: Sequence[Trajectory]) -> Tensor:
    """Return int64 [N, T]: the turn, counted through all trajectories, that a sampled id belongs to; -1 elsewhere."""
    rows, offset = [], 0
    for trajectory in trajectories:
        row_T = torch.full((len(trajectory.token_ids()),), -1)
        for turn, (start, stop) in enumerate(trajectory.action_spans()):
            row_T[start:stop] = offset + turn
        offset += len(trajectory.turns)
        rows.append(row_T)
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


def group_index(trajectories: Sequence[Trajectory]) -> Tensor:
    """Return int64 [N]: the groups, numbered in order of appearance."""
    number = {group: index for index, group in enumerate(dict.fromkeys(t.group_id for t in trajectories))}
    return torch.tensor([number[trajectory.group_id] for trajectory in trajectories])


def _states(trajectory: Trajectory) -> list[str]:
    return state_keys(
        [turn.action_text for turn in trajectory.turns], [turn.result.content for turn in trajectory.turns]
    )


def _progress(trajectories: Sequence[Trajectory]) -> Tensor:
    """Return [S]: sub-goals reached before each turn, over those that any sibling has reached."""
    known: dict[str, set[str]] = defaultdict(set)
    for trajectory in trajectories:
        known[trajectory.group_id].update(name for turn in trajectory.turns for name in turn.subgoals)
    shares = []
    for trajectory in trajectories:
        reached: set[str] = set()
        for turn in trajectory.turns:
            shares.append(len(reached) / max(1, len(known[trajectory.group_id])))
            reached.update(turn.subgoals)
    return torch.tensor(shares)


def _step_returns(trajectories: Sequence[Trajectory], discount: float) -> Tensor:
    returns = [turn_returns([turn.reward for turn in t.turns], discount=discount) for t in trajectories]
    return torch.cat(returns)


def _token_returns(trajectories: Sequence[Trajectory], turn_NT: Tensor, discount: float) -> Tensor:
    reward_NT = _token_rewards(trajectories, turn_NT.shape[1])
    if discount > 0.0:
        for row in range(len(trajectories)):
            sampled_T = turn_NT[row] >= 0
            reward_NT[row, sampled_T] = turn_returns(reward_NT[row, sampled_T].tolist(), discount=discount)
    return reward_NT


def _token_rewards(trajectories: Sequence[Trajectory], width: int) -> Tensor:
    reward_NT = torch.zeros(len(trajectories), width)
    for row, trajectory in enumerate(trajectories):
        for turn, (start, stop) in zip(trajectory.turns, trajectory.action_spans(), strict=True):
            if turn.token_rewards:
                reward_NT[row, start:stop] = torch.tensor(list(turn.token_rewards))
    return reward_NT


def _padded(rows: Sequence[Sequence[float]]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row, dtype=torch.float32) for row in rows], batch_first=True)
