"""Small heads on the hidden states of a frozen policy.

Legend: S turns, H width of the hidden states, K grains.
"""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from geartrain.placement import CPU, on_cpu


class GrainNetwork(nn.Module):
    """Mixture of the grains, per state: Linear - ReLU - Linear - softmax.

    The last layer starts at zero, so that the mixture starts exactly even.
    Source: the article on GEAR, see `algorithms.granularity`.
    """

    def __init__(self, width: int, grains: int, *, hidden: int = 128) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, grains)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, state_SH: Tensor) -> Tensor:
        """Return the mixture [S, K]; each row sums to 1."""
        return torch.softmax(self.outer(torch.relu(self.inner(state_SH))), dim=-1)


class CriticHead(nn.Module):
    """Score of an action in a state: MLP over [state, action] embeddings.

    Inputs are scaled by statistics of the training set, which are part of the
    weights. Source: the article on SGCD, with the action embedded whole.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, width: int, *, hidden: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2 * width))
        self.register_buffer("scale", torch.ones(2 * width))
        self.inner = nn.Linear(2 * width, hidden)
        self.outer = nn.Linear(hidden, 1)

    def fit_scale(self, state_SH: Tensor, action_SH: Tensor) -> None:
        """Take mean and deviation of the inputs from a training set."""
        both = torch.cat([state_SH, action_SH], dim=-1)
        self.mean.copy_(both.mean(0))
        self.scale.copy_(both.std(0).clamp(min=1e-6))

    def forward(self, state_SH: Tensor, action_SH: Tensor) -> Tensor:
        """Return one score per turn, [S]."""
        both = (torch.cat([state_SH, action_SH], dim=-1) - self.mean) / self.scale
        score: Tensor = self.outer(torch.relu(self.inner(both)))[:, 0]
        return score


class ValueHead(nn.Module):
    """Expected return from a state: Linear - ReLU - Linear, starting at 0. Source: PPO, arXiv:1707.06347."""

    def __init__(self, width: int, *, hidden: int = 128) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, 1)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, state_SH: Tensor) -> Tensor:
        """Return one value per state, [S]."""
        value: Tensor = self.outer(torch.relu(self.inner(state_SH)))[:, 0]
        return value


class UnitHead(nn.Module):
    """A number in [0, 1] per state: Linear - ReLU - Linear - sigmoid. Source: the article on GEAR-B."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, max(1, width // 2))
        self.outer = nn.Linear(max(1, width // 2), 1)

    def forward(self, state_SH: Tensor) -> Tensor:
        """Return [S]."""
        unit: Tensor = torch.sigmoid(self.outer(torch.relu(self.inner(state_SH))))[:, 0]
        return unit


def save_head(head: nn.Module, path: Path) -> None:
    """Write a head's weights and buffers (safetensors)."""
    save_file({name: value.contiguous() for name, value in on_cpu(head.state_dict()).items()}, path)


def load_critic_head(path: Path, *, device: torch.device = CPU) -> CriticHead:
    """Rebuild a critic head from its weights alone, on `device`; their shapes tell its sizes."""
    state = load_file(path)
    hidden, width = state["inner.weight"].shape
    head = CriticHead(width // 2, hidden=hidden)
    head.load_state_dict(state)
    return head.eval().to(device)
