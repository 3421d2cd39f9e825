"""Trajectories come back from Parquet as they went in, and their views line up."""

from pathlib import Path

from geartrain.trajectory import ToolCall, ToolResult, Trajectory, Turn, read_trajectories, write_trajectories


def make(sibling: int) -> Trajectory:
    turns = [
        Turn(
            [1, 2, 3],
            [4, 5],
            [-0.5, -0.25],
            "a",
            ToolCall("query", {"sql": "SELECT 'é'"}),
            ToolResult("q1: 1 row"),
            ["found"],
        ),
        Turn(
            [6],
            [7, 8, 9],
            [-1.0, 0.0, -2.0],
            "{",
            None,
            ToolResult("bad", "malformed_json", 1),
            (),
            -0.1,
            [0.0, -1.0, 0.0],
        ),
    ]
    return Trajectory(
        "t", "ranking", "t", sibling, 7, 3, 0.7, turns, False, 0.5, "max_turns", {"verified": 0.0, "learned": None}
    )


def test_round_trip(tmp_path: Path) -> None:
    written = [make(sibling) for sibling in range(600)]
    assert write_trajectories(tmp_path / "t.parquet", written) == 600
    read = list(read_trajectories(tmp_path / "t.parquet"))
    assert [t.sibling for t in read] == list(range(600))
    assert read[0].turns[0].call == written[0].turns[0].call
    assert read[0].turns[1].result == written[0].turns[1].result
    assert read[0].rewards == {"verified": 0.0, "learned": None}
    assert list(read[0].turns[1].action_logprobs) == [-1.0, 0.0, -2.0]


def test_the_same_trajectories_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_trajectories(tmp_path / name, [make(0), make(1)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_views_line_up() -> None:
    trajectory = make(0)
    ids, mask, logprobs = trajectory.token_ids(), trajectory.action_mask(), trajectory.behaviour_logprobs()
    assert ids == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [i for i, sampled in zip(ids, mask, strict=True) if sampled] == [4, 5, 7, 8, 9]
    assert [x for x, sampled in zip(logprobs, mask, strict=True) if sampled] == [-0.5, -0.25, -1.0, 0.0, -2.0]
    assert [ids[start:stop] for start, stop in trajectory.action_spans()] == [[4, 5], [7, 8, 9]]
    assert trajectory.truncated
    assert trajectory.invalid_calls == 1
