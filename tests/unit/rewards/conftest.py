"""Small episodes for the tests of rewards."""

from collections.abc import Callable
from typing import Any

import pytest

from geartrain.environments.environment import Task
from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn


def build_turn(name: str = "query_database", *, error: str | None = None, **fields: Any) -> Turn:
    defaults: dict[str, Any] = {
        "prompt_ids": [1],
        "action_ids": [2],
        "action_logprobs": [0.0],
        "action_text": "x",
        "call": ToolCall(name, fields.pop("arguments", {"sql": "SELECT 1"})),
        "result": ToolResult(fields.pop("content", "q1: 1 row"), error, fields.pop("position", None)),
    }
    return Turn(**{**defaults, **fields})


def build_episode(task_id: str = "t", sibling: int = 0, **fields: Any) -> Trajectory:
    defaults: dict[str, Any] = {
        "family": "f",
        "group_id": task_id,
        "seed": 0,
        "policy_version": 0,
        "temperature": 1.0,
        "turns": [build_turn()],
        "success": False,
        "progress": 0.0,
        "end": "finished",
    }
    return Trajectory(task_id=task_id, sibling=sibling, **{**defaults, **fields})


@pytest.fixture
def turn() -> Callable[..., Turn]:
    return build_turn


@pytest.fixture
def episode() -> Callable[..., Trajectory]:
    return build_episode


@pytest.fixture
def task() -> Callable[[str], Task]:
    return lambda task_id: Task(task_id, "analyst", "f", "train", f"Do {task_id}.", "w", 2)
