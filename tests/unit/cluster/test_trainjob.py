"""A TrainJob carries what Trainer 2.3 knows and Kueue can resume; what cannot work is refused before it is sent."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geartrain.cluster import naming
from geartrain.cluster.trainjob import REMOVED, Owner, Placement, Resources, TrainingJob, manifest, problems, spec_hash
from geartrain.errors import UserError
from tests.fakes import crd

EVERYTHING = {
    "priority_class": "training",
    "deadline_seconds": 3600,
    "owner": Owner("argoproj.io/v1alpha1", "Workflow", "geartrain-abc", "8b1c"),
    "placement": Placement(
        node_selector={"gpu": "h200"},
        tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 60},),
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
                ]
            }
        },
    ),
}
BARE = {"queue": None, "args": (), "environment": {}, "resources": Resources()}
MAKES = pytest.mark.parametrize("changes", [{}, EVERYTHING, BARE], ids=["usual", "everything", "bare"])
Make = Callable[..., TrainingJob]


def _pod(body: dict[str, Any]) -> dict[str, Any]:
    (patch,) = body["spec"]["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["name"] == "node"
    return replicated["template"]["spec"]["template"]


@MAKES
def test_every_field_is_one_of_trainers(changes: dict[str, Any], make_job: Make) -> None:
    assert crd.problems_of_train_job(manifest(make_job(**changes))) == []


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)
NAMES = st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True)
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["2", "500m", "1.5", "64Gi"]))
TOLERATIONS = st.fixed_dictionaries(
    {"operator": st.sampled_from(["Exists", "Equal"])},
    optional={"key": NAMES, "value": NAMES, "effect": st.just("NoSchedule"), "tolerationSeconds": st.integers(0, 99)},
)
JOBS = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 64),
        "processes_per_node": st.integers(1, 16),
        "attempt": st.integers(1, 9),
        "stage": st.sampled_from(["policy", "reward_model", "critic"]),
        "args": st.lists(TEXT, max_size=4).map(tuple),
        "environment": st.dictionaries(NAMES, TEXT, max_size=4),
        "resources": st.builds(Resources, AMOUNTS, AMOUNTS),
        "queue": st.none() | NAMES,
        "priority_class": st.none() | NAMES,
        "deadline_seconds": st.none() | st.integers(1, 10**6),
        "placement": st.builds(Placement, st.dictionaries(NAMES, NAMES), st.lists(TOLERATIONS, max_size=3)),
        "owner": st.none() | st.builds(Owner, st.just("argoproj.io/v1alpha1"), st.just("Workflow"), NAMES, NAMES),
    }
)


@given(changes=JOBS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_for_no_field_is_dropped(changes: dict[str, Any], make_job: Make) -> None:
    body = manifest(make_job(**changes))
    assert crd.problems_of_train_job(body) == []
    assert not REMOVED & set(_keys(body))


def _keys(value: Any) -> Iterator[str]:
    """All keys, however deep."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from value if isinstance(value, dict) else ()
    for item in inside:
        yield from _keys(item)


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("podSpecOverrides", [], "podSpecOverrides"),
        ("podTemplateOverrides", [], "podTemplateOverrides"),
        ("ttlSecondsAfterFinished", 60, "ttlSecondsAfterFinished"),
    ],
)
def test_old_fields_are_found(key: str, value: object, found: str, job: TrainingJob) -> None:
    body = manifest(job)
    body["spec"][key] = value
    assert [text for text in problems(body) if found in text]
    assert crd.lost_by_models(body) != []  # the comparison sees what from_dict alone hides


@pytest.mark.parametrize("processes", ["auto", 0, True, 8.0])
def test_processes_per_node_are_an_integer(processes: object, job: TrainingJob, make_job: Make) -> None:
    body = manifest(job)
    body["spec"]["trainer"]["numProcPerNode"] = processes
    assert "numProcPerNode" in problems(body)[0]
    with pytest.raises(UserError, match="processes_per_node"):
        make_job(processes_per_node=processes)


@pytest.mark.parametrize("key", ["containers", "volumes", "initContainers", "serviceAccountName", "securityContext"])
def test_a_patch_that_kueue_cannot_unsuspend_is_found(key: str, job: TrainingJob) -> None:
    body = manifest(job)
    _pod(body).setdefault("spec", {})[key] = {}
    assert problems(body) == [f"runtimePatches: {key} keeps Kueue from unsuspending it"]


def test_a_patch_of_an_unknown_job_is_found(job: TrainingJob) -> None:
    body = manifest(job)
    (replicated,) = body["spec"]["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    replicated["name"] = "trainer"
    assert "'trainer'" in problems(body)[0]


def test_placement_is_all_that_is_patched(make_job: Make) -> None:
    pod = _pod(manifest(make_job(**EVERYTHING)))
    assert set(pod) == {"metadata", "spec"}
    assert set(pod["spec"]) == {"nodeSelector", "tolerations", "affinity"}
    assert set(_pod(manifest(make_job()))) == {"metadata"}


def test_the_manifest_says_what_was_asked(make_job: Make) -> None:
    body = manifest(make_job(**EVERYTHING))
    assert body["spec"]["runtimeRef"] == {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": "geartrain-torch",
    }
    trainer = body["spec"]["trainer"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["env"] == [{"name": "OMP_NUM_THREADS", "value": "2"}]
    assert trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == "8"
    assert body["spec"]["activeDeadlineSeconds"] == 3600
    labels = body["metadata"]["labels"]
    assert labels.items() >= naming.labels(make_job().run, "policy").items()
    assert labels["kueue.x-k8s.io/queue-name"] == "geartrain"
    assert labels["kueue.x-k8s.io/priority-class"] == "training"
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "geartrain-abc", "uid": "8b1c"}
    ]


@pytest.mark.parametrize("image", ["geartrain/python:dev", "geartrain/python", f"x@sha256:{'a' * 63}", "x@md5:abc", ""])
def test_an_image_without_digest_is_refused_with_a_way_out(image: str, make_job: Make) -> None:
    with pytest.raises(UserError, match="write name@sha256"):
        make_job(image=image)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": True}, "nodes is True"),
        ({"attempt": 0}, "attempt is 0"),
        ({"command": ()}, "command is empty"),
        ({"args": ("x",) * 129}, "args has 129"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"environment": {"PET_NNODES": "2"}}, "PET_NNODES"),
        ({"environment": {"a-b": "2"}}, "'a-b'"),
        ({"environment": {"A": 2}}, "quote it"),
        ({"resources": Resources({"cpu": 8})}, "'8'"),
        ({"resources": Resources({"memory": "64GB"})}, "64Gi"),
        ({"resources": Resources({"nvidia.com/gpu": "8"})}, "limit equal"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], words: str, make_job: Make) -> None:
    with pytest.raises(UserError, match=words):
        make_job(**changes)


def test_all_problems_are_told_at_once(make_job: Make) -> None:
    with pytest.raises(UserError, match="3 problem"):
        make_job(image="x", nodes=0, command=())


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 3},
        {"processes_per_node": 4},
        {"image": f"x@sha256:{'b' * 64}"},
        {"command": ("true",)},
        {"args": ()},
        {"environment": {}},
        {"resources": Resources({"cpu": "1"})},
        {"deadline_seconds": 60},
        {"placement": Placement({"gpu": "a100"})},
    ],
)
def test_the_hash_sees_what_is_trained(changes: dict[str, Any], make_job: Make) -> None:
    assert _hash(make_job(**changes)) != _hash(make_job())


@pytest.mark.parametrize(
    "changes",
    [{"attempt": 2}, {"queue": "other"}, {"priority_class": "low"}, {"owner": Owner("v1", "Pod", "p", "u")}],
)
def test_the_hash_does_not_see_attempt_labels_and_owner(changes: dict[str, Any], make_job: Make) -> None:
    assert _hash(make_job(**changes)) == _hash(make_job())


def test_the_hash_does_not_depend_on_the_order_of_keys(make_job: Make) -> None:
    assert _hash(make_job(environment={"A": "1", "B": "2"})) == _hash(make_job(environment={"B": "2", "A": "1"}))
    body = manifest(make_job())
    assert spec_hash(dict(reversed(body.items()))) == _hash(make_job())


def _hash(job: TrainingJob) -> str:
    return manifest(job)["metadata"]["annotations"]["geartrain.dev/spec-hash"]
