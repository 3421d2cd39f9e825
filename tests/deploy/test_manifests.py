"""Every rendered manifest fits its API, and the overlays are what docs/cluster.md says."""

import copy
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.resources import TABLE, WORK
from tests.deploy import validation
from tests.deploy.rendering import K8S, OVERLAYS, kustomize_version, one, overlay, render, smoke_job
from tests.deploy.validation import closed, lost, problems

Document = dict[str, Any]
MINUTES = {"h": 60, "m": 1}


@pytest.mark.parametrize("name", OVERLAYS)
def test_every_manifest_fits_its_api(name: str) -> None:
    assert [found for document in overlay(name) for found in problems(document)] == []


def test_single_documents_fit_their_apis() -> None:
    assert problems(smoke_job()) == []
    assert problems({**_kueue(), "metadata": {"name": "kueue"}})  # a Configuration has none
    assert validation._CHECKS["config.kueue.x-k8s.io", "Configuration"](_kueue()) == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_reaper_cleans_the_volume_that_training_writes_to(name: str) -> None:
    cron = one(overlay(name), "CronJob", "geartrain-reaper")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    runtime = one(overlay(name), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    claims = []
    for pod in (cron, runtime["template"]["spec"]["template"]["spec"]):
        mounted = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        claims.append(volumes[mounted[WORK]]["persistentVolumeClaim"]["claimName"])
    assert claims == ["geartrain-work"] * 2
    told = {entry["name"]: entry.get("value") for entry in cron["containers"][0]["env"]}
    assert (told["GEARTRAIN_WORK"], float(told["GEARTRAIN_KEEP_DAYS"])) == (WORK, 7.0)


def _change(kind: str, path: str, value: Any) -> Callable[[], list[str]]:
    """Return the problems of the prod overlay's first document of a kind, with `value` at `path`."""

    def found() -> list[str]:
        document = copy.deepcopy(next(found for found in overlay("prod") if found["kind"] == kind))
        *parents, last = path.split("/")
        place: Any = document
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        place[last] = value
        return problems(document)

    return found


JOB = "spec/template/spec/replicatedJobs/0/template/spec"


@pytest.mark.parametrize(
    "found",
    [
        _change("CronJob", "spec/timezone", "UTC"),
        _change("CronJob", "spec/schedule", 15),
        _change("NetworkPolicy", "spec/policyType", ["Egress"]),
        _change("ResourceQuota", "spec/hard", ["pods"]),
        _change("TrainingRuntime", "spec/mlPolicy/torch", {"numProcPerNode": "auto"}),  # gone since 2.2
        _change("TrainingRuntime", "spec/podSpecOverrides", []),
        _change("TrainingRuntime", "spec/template/spec/failurePolicy/maxRetries", 3),
        _change("TrainingRuntime", "spec/template/spec/failurePolicy/maxRestarts", "3"),
        _change("TrainingRuntime", f"{JOB}/template/spec/terminationGracePeriod", 120),
        _change("TrainingRuntime", f"{JOB}/template/spec/containers/0/securityContext/readOnlyRoot", True),
        _change("PodMonitor", "spec/podMetricsEndpoints/0/filterRunnig", True),
        _change("PodMonitor", "spec/podMetricsEndpoints/0/interval", "30 seconds"),
        _change("ClusterQueue", "spec/cohort", "all"),  # v1beta1's name
        _change("ClusterQueue", "spec/resourceGroups/0/flavors/0/resources/0/nominalQuota", "many"),
        _change("LocalQueue", "spec/queue", "geartrain"),
        _change("ResourceFlavor", "apiVersion", "kueue.x-k8s.io/v1beta1"),
        _change("ExternalSecret", "spec/data/0/value", "x"),
        lambda: problems({"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "it"}}),
    ],
)
def test_a_mistake_is_found(found: Callable[[], list[str]]) -> None:
    assert found() != []


def test_what_a_model_drops_or_changes_is_found() -> None:
    given = {"a": 1, "b": {"c": [1, {"d": 2}]}, "e": {}}
    assert lost(given, copy.deepcopy(given)) == []
    assert lost(given, {"a": 1, "b": {"c": [1, {"d": 2}]}}) != []
    assert lost({"cpu": "8"}, {"cpu": 8}) == []
    assert len(lost(given, {"a": 2, "b": {"c": [1, {}]}, "e": {}})) == 2


def test_a_crd_beside_the_checkout_is_used(tmp_path: Path) -> None:
    spec = {"type": "object", "properties": {"size": {"x-kubernetes-int-or-string": True}, "free": {"type": "object"}}}
    spec["properties"]["free"]["x-kubernetes-preserve-unknown-fields"] = True
    schema = {"type": "object", "properties": {"apiVersion": {}, "kind": {}, "metadata": {}, "spec": spec}}
    crd = {
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.org",
            "names": {"kind": "Gadget"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
        },
    }
    (tmp_path / "gadget.yaml").write_text(yaml.safe_dump(crd))
    good = {"apiVersion": "example.org/v1", "kind": "Gadget", "metadata": {"name": "it"}, "spec": {"size": "1Gi"}}
    good["spec"]["free"] = {"anything": 1}
    assert problems(good, crds=tmp_path) == []
    assert problems({**good, "spec": {"sizes": 1}}, crds=tmp_path) != []
    assert problems(good) != []
    assert closed({"type": "object"}) == {"type": "object"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_rendering_twice_gives_the_same_documents(name: str) -> None:
    assert tuple(render(K8S / "overlays" / name)) == overlay(name)
    keys = [(found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"]) for found in overlay(name)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('{"clientVersion": {"minor": "20"}}', (0,)),  # Debian 12's: kustomize 2.0.3, and it does not say so
        ('{"kustomizeVersion": "v5.8.1"}', (5, 8)),
        ("oh", (0,)),
    ],
)
def test_an_old_kubectl_is_told_from_a_new_one(answer: str, version: tuple[int, ...], tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    assert kustomize_version(str(program)) == version


def test_a_team_brings_nothing_for_the_whole_cluster_but_its_namespace() -> None:
    cluster_wide = [found["kind"] for found in overlay("team") if "namespace" not in found["metadata"]]
    assert cluster_wide == ["Namespace"]
    assert one(overlay("team"), "LocalQueue", "geartrain")["spec"]["clusterQueue"] in {
        found["metadata"]["name"] for found in overlay("prod") if found["kind"] == "ClusterQueue"
    }
    assert "geartrain-example/prod" not in str(overlay("team"))
    assert "'geartrain/s3'" not in str(overlay("team"))


def test_queue_admits_the_namespaces_of_every_overlay() -> None:
    wanted = one(overlay("prod"), "ClusterQueue", "geartrain-gpu")["spec"]["namespaceSelector"]["matchLabels"]
    for name in OVERLAYS:
        (namespace,) = [found for found in overlay(name) if found["kind"] == "Namespace"]
        assert wanted.items() <= namespace["metadata"]["labels"].items()


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_every_flavor_of_the_queue_exists_and_lists_every_resource(name: str) -> None:
    flavors = {found["metadata"]["name"] for found in overlay(name) if found["kind"] == "ResourceFlavor"}
    for group in one(overlay(name), "ClusterQueue", "geartrain-gpu")["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            assert flavor["name"] in flavors
            # Kueue's rule: the same resources in the same order
            assert [entry["name"] for entry in flavor["resources"]] == group["coveredResources"]


def test_pipeline_may_run_trainjobs_and_read_what_it_shows() -> None:
    # Kubeflow's stock account gets 403 at the first TrainJob
    role = one(overlay("prod"), "Role", "geartrain-pipeline")
    granted = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    wanted = {("trainjobs", verb) for verb in ("create", "get", "list", "watch", "patch", "delete")}
    wanted |= {("workflowtaskresults", "create"), ("workflowtaskresults", "patch"), ("configmaps", "get")}
    wanted |= {("pods", "get"), ("pods", "list"), ("pods/log", "get"), ("events", "list")}
    assert granted == wanted
    reaper = one(overlay("prod"), "Role", "geartrain-reaper")["rules"]
    assert {verb for rule in reaper if rule["resources"] == ["trainjobs"] for verb in rule["verbs"]} == {
        "list",
        "delete",
    }


def test_runtime_names_what_the_launcher_patches() -> None:
    # a patch that names another job is appended, not refused (kubernetes-sigs/kueue#14504)
    (job,) = one(overlay("prod"), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["name"] == "node"
    assert [container["name"] for container in job["template"]["spec"]["template"]["spec"]["containers"]] == ["node"]
    assert job["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert smoke_job()["spec"]["runtimeRef"]["name"] == "geartrain-torch"


def test_disruptions_cost_no_restart_and_user_errors_get_none() -> None:
    jobset = one(overlay("prod"), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]
    rules = {rule["name"]: rule for rule in jobset["failurePolicy"]["rules"]}
    job = jobset["replicatedJobs"][0]["template"]["spec"]
    # the job controller's own words (pkg/controller/job/pod_failure_policy.go)
    evicted = "Pod geartrain/x-node-0-1 has condition DisruptionTarget matching FailJob rule at index 0"
    mistaken = "Container node for pod geartrain/x-node-0-1 failed with exit code 2 matching FailJob rule at index 1"
    chosen = [
        next(rule["action"] for rule in rules.values() if re.search(rule["onJobFailureMessagePatterns"][0], message))
        for message in (evicted, mistaken)
    ]
    assert chosen == ["RestartJobSetAndIgnoreMaxRestarts", "FailJobSet"]
    assert {reason for rule in rules.values() for reason in rule["onJobFailureReasons"]} == {"PodFailurePolicy"}
    assert [rule["action"] for rule in job["podFailurePolicy"]["rules"]] == ["FailJob", "FailJob"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # podFailurePolicy asks for it


@pytest.mark.parametrize("name", OVERLAYS)
def test_shared_memory_fits_into_the_memory_limit(name: str) -> None:
    job = one(overlay(name), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    (shm,) = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shm"]
    assert shm["medium"] == "Memory"
    assert _amount(shm["sizeLimit"]) < _amount(pod["containers"][0]["resources"]["limits"]["memory"])


@pytest.mark.slow
def test_smoke_job_runs_with_the_variables_that_trainer_sets() -> None:
    trainer = smoke_job()["spec"]["trainer"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    pods = [
        subprocess.Popen(
            [*trainer["command"], *trainer["args"]],
            env={**os.environ, **shared, "PET_NODE_RANK": str(rank), "PATH": path, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(trainer["numNodes"])
    ]
    said = [pod.communicate(timeout=240)[1] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], said


@pytest.mark.parametrize("name", OVERLAYS)
def test_steps_pass_the_limit_range_and_the_quota(name: str) -> None:
    # admission sets the limit that a container does not name, then refuses a request above it
    (limits,) = one(overlay(name), "LimitRange", "geartrain")["spec"]["limits"]
    hard = one(overlay(name), "ResourceQuota", "geartrain")["spec"]["hard"]
    for row in TABLE.values():
        requests = {"cpu": row.cpu, "memory": row.memory}
        limit = {**limits["default"], "memory": row.memory}
        assert [key for key, amount in requests.items() if _amount(amount) > _amount(limit.get(key, "1000000G"))] == []
        assert _amount(row.cpu) <= _amount(hard["requests.cpu"])
        assert _amount(row.memory) <= _amount(hard["limits.memory"])


def test_kueue_waits_longer_than_the_slowest_documented_start() -> None:
    # the default of 0.19 evicts slow starters after 30 min (kubernetes-sigs/kueue#11855)
    guide = (K8S.parent / "docs/cluster.md").read_text()
    slowest = int(re.search(r"slowest start that we allow for: (\d+) min", guide)[1])
    timeout = _kueue()["waitForPodsReady"]["timeout"]
    assert sum(int(number) * MINUTES[unit] for number, unit in re.findall(r"(\d+)([hm])", timeout)) >= slowest


def test_pipelines_block_v1_manifests_and_run_as_nobody(tmp_path: Path) -> None:
    # v1 manifests may name any account (kubeflow/pipelines#14357)
    stock = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "pipeline-install-config"},
        "data": {"a": "b"},
    }
    (tmp_path / "stock.yaml").write_text(yaml.safe_dump(stock))
    (tmp_path / "component").symlink_to(K8S / "controllers/kfp")
    (tmp_path / "kustomization.yaml").write_text("resources: [stock.yaml]\ncomponents: [component]\n")
    (config,) = render(tmp_path)
    assert config["data"]["BLOCK_V1_PIPELINES"] == "true"
    assert config["data"]["a"] == "b"
    assert int(config["data"]["defaultSecurityContextRunAsUser"]) > 0


def _kueue() -> Document:
    return yaml.safe_load((K8S / "controllers/kueue.yaml").read_text())


def _amount(quantity: str) -> float:
    """CPUs or bytes; the units that our files use."""
    number, unit = re.fullmatch(r"([0-9.]+)(m|G|Mi|Gi|)", quantity).groups()
    return float(number) * {"": 1, "m": 1e-3, "G": 1e9, "Mi": 2**20, "Gi": 2**30}[unit]
