"""Registration in a real MLflow server: once, with the data that made the model, and no version of what failed."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from mlflow import MlflowClient
from mlflow.entities import Dataset, DatasetInput
from mlflow.exceptions import MlflowException

from geartrain.errors import InfrastructureError, UserError
from geartrain.supply import mlflow_registry
from geartrain.supply.registration import describe, register
from tests.fakes.kubeflow_server import KubeflowServer
from tests.fakes.mlflow_server import mlflow_server
from tests.fakes.promoted import promoted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as address:
        yield address


@pytest.fixture
def client(address, monkeypatch):
    monkeypatch.setenv(mlflow_registry.ADDRESS, address)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    return MlflowClient(tracking_uri=address, registry_uri=address)


@pytest.fixture
def name(request):
    return request.node.name.replace("[", "-").replace("]", "")


def versions(client, name):
    return client.search_model_versions(f"name = '{name}'")


def runs(client, name):
    experiment = client.get_experiment_by_name(name)
    return [] if experiment is None else client.search_runs([experiment.experiment_id])


def test_a_model_is_entered_with_its_numbers_its_data_and_its_files(client, name, tmp_path):
    manifest = promoted(tmp_path / "promoted", name=name)
    (entered,) = register(tmp_path / "promoted", ["mlflow"])
    assert str(entered) == f"mlflow: {name}, version 1"
    (version,), (run,) = versions(client, name), runs(client, name)
    assert version.tags["geartrain.digest"] == manifest.digest
    assert client.get_model_version_by_alias(name, "promoted").version == version.version
    assert run.info.status == "FINISHED"
    assert run.data.metrics["success_test_greedy"] == 0.675
    client.download_artifacts(run.info.run_id, "promoted", str(tmp_path))
    assert version.source == f"{run.info.artifact_uri}/promoted/model"
    assert (tmp_path / "promoted/model/model.safetensors").read_text() == "weights"


def test_a_data_set_is_found_by_its_short_digest_and_carries_the_whole(client, name, tmp_path):
    promoted(tmp_path / "promoted", name=name)
    register(tmp_path / "promoted", ["mlflow"], uri="s3://bucket/key")
    (run,) = client.search_runs([client.get_experiment_by_name(name).experiment_id], f"dataset.digest = '{'5' * 32}'")
    found = {entry.dataset.name: entry for entry in run.inputs.dataset_inputs}
    assert found.keys() >= {"environment.source", "tasks", "policy"}
    assert json.loads(found["environment.source"].dataset.source) == {"sha256": "5" * 64}
    assert {tag.key: tag.value for tag in found["environment.source"].tags}["geartrain.digest"] == "5" * 64
    assert run.data.tags["geartrain.data.environment.source"] == "5" * 64
    with pytest.raises(MlflowException, match="maximum length of 36"):  # why digests are cut
        client.log_inputs(run.info.run_id, [DatasetInput(Dataset("x", "5" * 64, "geartrain", "{}"), [])])


def test_a_published_model_is_named_by_its_address(client, name, tmp_path):
    promoted(tmp_path / "promoted", name=name)
    register(tmp_path / "promoted", ["mlflow"], uri="s3://bucket/key/", run_id="b7c1")
    (version,), (run,) = versions(client, name), runs(client, name)
    assert version.source == "s3://bucket/key/model"
    assert version.tags["geartrain.run"] == "b7c1"
    assert client.list_artifacts(run.info.run_id) == []


def test_a_repetition_enters_nothing_twice(client, name, tmp_path):
    promoted(tmp_path / "promoted", name=name)
    first, again = (register(tmp_path / "promoted", ["mlflow"])[0] for _ in range(2))
    assert (first.new, again.new, again.version) == (True, False, first.version)
    assert (len(versions(client, name)), len(runs(client, name))) == (1, 1)
    promoted(tmp_path / "next", name=name, weights="better")
    assert register(tmp_path / "next", ["mlflow"])[0].version == "2"
    register(tmp_path / "promoted", ["mlflow"])
    assert client.get_model_version_by_alias(name, "promoted").version == "2", "the older one is not promoted again"


@pytest.mark.parametrize("call", ["log_inputs", "log_batch", "log_artifacts", "set_terminated", "create_model_version"])
def test_what_a_crash_left_is_gone_on_with(client, name, tmp_path, monkeypatch, call):
    promoted(tmp_path / "promoted", name=name)
    with monkeypatch.context() as broken:
        broken.setattr(MlflowClient, call, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            register(tmp_path / "promoted", ["mlflow"])
    register(tmp_path / "promoted", ["mlflow"])
    (version,), (run,) = versions(client, name), runs(client, name)
    assert (version.run_id, run.info.status) == (run.info.run_id, "FINISHED")
    assert len(run.inputs.dataset_inputs) == 5
    assert [metric.value for metric in client.get_metric_history(run.info.run_id, "gate_gain_low")] == [0.05]


def test_a_candidate_that_failed_is_recorded_and_no_version(client, name, tmp_path):
    promoted(tmp_path / "failed", name=name, passed=False)
    (told,) = register(tmp_path / "failed", ["mlflow"])
    assert "no version" in str(told)
    assert versions(client, name) == []
    (run,) = runs(client, name)
    assert (run.data.tags["geartrain.promoted"], run.data.metrics["gate_gain_low"]) == ("false", -0.01)


def test_no_server_may_pass_and_a_wrong_one_may_not(tmp_path, client, monkeypatch):
    promoted(tmp_path / "promoted")
    entry = describe(tmp_path / "promoted")
    with KubeflowServer() as closed:
        address = closed.url
    monkeypatch.setenv(mlflow_registry.ADDRESS, address)
    with pytest.raises(InfrastructureError, match="Try again"):
        mlflow_registry.enter(entry)
    with KubeflowServer() as guarded:  # in the words of MLflow's own log-in
        guarded.fail("GET", status=401, body=b"You are not authenticated.", kind="text/plain")
        monkeypatch.setenv(mlflow_registry.ADDRESS, guarded.url)
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "wrong-token")
        with pytest.raises(UserError, match="401") as caught:
            mlflow_registry.enter(entry)
        assert "wrong-token" not in str(caught.value)


@pytest.mark.parametrize("named", ["", "sqlite:///mlflow.db", "https://user:secret@mlflow.example.org"])
def test_an_address_that_will_not_do_is_refused_before_anything_is_sent(tmp_path, monkeypatch, named):
    monkeypatch.setenv(mlflow_registry.ADDRESS, named)
    promoted(tmp_path / "promoted")
    with pytest.raises(UserError, match="MLFLOW_TRACKING_URI") as caught:
        register(tmp_path / "promoted", ["mlflow"])
    assert "secret" not in str(caught.value)


def test_many_at_the_same_time_are_entered_once_each(client, name, tmp_path, monkeypatch):
    """Eight promotions under one name that the server has never heard of, and all of them once more."""
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    folders = [tmp_path / f"promoted-{number}" for number in range(8)]
    digests = {promoted(folder, name=name, weights=str(folder)).digest for folder in folders}
    with ThreadPoolExecutor(len(folders)) as pool:
        first = list(
            pool.map(lambda folder: register(folder, ["mlflow"], uri=f"s3://bucket/{folder.name}")[0], folders)
        )
        again = list(
            pool.map(lambda folder: register(folder, ["mlflow"], uri=f"s3://bucket/{folder.name}")[0], folders)
        )
    assert all(entered.new for entered in first)
    assert [entered.version for entered in again] == [entered.version for entered in first]
    assert not any(entered.new for entered in again)
    assert {version.tags["geartrain.digest"] for version in versions(client, name)} == digests
    assert len(versions(client, name)) == len(runs(client, name)) == len(folders)
    assert {run.info.status for run in runs(client, name)} == {"FINISHED"}


def test_an_experiment_that_was_deleted_is_for_a_person_to_mend(client, name, tmp_path):
    promoted(tmp_path / "promoted", name=name)
    client.delete_experiment(client.create_experiment(name))
    with pytest.raises(UserError, match="was deleted there"):
        register(tmp_path / "promoted", ["mlflow"])
