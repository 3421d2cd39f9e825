"""What a stage asks of the cluster: defaults that fit the manifests, and errors that name the mend."""

import pytest
import yaml

from geartrain.cluster.section import ClusterSection, LoneSection, Request, parse_section
from geartrain.errors import UserError
from tests.fakes.bench import IMAGE


def parse(**changes):
    return parse_section(ClusterSection, {"image": IMAGE, **changes}, source="cluster")


def test_an_image_is_enough():
    section = parse()
    assert (section.nodes, section.processes_per_node, section.gpus) == (1, 1, 0)
    with pytest.raises(UserError, match=r"image: is missing"):
        parse_section(ClusterSection, {}, source="cluster")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"node": 2}, "  node: unknown key; did you mean 'nodes'?"),
        ({"replicas": 2}, "  replicas: unknown key; there are "),
        ({"image": "geartrain/train:v1"}, "  image: carries no digest, so that the code it names could change"),
        ({"nodes": 0}, "  nodes: Input should be greater than or equal to 1 (got 0)"),
        ({"nodes": True}, "  nodes: expected a number (got True)"),
        ({"queue_seconds": 0}, "  queue_seconds: Input should be greater than 0 (got 0)"),
        ({"work": "work"}, "  work: expected the path of a folder, such as /work (got 'work')"),
        ({"work": "/"}, "  work: expected the path of a folder"),
        ({"gpus": 8}, "  (all of it): gpus (8) and processes_per_node (1): each process uses one GPU"),
        ({"variables": {"WANDB_API_KEY": "x"}}, "  (all of it): variables.WANDB_API_KEY looks like a secret"),
        ({"variables": {"AWS_SECRET_ACCESS_KEY": "hush"}}, "looks like a secret"),
        ({"tolerations": [{"keys": "gpu"}]}, "  tolerations.0.keys: unknown key; did you mean 'key'?"),
    ],
)
def test_what_cannot_be_is_named(changes, line):
    with pytest.raises(UserError) as caught:
        parse(**changes)
    assert line in str(caught.value)
    assert str(caught.value).startswith("cluster: 1 problem(s)\n")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"nodes": 2}, {"processes_per_node": 2}, {"gpus": 2, "processes_per_node": 2}])
def test_a_stage_that_runs_alone_gets_one_process_and_at_most_one_gpu(changes):
    section = parse_section(LoneSection, {"image": IMAGE, "cpu": "8", "gpus": 1}, source="cluster")
    assert (section.cpu, section.gpus) == ("8", 1)
    with pytest.raises(UserError, match="runs in one process: nodes 1, processes_per_node 1, gpus 0 or 1"):
        parse_section(LoneSection, {"image": IMAGE, **changes}, source="cluster")


def test_every_setting_says_what_it_does():
    fields = ClusterSection.model_fields.items()
    assert [name for name, field in fields if not field.description] == []


def test_start_and_queue_fit_the_manifests(root):
    """Kueue has to give a job longer than we do (kueue#11855), and the queue is the one that is installed."""
    kueue = yaml.safe_load((root / "k8s/controllers/kueue.yaml").read_text())
    text = yaml.safe_dump(kueue)
    assert "waitForPodsReady" in text
    queue = yaml.safe_load((root / "k8s/base/queue.yaml").read_text())
    assert parse().queue == queue["metadata"]["name"]
    runtime = yaml.safe_load((root / "k8s/base/runtime.yaml").read_text())
    pod = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert parse().work in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"cpu": parse().cpu, "memory": parse().memory} == container["resources"]["limits"]


def test_a_request_is_checked_as_well():
    with pytest.raises(UserError, match=r"outputs: unknown key; did you mean 'output'\?"):
        parse_section(
            Request,
            {"stage": "policy", "record": {}, "inputs": {}, "output": "/o", "result": "/r", "outputs": "/o"},
            source="request",
        )
