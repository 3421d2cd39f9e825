"""Several processes play what one would: same episodes, in order, with the weights that were given."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from geartrain.config_file import load_config
from geartrain.environments import load_environment
from geartrain.environments.analyst.editions import build_worlds
from geartrain.environments.environment import Task
from geartrain.errors import UserError
from geartrain.models.backbone import build_policy, save_policy
from geartrain.models.tokenizer import train_tokenizer
from geartrain.rollouts.collect import EpisodeRequest
from geartrain.rollouts.players import Players, deal
from tests.fakes import pieces

ROOT = Path(__file__).parents[3]


def request(group: str, sibling: int = 0, steps: int = 2) -> EpisodeRequest:
    return EpisodeRequest(Task(group, "parity", "f", "train", "p", "w", steps), sibling, group)


def test_groups_are_dealt_out_whole_and_evenly():
    requests = [request(group, sibling) for group in "abcde" for sibling in range(2)]
    hands = deal(requests, 2)
    assert hands == [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7]]
    assert deal(requests, 1) == [list(range(10))]
    assert deal(requests[:2], 4) == [[0, 1], [], [], []]
    assert sorted(index for hand in deal(requests, 4) for index in hand) == list(range(10))


def test_hands_have_as_many_steps_to_play():
    requests = [request(group, steps=steps) for group, steps in zip("abcde", (4, 20, 5, 8, 4), strict=True)]
    assert deal(requests, 2) == [[1], [0, 2, 3, 4]]


@pytest.fixture(scope="module")
def analyst(tmp_path_factory):
    """A world, an untrained model on disk, tasks of two groups, and a configuration."""
    folder = tmp_path_factory.mktemp("players")
    config = load_config(ROOT / "profiles" / "smoke.yaml")
    worlds = folder / "worlds"
    build_worlds(ROOT / config.environment.source, worlds, seed=0)
    tasks = load_environment(config.environment, worlds).build_tasks(seed=0, sizes={"train": 2})["train"]
    texts = [task.prompt for task in tasks] * 3
    policy = build_policy(train_tokenizer(texts, vocabulary=300), config.model, seed=1)
    save_policy(policy, folder / "model")
    return folder, config, policy, tasks


def play(analyst, work, *, threads, policy=None):
    folder, config, own, tasks = analyst
    short = config.policy.sampling.model_copy(update={"max_new_tokens": 8})
    players = Players(folder / "model", folder / "worlds", config.model_copy(update={"threads": threads}), work)
    requests = [EpisodeRequest(task, sibling, task.task_id) for task in tasks for sibling in range(2)]
    seen = []
    try:
        options = {"sampling": short, "seed": 4, "policy_version": 0}
        return players.play(policy or own, requests, on_progress=seen.append, **options), sum(seen)
    finally:
        players.close()


@pytest.mark.slow
def test_two_processes_play_what_one_plays_with_the_weights_they_are_given(analyst, tmp_path):
    with torch.no_grad():
        analyst[2].model.get_input_embeddings().weight.mul_(0.9)  # not what lies on disk
    alone, counted = play(analyst, tmp_path, threads=1)
    together, progress = play(analyst, tmp_path, threads=2)
    assert counted == progress == len(alone) == 4
    for left, right in zip(alone, together, strict=True):
        assert (left.task_id, left.sibling, left.token_ids()) == (right.task_id, right.sibling, right.token_ids())
    assert list(tmp_path.iterdir()) == []


def test_no_process_outlives_a_killed_parent(tmp_path):
    script = (
        "from geartrain.rollouts.parallel import Crew\n"
        "from tests.fakes import pieces\n"
        "import os, signal\n"
        "if __name__ == '__main__':\n"
        "    crew = Crew(2, threads=2)\n"
        "    print(*crew.run(pieces.own_id, [(), ()]), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "parent.py").write_text(script)
    parent = subprocess.run(
        [sys.executable, tmp_path / "parent.py"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    workers = parent.stdout.split()
    assert len(workers) == 2, parent.stderr
    for worker in workers:
        pieces.wait_for_the_end_of(int(worker))


def test_a_crew_serves_again_and_fails_as_its_pieces_do():
    from geartrain.rollouts.parallel import Crew

    with Crew(2, threads=2) as crew:
        first, second = (set(crew.run(pieces.own_id, [(), (), (), ()])) for _ in range(2))
        assert len(first | second) <= 2
        with pytest.raises(UserError, match="mend it"):
            crew.run(pieces.fail_as_user, [("x", "y")])
