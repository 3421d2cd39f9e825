"""Stages `critic` and `policy` on the toy environment, from rollouts to a trained folder."""

import json
import os
import shutil
import signal
import traceback
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from geartrain import artifacts, environments
from geartrain.config import Config, EnvironmentSection
from geartrain.datasets.task_sets import read_tasks, write_tasks
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.errors import UserError
from geartrain.features import headroom
from geartrain.features.clock import COLLECTED, time_of
from geartrain.features.collected import remember, spines, write_features
from geartrain.features.frames import CRITIC, FRAMES, SAMPLER, read_frame
from geartrain.features.statistics import played as remembered
from geartrain.features.store import private_store
from geartrain.features.tables import EVENT, FOLDER, TIME, gather, path_of, read_table
from geartrain.models.backbone import load_policy, save_policy
from geartrain.rollouts.collect import EpisodeRequest, Limits, play
from geartrain.seeds import seed_of
from geartrain.stages import critic, policy
from geartrain.stages.evaluation import EVALUATED
from geartrain.trajectory import Trajectory, Turn, write_trajectories
from tests.fakes.parity import TURNS, Parity, make_config, make_policy, make_tasks
from tests.fakes.ranks import policy_of_two
from tests.fakes.tiny_bert import save_encoder

KNOWN = datetime(2000, 1, 1, tzinfo=UTC)


def _seal(folder, stage):
    artifacts.write_manifest(folder, stage=stage, parameters={}, inputs={}, metrics={})
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Inputs that both stages need: tasks, an untrained model, its rollouts, an empty reward model."""
    root = tmp_path_factory.mktemp("inputs")
    folders = {name: root / name for name in ("tasks", "warm_start", "collect", "preferences", "reward_model")}
    for folder in folders.values():
        folder.mkdir()
    tasks = make_tasks(7)
    write_tasks(folders["tasks"] / "train.jsonl", tasks)
    write_tasks(folders["tasks"] / "val.jsonl", make_tasks(6, "val"))
    model, config = make_policy(), make_config()
    save_policy(model, folders["warm_start"])
    played = play(
        Parity(),
        model,
        [EpisodeRequest(task, sibling, task.task_id) for task in tasks for sibling in range(6)],
        sampling=config.policy.sampling,
        limits=Limits(config.model.context, TURNS),
        seed=3,
        policy_version=0,
    )
    write_trajectories(folders["collect"] / "trajectories.parquet", played)
    known = remember([remembered(trajectory, trajectory.outcome) for trajectory in played], [])
    rows = spines(tasks, played, [])
    rows = {service: rows[service] for service in (SAMPLER, CRITIC)}
    write_features(folders["preferences"], known, rows, known_from=KNOWN, work=root / "registry")
    return {name: _seal(folder, name) for name, folder in folders.items()}


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(environments.ENVIRONMENTS, "analyst", (lambda settings, worlds: Parity(), None))
    return tmp_path


def _critic(made, target, **section):
    config = Config.model_validate({**make_config().model_dump(), "critic": {"hidden": 8, "epochs": 10, **section}})
    inputs = {name: made[name] for name in ("warm_start", "collect", "preferences")}
    return critic.run(config, inputs, {"critic": target})


def _policy(made, trained_critic, target, **settings):
    names = ("tasks", "warm_start", "preferences", "reward_model")
    inputs = {name: made[name] for name in names} | {"critic": trained_critic}
    return policy.run(make_config(**settings), inputs, {"policy": target})


def test_the_critic_repeats_and_reports_its_controls(made, workspace):
    metrics = _critic(made, workspace / "first")
    again = _critic(made, workspace / "second")
    assert metrics == again
    digests = {artifacts.verify(workspace / name).digest for name in ("first", "second")}
    assert len(digests) == 1
    assert metrics["turns"] == 7 * 6 * TURNS
    assert metrics["tasks"] == 7
    assert 0 < metrics["contrasted_share"] <= 1
    assert {"correlation", "correlation_outcome", "correlation_contrast", "correlation_shuffled"} <= set(metrics)
    record = json.loads((workspace / "first" / "critic.json").read_text())
    assert 0 <= record["reliability"] <= 1


def test_the_critic_may_read_texts_instead_of_hidden_states(made, workspace):
    encoder = save_encoder(workspace / "encoder", positions=128)
    _critic(made, workspace / "critic", encoder=str(encoder))
    assert (workspace / "critic" / "encoder" / "model.safetensors").is_file()
    metrics = _policy(made, workspace / "critic", workspace / "policy", iterations=1)
    assert metrics["iterations"] == 1


def test_the_policy_stage_writes_a_loadable_model_its_history_and_its_credit(made, workspace):
    _critic(made, workspace / "critic")
    metrics = _policy(made, workspace / "critic", workspace / "policy")
    target = workspace / "policy"
    assert load_policy(target).model.config.hidden_size == 16
    history = [json.loads(line) for line in (target / "history.jsonl").read_text().splitlines()]
    assert len(history) == metrics["iterations"] == 4
    assert [("val_sampled" in record) for record in history] == [False, True, False, True]
    assert all(record["environment_steps"] == record["turns"] * record["episodes"] > 0 for record in history)
    assert metrics["worst_mismatch"] < 1e-4
    for name in ("credit_before.jsonl", "credit_after.jsonl"):
        records = [json.loads(line) for line in (target / name).read_text().splitlines()]
        assert len(records) == policy.CREDIT_TASKS * 4
        turn = records[0]["turns"][0]
        assert set(turn) == {
            "action",
            "observation",
            "error",
            "subgoals",
            "weight",
            "credit",
            "critic",
            "grains",
            "granularity",
        }
        assert set(turn["grains"]) == {"global", "step", "token"}
        assert 0.5 <= turn["weight"] <= 2.0
        assert turn["credit"] == pytest.approx(records[0]["advantage"] * turn["weight"], abs=2e-4)
        assert records[0]["prompt"].startswith("Speak")
    written = "".join(path.read_text(errors="ignore") for path in target.rglob("*.json*"))
    assert str(workspace) not in written  # no path of this machine


def test_the_policy_never_reads_what_it_will_be_judged_by(made, workspace):
    tasks = workspace / "tasks"
    shutil.copytree(made["tasks"], tasks)
    for split in EVALUATED:
        (tasks / f"{split}.jsonl").write_text("no task at all\n")
    _seal(tasks, "tasks")
    with pytest.raises(UserError, match="not a task"):
        read_tasks(tasks, "test")
    _critic(made, workspace / "critic")
    for name, inputs in (("without", made), ("poisoned", {**made, "tasks": tasks})):
        _policy(inputs, workspace / "critic", workspace / name, iterations=2)
    written, other = (artifacts.read_manifest(workspace / name).files for name in ("without", "poisoned"))
    assert written == other
    assert {"history.jsonl", "model.safetensors"} <= set(written)


def test_the_history_tells_of_the_phases_of_an_environment_that_has_some(tmp_path):
    world = TwoPhaseEnvironment(tmp_path, EnvironmentSection(name="twophase"))
    (task,) = world.build_tasks(seed=0, sizes={"train": 1})["train"]
    episode, expert, steps = world.reset(task, seed=0), world.expert(task, seed=0, flawed=False), []
    while not (steps and steps[-1].done):
        steps.append(episode.step(expert.act(steps[-1].result if steps else None)))
    turns = [Turn([1], [2], [-0.5], "", step.call, step.result, step.subgoals) for step in steps]
    played = [
        Trajectory(task.task_id, task.family, task.task_id, sibling, 0, 0, 1.0, turns[:seen], won, 1.0, end)
        for sibling, (seen, won, end) in enumerate([(len(turns), True, "finished"), (1, False, "max_context")])
    ]
    config = Config.model_validate({"environment": {"name": "twophase"}})
    parts = {"players": None, "rewards": None, "chat": None}
    record = policy.TaskWorld(train=[task], val=[], config=config, environment=world, **parts).describe(played)
    assert record["success"] == record["plan_success"] == 0.5
    assert record["do_success"] == 1.0  # of the whole plans
    assert record["entropy_plan"] == record["entropy_do"] == 0.5


def _run_in_child(action):
    """Run `action` in a forked process; return its wait status. Forking skips seconds of imports."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("sampling", ["uniform", "headroom"])
def test_a_run_killed_twice_publishes_the_same_bytes(made, workspace, monkeypatch, sampling):
    _critic(made, workspace / "critic")
    plain = policy.TaskWorld.play

    def run(target, deadly):
        def play(world, model, iteration, refill=0):
            if iteration == deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(world, model, iteration, refill)

        monkeypatch.setattr(policy.TaskWorld, "play", play)
        monkeypatch.setenv("GEARTRAIN_HOME", str(workspace / f"home of {target}"))
        return _run_in_child(lambda: _policy(made, workspace / "critic", workspace / target, task_sampling=sampling))

    assert [run("killed", deadly) for deadly in (1, 3)] == [signal.SIGKILL] * 2
    assert not (workspace / "killed").exists()
    assert run("killed", -1) == 0
    assert run("whole", -1) == 0
    digests = {artifacts.verify(workspace / name).digest for name in ("killed", "whole")}
    assert len(digests) == 1


def _drawn(folder, iteration):
    """Return the tasks that an iteration has played, by the tables that the stage wrote."""
    table = read_table(path_of(folder / FOLDER, "task_history"))
    rows = table.filter(pc.equal(table.column(EVENT), pa.scalar(time_of(KNOWN, iteration + 1), TIME)))
    return sorted(rows.column("task_id").to_pylist())


def test_tasks_are_drawn_by_what_feast_says_was_known_when_each_iteration_began(made, workspace):
    """The sampler keeps count in memory; asked later as of the same times, the feature store gives the same tasks."""
    _critic(made, workspace / "critic")
    _policy(made, workspace / "critic", workspace / "policy", task_sampling="headroom")
    _assert_drawn_as_feast_says(made, workspace)


def test_two_ranks_draw_the_same_tasks_by_headroom(made, workspace):
    """What either of them plays is known to both before the next tasks are drawn."""
    _critic(made, workspace / "critic")
    inputs = {name: made[name] for name in ("tasks", "warm_start", "preferences", "reward_model")}
    inputs["critic"] = workspace / "critic"
    folder = workspace / "ranks"
    folder.mkdir()
    policy_of_two(folder, make_config(task_sampling="headroom"), inputs, workspace / "policy")
    _assert_drawn_as_feast_says(made, workspace)
    settings = make_config()
    _policy(made, workspace / "critic", workspace / "alone", task_sampling="headroom")
    table = read_table(path_of(workspace / "policy" / FOLDER, "sibling_contrast"))
    assert len(table) == settings.policy.iterations * settings.policy.tasks_per_iteration
    assert set(table.column("group_size").to_pylist()) == {settings.policy.siblings}, "groups are whole"
    first, other = (_drawn(workspace / name, 0) for name in ("policy", "alone"))
    assert first == other


def _assert_drawn_as_feast_says(made, workspace):
    """Hold the tasks that `workspace/policy` has played to what the store says of each iteration's time."""
    config, tasks = make_config(), read_tasks(made["tasks"], "train")
    folders = [made["preferences"] / FOLDER, workspace / "policy" / FOLDER]
    gather(folders, workspace / "features/tables")
    store = private_store(workspace / "features")
    keys = {"task_id": [t.task_id for t in tasks], "family": [t.family for t in tasks]}
    for iteration in range(config.policy.iterations):
        times = pa.array([time_of(KNOWN, COLLECTED + iteration)] * len(tasks), TIME)
        frame = pa.table({**keys, "siblings": [config.policy.siblings] * len(tasks), EVENT: times})
        known = store.as_of(SAMPLER, frame).column("headroom").to_numpy()
        seed = seed_of(config.seed, "tasks by headroom", iteration)
        drawn = headroom.draw(known, config.policy.tasks_per_iteration, seed=seed)
        assert _drawn(workspace / "policy", iteration) == sorted(tasks[index].task_id for index in drawn)


def test_how_tasks_are_drawn_is_a_choice_and_the_frame_is_told(made, workspace):
    _critic(made, workspace / "critic")
    for sampling in ("uniform", "headroom"):
        metrics = _policy(made, workspace / "critic", workspace / sampling, task_sampling=sampling)
        assert metrics["frame"] == read_frame(made["preferences"] / FRAMES, SAMPLER).told()
    drawn = [[_drawn(workspace / name, k) for k in range(4)] for name in ("uniform", "headroom")]
    assert drawn[0] != drawn[1]
    assert all(len(tasks) == 3 for tasks in drawn[0] + drawn[1])


def test_a_frame_of_other_rollouts_is_refused(made, workspace):
    other = workspace / "other"
    shutil.copytree(made["preferences"], other)
    path = other / "frames/critic_v1.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    _seal(other, "preferences")
    with pytest.raises(UserError, match="critic_v1 has 41 rows, not 42: it was made from other rollouts"):
        _critic({**made, "preferences": other}, workspace / "critic")
    path.unlink()
    _seal(other, "preferences")
    with pytest.raises(UserError, match=r"no frame of critic_v1.*Run the stage `preferences` again"):
        _critic({**made, "preferences": other}, workspace / "critic")


def test_the_critic_may_heed_headroom_and_learns_from_the_labels_of_its_frame(made, workspace):
    plain = _critic(made, workspace / "plain")
    assert plain["frame"]["service"] == "critic_v1"
    assert _critic(made, workspace / "weighed", headroom_weight=1.0) != plain
    frames = workspace / "preferences"
    shutil.copytree(made["preferences"], frames)
    path = frames / "frames/critic_v1.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("outcome")
    flipped = pc.subtract(1.0, table.column("outcome"))
    pq.write_table(table.set_column(place, "outcome", flipped), path)
    _seal(frames, "preferences")
    assert _critic({**made, "preferences": frames}, workspace / "other")["label_mean"] != plain["label_mean"]
