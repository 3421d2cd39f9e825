"""The file that describes training jobs: which parameters of a run it becomes, and what is refused."""

import pytest
import yaml

from geartrain.cluster.jobs import JOBS, ClusterFile, read_jobs, require_jobs
from geartrain.cluster.section import ClusterSection, parse_section
from geartrain.errors import UserError
from tests.fakes.bench import IMAGE


@pytest.fixture
def read(tmp_path):
    def call(record):
        path = tmp_path / "cluster.yaml"
        path.write_text(record if isinstance(record, str) else yaml.safe_dump(record))
        return read_jobs(path)

    return call


def test_a_file_gives_what_it_says_and_no_default(read, tmp_path):
    told = {"image": IMAGE, "nodes": 2, "run_seconds": 60}
    assert read({**told, "priority_class": None}) == {"cluster": told}
    # Kubeflow takes no null, and a default waits
    jobs = read({"image": IMAGE, "queue": None})
    assert jobs == {"cluster": {"image": IMAGE, "queue": ""}}
    assert parse_section(ClusterSection, jobs["cluster"], source="cluster").queue == ""
    with pytest.raises(UserError, match=r"cluster.yaml: 1 problem\(s\)\n  image: is missing"):
        read("nodes: 2\n")
    with pytest.raises(UserError, match=r"nowhere.yaml: no such file. It holds what the training job asks for"):
        read_jobs(tmp_path / "nowhere.yaml")


def test_other_jobs_are_like_the_policy_s_but_for_sizes(read):
    policy = {"image": IMAGE, "nodes": 4, "gpus": 8, "processes_per_node": 8, "cpu": "64", "memory": "900Gi"}
    shared = {"priority_class": "low", "queue": None, "variables": {"A": "1"}}
    other = IMAGE.replace("a" * 64, "b" * 64)
    jobs = read({**policy, **shared, "critic": {}, "reward_model": {"image": other, "cpu": "8", "queue": "cpus"}})
    assert jobs == {
        "cluster": {**policy, **shared, "queue": ""},
        "critic_cluster": {"image": IMAGE, **shared, "queue": ""},
        "reward_model_cluster": {"image": other, **shared, "cpu": "8", "queue": "cpus"},
    }
    assert read({**policy, "critic": None}) == {"cluster": policy}
    placed = read({**policy, "critic": {"gpus": 1}, "reward_model": {"gpus": 1}})
    assert {placed[f"{stage}_cluster"]["gpus"] for stage in ("critic", "reward_model")} == {1}
    assert set(jobs) == set(JOBS.values())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"critic": {"nodes": 2}}, r"cluster.yaml: critic: 1 problem\(s\)\n.*runs in one process: nodes 1"),
        ({"critic": {"gpus": 2, "processes_per_node": 2}}, "runs in one process: .*gpus 0 or 1"),
        ({"reward_model": {"gpus": 2}}, "each process uses one GPU"),
        ({"critic": {"cpus": "8"}}, "cpus: unknown key; did you mean 'cpu'"),
        ({"critic": {"critic": {}}}, "critic: unknown key"),
        ({"critic": 8}, "critic: Input should be a valid dictionary"),
        ({"critics": {}}, "critics: unknown key; did you mean 'critic'"),
        ({"evaluation": {}}, "evaluation: unknown key"),
    ],
)
def test_a_job_that_cannot_be_is_refused(read, more, message):
    with pytest.raises(UserError, match=f"(?s){message}"):
        read({"image": IMAGE, **more})


def test_a_step_that_can_only_launch_is_told_what():
    require_jobs({}, {}, source="p.yaml")
    require_jobs({"policy": "cluster"}, {"cluster": {"image": IMAGE}}, source="p.yaml")
    for given in ({}, {"cluster": {}}, {"critic_cluster": {"image": IMAGE}}):
        with pytest.raises(UserError, match=r"p.yaml: .*policy runs as a training job.*Give --cluster FILE"):
            require_jobs({"policy": "cluster"}, given, source="p.yaml")


def test_every_setting_says_what_it_does():
    assert [name for name, field in ClusterFile.model_fields.items() if not field.description] == []
