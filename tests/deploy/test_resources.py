"""What each pod asks for and how it runs, for each site."""

import os
from pathlib import Path

import pytest
import yaml
from kfp import dsl
from kfp.compiler import Compiler

from components.sites import REGISTRIES, SITES, Site, chosen
from geartrain.cluster.jobs import JOBS
from geartrain.errors import UserError
from geartrain.supply.kubeflow_registry import ADDRESS as KUBEFLOW
from geartrain.supply.mlflow_registry import ADDRESS as MLFLOW
from geartrain.supply.signing import KEY, PRIVATE
from geartrain.withdrawals import PLACES
from pipelines.compiled import Compiled, Task, read_compiled
from pipelines.lint import lint
from pipelines.resources import KEYS, NOBODY, NODES, TABLE, TOMBSTONES, VARIABLES, sized
from tests.deploy import traps
from tests.deploy.conftest import RELEASED
from tests.deploy.rendering import K8S, one, overlay

SECRET_VARIABLES = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


@pytest.fixture(scope="module")
def prod(released: Path) -> Compiled:
    return read_compiled(released / "training.yaml")


def leaves(compiled: Compiled) -> dict[str, Task]:
    return {task.name: task for task in compiled.tasks if task.container}


def variables(task: Task) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in task.container["env"]}


def test_every_pod_heeds_what_was_withdrawn_since_its_image(prod: Compiled, compiled_pipeline: Compiled) -> None:
    for compiled in (prod, compiled_pipeline):
        for task in leaves(compiled).values():
            (volume,) = task.platform["configMapAsVolume"]
            assert (volume["configMapName"], volume["optional"]) == (TOMBSTONES, True)
            image, mounted = variables(task)[PLACES].split(os.pathsep)
            assert mounted == volume["mountPath"]
    runtime = one(overlay("prod"), "TrainingRuntime", "geartrain-torch")["spec"]["template"]["spec"]["replicatedJobs"][
        0
    ]
    pod = runtime["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {"name": PLACES, "value": f"{image}:{mounted}"} in container["env"], "a training pod does as a step does"
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == mounted]
    (source,) = [volume["configMap"] for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert source == {"name": TOMBSTONES, "optional": True}
    assert f"GEARTRAIN_WITHDRAWN={image}" in (K8S.parent / "Dockerfile").read_text()


def test_every_task_has_its_row(compiled_pipeline: Compiled) -> None:
    assert set(leaves(compiled_pipeline)) == set(TABLE)
    for name, task in leaves(compiled_pipeline).items():
        row, resources = TABLE[name], task.container["resources"]
        assert resources["resourceCpuRequest"] == row.cpu
        assert resources["resourceMemoryRequest"] == resources["resourceMemoryLimit"] == row.memory
        assert "accelerator" not in resources
        assert task.body["retryPolicy"]["maxRetryCount"] == row.retries
        sizes = {mount["mountPath"]: mount["sizeLimit"] for mount in task.platform["emptyDirMounts"]}
        assert sizes == {"/work": row.scratch, "/tmp": "1Gi"}


def test_nodes_of_a_job_get_what_the_runtime_gives_them(prod: Compiled) -> None:
    # an older server drops accelerators silently (kubeflow/pipelines#11374), so they are looked at here
    policy = leaves(prod)["policy"]
    row = NODES["policy"]
    assert policy.container["resources"]["accelerator"] == {
        "resourceType": row.accelerator,
        "resourceCount": str(row.accelerators),
        "type": row.accelerator,
        "count": str(row.accelerators),
    }
    patches = yaml.safe_load((K8S / "components/gpu/node.yaml").read_text())
    (given,) = [patch["value"] for patch in patches if patch["path"].endswith("/resources")]
    amounts = {"cpu": row.cpu, "memory": row.memory, row.accelerator: str(row.accelerators)}
    assert given == {"requests": amounts, "limits": amounts}


def test_a_launcher_holds_none_of_what_its_job_waits_for(compiled_pipeline: Compiled, prod: Compiled) -> None:
    def handed_on(compiled: Compiled, stage: str) -> dict[str, bool]:
        entries = leaves(compiled)[stage].component["taskConfigPassthroughs"]
        return {entry["field"]: entry.get("applyToTask", False) for entry in entries}

    placed = {"RESOURCES", "KUBERNETES_TOLERATIONS", "KUBERNETES_NODE_SELECTOR"}
    own = {"ENV": True, "KUBERNETES_VOLUMES": True}
    both = {**dict.fromkeys(placed, True), **own}
    assert handed_on(prod, "policy") == {**dict.fromkeys(placed, False), **own}
    assert handed_on(compiled_pipeline, "policy") == both
    assert variables(leaves(prod)["policy"])["GEARTRAIN_LAUNCH_ONLY"] == "1"
    assert "GEARTRAIN_LAUNCH_ONLY" not in variables(leaves(compiled_pipeline)["policy"])
    # these have no GPUs to hold, and no run has to give them to a job
    for stage in ("critic", "reward-model"):
        for compiled in (compiled_pipeline, prod):
            assert handed_on(compiled, stage) == both
            assert "GEARTRAIN_LAUNCH_ONLY" not in variables(leaves(compiled)[stage])
            assert "accelerator" not in leaves(compiled)[stage].container["resources"]


def test_a_launcher_fits_what_the_namespace_gives_by_default() -> None:
    # its pod gets no resources of its own (see HANDED_ON); with torch loaded to check the stage it holds 446 MiB
    (entry,) = one(overlay("prod"), "LimitRange", "geartrain")["spec"]["limits"]
    assert entry["default"]["memory"] == "1Gi"


def test_pods_run_as_the_image_s_nobody_and_say_whose_they_are(compiled_pipeline: Compiled, root: Path) -> None:
    assert f"USER {NOBODY}:{NOBODY}" in (root / "Dockerfile").read_text()
    for name, task in leaves(compiled_pipeline).items():
        context = {"runAsUser": str(NOBODY), "runAsGroup": str(NOBODY), "runAsNonRoot": True}
        assert task.platform["securityContext"] == context
        labels = task.platform["podMetadata"]["labels"]
        assert labels == {
            "app.kubernetes.io/part-of": "geartrain",
            "geartrain.dev/pipeline": "geartrain",
            "geartrain.dev/stage": name,
        }


def test_variables_are_set_before_libraries_are_loaded(compiled_pipeline: Compiled) -> None:
    for task in leaves(compiled_pipeline).values():
        assert {**VARIABLES, "GEARTRAIN_HOME": "/work"}.items() <= variables(task).items()
        assert task.platform["emptyDirMounts"][0]["mountPath"] == "/work"


OF_EVERY_STEP = {
    "GEARTRAIN_RUN_ID": "metadata.labels['pipeline/runid']",
    "GEARTRAIN_NAMESPACE": "metadata.namespace",
}


def test_every_step_knows_what_its_lineage_says_of_it(compiled_pipeline: Compiled) -> None:
    for task in leaves(compiled_pipeline).values():
        told = {told["name"]: told["fieldPath"] for told in task.platform["fieldPathAsEnv"]}
        assert OF_EVERY_STEP.items() <= told.items()


def test_run_id_comes_from_the_pod_and_is_in_no_cache_key(compiled_pipeline: Compiled) -> None:
    itself = {"GEARTRAIN_POD": "metadata.name", "GEARTRAIN_POD_UID": "metadata.uid"}
    launching = {stage.replace("_", "-") for stage in JOBS}
    for name, task in leaves(compiled_pipeline).items():
        found = {told["name"]: told["fieldPath"] for told in task.platform["fieldPathAsEnv"]}
        assert found == {**OF_EVERY_STEP, **(itself if name in launching else {})}
    for name in launching:
        assert leaves(compiled_pipeline)[name].cached
        assert leaves(compiled_pipeline)[name].constants == {}


def test_secrets_are_named_never_written(compiled_pipeline: Compiled, prod: Compiled) -> None:
    rendered = yaml.safe_load((K8S / "components/external-secret/secret.yaml").read_text())
    bucket = rendered["spec"]["target"]["name"], {entry["secretKey"] for entry in rendered["spec"]["data"]}
    kubeflows = "mlpipeline-minio-artifact", {"accesskey", "secretkey"}
    wanted = [(task, bucket) for task in leaves(prod).values()]
    wanted += [(task, kubeflows) for task in leaves(compiled_pipeline).values()]
    for task, (name, keys) in wanted:
        secret, *_ = sorted(task.platform["secretAsEnv"], key=lambda entry: entry["secretName"] == REGISTRIES)
        assert secret["secretName"] == name
        assert {entry["secretKey"] for entry in secret["keyToEnv"]} == keys
        assert {entry["envVar"] for entry in secret["keyToEnv"]} == SECRET_VARIABLES
        assert secret["optional"] is True
        assert not SECRET_VARIABLES & variables(task).keys()


def test_the_key_that_signs_is_in_the_step_that_promotes_alone(compiled_pipeline: Compiled, prod: Compiled) -> None:
    rendered = yaml.safe_load((K8S / "components/signing/secret.yaml").read_text())["spec"]
    assert [entry["secretKey"] for entry in rendered["data"]] == [PRIVATE], "the file that find_key looks for"
    for compiled in (compiled_pipeline, prod):
        mounts = {name: task.platform.get("secretAsVolume", []) for name, task in leaves(compiled).items()}
        (mount,) = mounts.pop("promotion")
        assert (mount["secretName"], mount["mountPath"]) == (rendered["target"]["name"], KEYS)
        assert mount["optional"] is True
        assert not any(mounts.values())
        told = [name for name, task in leaves(compiled).items() if KEY in variables(task)]
        assert (told, variables(leaves(compiled)["promotion"])[KEY]) == (["promotion"], KEYS)


def test_registries_are_told_to_the_step_that_registers_alone(compiled_pipeline: Compiled, prod: Compiled) -> None:
    told = yaml.safe_load((K8S / "components/registries/config.yaml").read_text())
    assert (told["metadata"]["name"], set(told["data"])) == (REGISTRIES, {MLFLOW, KUBEFLOW})
    for compiled in (compiled_pipeline, prod):
        for name, task in leaves(compiled).items():
            named = [
                entry
                for kind, key in (("configMapAsEnv", "configMapName"), ("secretAsEnv", "secretName"))
                for entry in task.platform.get(kind, [])
                if entry[key] == REGISTRIES
            ]
            assert len(named) == (2 if name == "register" else 0)
            assert all(entry["optional"] for entry in named)


def test_a_release_names_images_by_digest_and_is_in_no_trap(prod: Compiled) -> None:
    assert {task.container["image"] for task in leaves(prod).values()} == {RELEASED}
    assert lint(prod, release=True) == []
    assert leaves(prod)["resolve"].constants == {"image": RELEASED}


def test_sites_are_those_of_the_overlays() -> None:
    assert set(SITES) <= {path.name for path in (K8S / "overlays").iterdir()}
    assert chosen("prod") is SITES["prod"]
    with pytest.raises(UserError, match="GEARTRAIN_SITE=staging: no such site; there are dev, prod"):
        chosen("staging")


def test_a_site_s_nodes_are_found(tmp_path: Path) -> None:
    place = Site(node_selector={"pool": "train"}, tolerations=[{"key": "pool", "operator": "Exists"}])

    @traps.component
    def critic(dataset_rev: str, dataset_digest: str, image_digest: str) -> None: ...

    @dsl.pipeline(name="placed")
    def placed() -> None:
        sized(critic(**traps.MARKS), place)

    Compiler().compile(placed, str(tmp_path / "placed.yaml"))
    (task,) = read_compiled(tmp_path / "placed.yaml").tasks
    assert task.platform["nodeSelector"] == {"labels": {"pool": "train"}}
    (toleration,) = task.platform["tolerations"]
    assert toleration["key"] == "pool"
    assert toleration["operator"] == "Exists"


def test_a_task_without_a_row_does_not_compile() -> None:
    with pytest.raises(KeyError, match="step"):

        @dsl.pipeline(name="rowless")
        def rowless() -> None:
            sized(traps.step(text="x", **traps.MARKS))
