"""The network is closed but for what a run needs: the rendered NetworkPolicies, evaluated between pods."""

from typing import Any

import pytest
import yaml

from components.sites import SITES
from geartrain.places import locate
from tests.deploy.rendering import OVERLAYS, one, overlay
from tests.deploy.traffic import Address, Endpoint, Pod, matches, reaches

METRICS = 9464
API_SERVER = Address("10.96.0.1")
BUCKET = Address("52.219.170.10")
CLOUD_METADATA = Address("169.254.169.254")
DNS = Pod("kube-system", {"k8s-app": "kube-dns"})
PIPELINES = Pod("kubeflow", {"app": "ml-pipeline"})
RECORDS = Pod("kubeflow", {"component": "metadata-grpc-server"})
KFP_STORE = Pod("kubeflow", {"app": "seaweedfs"})
DATABASE = Pod("kubeflow", {"app": "mysql"})
PROMETHEUS = Pod("monitoring", {"app.kubernetes.io/name": "prometheus"})
MODEL_REGISTRY = Pod("kubeflow", {"component": "model-registry-server"})
MLFLOW = Pod("mlflow", {"app.kubernetes.io/name": "mlflow"})
STRANGER = Pod("default", {})


def _namespace(name: str) -> str:
    (found,) = [found for found in overlay(name) if found["kind"] == "Namespace"]
    return found["metadata"]["name"]


def _policies(*names: str) -> list[dict[str, Any]]:
    return [found for name in names for found in overlay(name) if found["kind"] == "NetworkPolicy"]


def _trainer(name: str) -> Pod:
    """A pod as JobSet makes it from the rendered runtime."""
    job = one(overlay(name), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    template = job["template"]["spec"]["template"]
    labels = {**template["metadata"]["labels"], "jobset.sigs.k8s.io/jobset-name": "policy-0123456789"}
    (container,) = template["spec"]["containers"]
    return Pod(_namespace(name), labels, {port["name"]: port["containerPort"] for port in container["ports"]})


def _step(name: str) -> Pod:
    return Pod(_namespace(name), {"workflows.argoproj.io/workflow": "geartrain-x7k2p"})


def _reaper(name: str) -> Pod:
    job = one(overlay(name), "CronJob", "geartrain-reaper")["spec"]["jobTemplate"]
    return Pod(_namespace(name), job["spec"]["template"]["metadata"]["labels"])


@pytest.mark.parametrize("name", OVERLAYS)
def test_training_pods_reach_each_other_and_nobody_else(name: str) -> None:
    policies, trainer = _policies(name), _trainer(name)
    assert reaches(policies, trainer, trainer, 29500)
    assert reaches(policies, trainer, DNS, 53, "UDP")
    refused: list[tuple[Endpoint, int]] = [
        (API_SERVER, 443),
        (CLOUD_METADATA, 80),
        (CLOUD_METADATA, 443),
        (PIPELINES, 8888),
        (RECORDS, 8080),
        (STRANGER, 443),
        (DNS, 443),
        (_step(name), 8080),
    ]
    assert [target for target, port in refused if reaches(policies, trainer, target, port)] == []


@pytest.mark.parametrize("name", OVERLAYS)
def test_steps_reach_both_apis_and_the_records(name: str) -> None:
    policies, step = _policies(name), _step(name)
    for target, port in ((API_SERVER, 443), (PIPELINES, 8887), (PIPELINES, 8888), (RECORDS, 8080)):
        assert reaches(policies, step, target, port)
    for target, port in ((DATABASE, 3306), (_trainer(name), 29500), (STRANGER, 443), (CLOUD_METADATA, 80)):
        assert not reaches(policies, step, target, port)


def test_registries_are_reached_by_the_step_that_registers_alone() -> None:
    for name in ("prod", "team"):
        policies, step = _policies(name), _step(name)
        register = Pod(step.namespace, {**step.labels, "geartrain.dev/stage": "register"})
        for target, port in ((MODEL_REGISTRY, 8080), (MLFLOW, 5000)):
            assert reaches(policies, register, target, port)
            assert not reaches(policies, register, target, port + 1)
            assert not any(reaches(policies, pod, target, port) for pod in (step, _trainer(name), _reaper(name)))
        forged = Pod(step.namespace, {"geartrain.dev/stage": "register"})
        assert not reaches(policies, forged, MLFLOW, 5000)


@pytest.mark.parametrize("name", OVERLAYS)
def test_reaper_reaches_both_apis_and_the_store_of_lineage_only(name: str) -> None:
    policies, reaper = _policies(name), _reaper(name)
    assert reaches(policies, reaper, API_SERVER, 6443)
    assert reaches(policies, reaper, PIPELINES, 8888)
    own, other = ((KFP_STORE, 8333), (BUCKET, 443))[:: 1 if name == "dev" else -1]
    assert reaches(policies, reaper, *own)
    for target, port in ((PIPELINES, 8887), (RECORDS, 8080), other, (_trainer(name), METRICS)):
        assert not reaches(policies, reaper, target, port)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_exporter_of_the_cluster_reads_both_apis_and_is_scraped(name: str) -> None:
    policies, deployment = _policies(name), one(overlay(name), "Deployment", "geartrain-exporter")["spec"]["template"]
    (container,) = deployment["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    exporter = Pod(_namespace(name), deployment["metadata"]["labels"], ports)
    assert reaches(policies, exporter, API_SERVER, 6443)
    assert reaches(policies, exporter, PIPELINES, 8888)
    for target, port in ((PIPELINES, 8887), (RECORDS, 8080), (BUCKET, 443), (_trainer(name), METRICS)):
        assert not reaches(policies, exporter, target, port)
    assert reaches(policies, PROMETHEUS, exporter, METRICS)
    assert not reaches(policies, STRANGER, exporter, METRICS)
    monitor = one(overlay(name), "PodMonitor", "geartrain-exporter")["spec"]
    assert matches(monitor["selector"], exporter.labels)
    assert not matches(monitor["selector"], _trainer(name).labels)
    assert str(METRICS) in container["command"]
    role = one(overlay(name), "Role", "geartrain-exporter")["rules"]
    assert {verb for rule in role for verb in rule["verbs"]} == {"get", "list"}


@pytest.mark.parametrize("name", OVERLAYS)
def test_only_prometheus_comes_in_and_only_for_metrics(name: str) -> None:
    policies, trainer = _policies(name), _trainer(name)
    assert reaches(policies, PROMETHEUS, trainer, METRICS)
    assert not reaches(policies, PROMETHEUS, trainer, 29500)
    assert not reaches(policies, Pod("monitoring", {}), trainer, METRICS)
    for pod in (STRANGER, PIPELINES, _step(name), _reaper(name)):
        assert not reaches(policies, pod, trainer, METRICS)
        assert not reaches(policies, pod, _reaper(name), 80)


def test_stores_are_reached_where_the_overlay_has_them() -> None:
    for pod in (_step("dev"), _trainer("dev")):
        assert reaches(_policies("dev"), pod, KFP_STORE, 8333)
        assert not reaches(_policies("dev"), pod, KFP_STORE, 8111)
        assert not reaches(_policies("dev"), pod, BUCKET, 443)
    for name in ("prod", "team"):
        for pod in (_step(name), _trainer(name)):
            assert reaches(_policies(name), pod, BUCKET, 443)
            assert not reaches(_policies(name), pod, BUCKET, 80)
            assert not reaches(_policies(name), pod, KFP_STORE, 8333)


@pytest.mark.parametrize("name", OVERLAYS)
def test_training_pods_are_told_of_the_store_that_they_reach(name: str) -> None:
    documents = overlay(name)
    told = one(documents, "ConfigMap", "geartrain-storage")["data"]
    launcher = one(documents, "ConfigMap", "kfp-launcher")["data"]
    provider = yaml.safe_load(launcher["providers"])["s3"]["default"]
    assert locate(told["GEARTRAIN_STORE"]).uri == told["GEARTRAIN_STORE"] == launcher["defaultPipelineRoot"]
    assert told["AWS_REGION"] == provider["region"]
    scheme = "http" if provider["disableSSL"] else "https"
    assert told.get("AWS_ENDPOINT_URL", f"https://s3.{told['AWS_REGION']}.amazonaws.com") == (
        f"{scheme}://{provider['endpoint']}"
    )
    runtime = one(documents, "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    (container,) = runtime["template"]["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": "geartrain-storage"}}]
    kept = {entry["name"]: entry.get("valueFrom", {}).get("secretKeyRef", {}) for entry in container["env"]}
    # the steps of that site, of which one launches the job, get the same keys and the same address
    site = SITES["dev" if name == "dev" else "prod"]
    ((secret, keys),) = site.secrets.items()
    for key, variable in keys.items():
        assert (kept[variable]["name"], kept[variable]["key"]) == (secret, key)
    assert set(told) <= set(site.config_maps["geartrain-storage"].values())


def test_a_team_reaches_no_other_team() -> None:
    # artifacts of another namespace were readable through Kubeflow's UI (kubeflow/pipelines#9889)
    policies = _policies("prod", "team")
    assert not reaches(policies, _trainer("team"), _trainer("prod"), 29500)
    assert not reaches(policies, _trainer("prod"), _trainer("team"), METRICS)
    assert not reaches(policies, _step("team"), _trainer("prod"), 29500)


def test_metrics_port_has_one_number() -> None:
    job = one(overlay("prod"), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    told = {entry["name"]: entry.get("value") for entry in container["env"]}["GEARTRAIN_METRICS_PORT"]
    assert _trainer("prod").ports == {"metrics": METRICS} == {"metrics": int(told)}
    monitor = one(overlay("prod"), "PodMonitor", "geartrain-training")["spec"]
    assert [endpoint["port"] for endpoint in monitor["podMetricsEndpoints"]] == ["metrics"]
    assert matches(monitor["selector"], _trainer("prod").labels)


def test_a_stage_that_is_over_waits_for_a_scrape_and_no_longer_than_the_pod_may_take() -> None:
    job = one(overlay("prod"), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    told = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    (endpoint,) = one(overlay("prod"), "PodMonitor", "geartrain-training")["spec"]["podMetricsEndpoints"]
    seconds = float(endpoint["interval"].removesuffix("s"))
    assert seconds < float(told["GEARTRAIN_METRICS_LINGER"]) < pod["terminationGracePeriodSeconds"]
    assert endpoint["filterRunning"] is True


def test_without_a_policy_everything_is_open() -> None:
    # the evaluator itself: what the policies above refuse is refused by them
    assert reaches([], _trainer("prod"), CLOUD_METADATA, 80)
    assert reaches([], STRANGER, _trainer("prod"), 29500)
    with pytest.raises(ValueError, match="NotIn"):
        matches({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}, {})
