"""Registration in Kubeflow's Model Registry: once, with its digests, gone on with after a fault."""

import pytest

from geartrain.errors import InfrastructureError, UserError
from geartrain.supply import kubeflow_registry
from geartrain.supply.registration import register
from tests.fakes.model_registry import V1, ModelRegistryServer
from tests.fakes.promoted import promoted

URI = "s3://bucket/v2/artifacts/geartrain/b7c1/promotion"


@pytest.fixture
def server(monkeypatch):
    with ModelRegistryServer() as server:
        monkeypatch.setenv(kubeflow_registry.ADDRESS, server.url)
        for name in (kubeflow_registry.TOKEN_FILE, kubeflow_registry.CA_FILE):
            monkeypatch.delenv(name, raising=False)
        yield server


@pytest.fixture
def folder(tmp_path):
    promoted(tmp_path / "promoted")
    return tmp_path / "promoted"


def enter(folder, **options):
    (told,) = register(folder, ["kubeflow"], **{"uri": URI, "run_id": "b7c1", **options})
    return told


def test_a_model_is_entered_with_its_address_and_its_run(server, folder):
    told = enter(folder)
    assert told.new
    ((_, model),) = server.state.models.values()
    ((parent, version),) = server.state.versions.values()
    ((above, artifact),) = server.state.artifacts.values()
    assert (model["name"], parent, above) == ("geartrain-analyst", model["id"], version["id"])
    assert version["name"] == told.version
    properties = version["customProperties"]
    assert properties["geartrain.digest"]["string_value"].startswith(told.version)
    assert properties["geartrain.data.environment.source"]["string_value"] == "5" * 64
    assert properties["success_test_greedy"]["double_value"] == 0.675
    assert artifact["uri"] == f"{URI}/model"
    source = {key: artifact[key] for key in ("modelSourceKind", "modelSourceClass", "modelSourceId")}
    assert source == {"modelSourceKind": "kfp", "modelSourceClass": "pipelinerun", "modelSourceId": "b7c1"}


def test_kubeflow_s_own_client_finds_it(server, folder):
    from model_registry import ModelRegistry

    told = enter(folder)
    with pytest.warns(UserWarning, match="User access token is missing"):
        client = ModelRegistry(server.url, author="somebody", is_secure=False, async_runner=_run)
    assert client.get_model_artifact(told.name, told.version).uri == f"{URI}/model"
    assert client.get_model_version(told.name, told.version).custom_properties["geartrain.code"]


def _run(coroutine):
    import asyncio

    return asyncio.run(coroutine)


def test_a_repetition_enters_nothing_twice(server, folder, tmp_path):
    enter(folder)
    told = enter(folder)
    assert (told.new, str(told)) == (False, f"kubeflow: geartrain-analyst, version {told.version}, was there already")
    promoted(tmp_path / "next", weights="better")
    enter(tmp_path / "next")
    assert [len(shelf) for shelf in (server.state.models, server.state.versions, server.state.artifacts)] == [1, 2, 2]


@pytest.mark.parametrize("path", ["registered_models", "model_versions", "model_versions/.*/artifacts"])
@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
def test_what_a_fault_left_is_gone_on_with(server, folder, path, after):
    server.fail(f"POST {V1}/{path}$", status=503, after=after)
    if after:  # it was carried out: a look at the server says so
        enter(folder)
    else:
        with pytest.raises(InfrastructureError, match="503"):
            enter(folder)
        enter(folder)
    assert [len(shelf) for shelf in (server.state.models, server.state.versions, server.state.artifacts)] == [1, 1, 1]


def test_another_model_under_that_version_is_not_taken_for_ours(server, folder):
    told = enter(folder)
    ((_, version),) = server.state.versions.values()
    version["customProperties"]["geartrain.digest"]["string_value"] = "f" * 64
    with pytest.raises(UserError, match=f"{told.version} is another model"):
        enter(folder)


def test_a_candidate_that_failed_is_not_entered(server, tmp_path):
    promoted(tmp_path / "failed", passed=False)
    assert "no version" in str(enter(tmp_path / "failed"))
    assert server.seen == []


def test_files_of_this_machine_are_no_address(server, folder):
    with pytest.raises(UserError, match="--uri s3://"):
        enter(folder, uri=str(folder))
    assert server.seen == []


@pytest.mark.parametrize(("status", "error"), [(400, UserError), (403, UserError), (500, InfrastructureError)])
def test_an_error_of_the_server_says_whether_a_retry_may_help(server, folder, status, error):
    server.fail("GET", status=status, times=9)
    with pytest.raises(error, match=f"{status} .*injected fault"):
        enter(folder)


def test_a_server_that_hangs_up_or_is_not_there_may_pass(server, folder, monkeypatch):
    server.fail("GET", drop=True, times=9)
    with pytest.raises(InfrastructureError, match="does not answer"):
        enter(folder)
    with ModelRegistryServer() as closed:
        monkeypatch.setenv(kubeflow_registry.ADDRESS, closed.url)
    with pytest.raises(InfrastructureError, match="does not answer"):
        enter(folder)


def test_the_token_comes_from_a_file_and_is_never_shown(folder, tmp_path, monkeypatch):
    with ModelRegistryServer(token="secret-token") as server:
        monkeypatch.setenv(kubeflow_registry.ADDRESS, server.url)
        (tmp_path / "token").write_text("secret-token\n")
        monkeypatch.setenv(kubeflow_registry.TOKEN_FILE, str(tmp_path / "token"))
        assert enter(folder).new
        (tmp_path / "token").write_text("wrong-token\n")
        with pytest.raises(UserError, match="401") as caught:
            enter(folder)
        assert "wrong-token" not in str(caught.value)
        monkeypatch.setenv(kubeflow_registry.TOKEN_FILE, str(tmp_path / "absent"))
        with pytest.raises(UserError, match="No such file"):
            enter(folder)


@pytest.mark.parametrize("named", ["", "model-registry:8080", "http://user:secret@model-registry"])
def test_an_address_that_will_not_do_is_refused(folder, monkeypatch, named):
    monkeypatch.setenv(kubeflow_registry.ADDRESS, named)
    with pytest.raises(UserError, match="GEARTRAIN_MODEL_REGISTRY") as caught:
        enter(folder)
    assert "secret" not in str(caught.value)
