"""Kubeflow's Model Registry as a real HTTP server on 127.0.0.1: bodies in and out go through its own client's models.

It has the server's habits: ids are numbers as text, a name is unique (among models; among the versions of a model;
among the artifacts of a version), and what is looked up and is not there is 404.
"""

from mr_openapi.models import (
    ModelArtifact,
    ModelVersion,
    ModelVersionCreate,
    RegisteredModel,
    RegisteredModelCreate,
)

from tests.fakes.kubeflow_server import ONE, KubeflowServer
from tests.fakes.kubeflow_state import RefusedError

V1 = "/api/model_registry/v1"


class RegistryState:
    """What a registry remembers."""

    def __init__(self):
        self.models, self.versions, self.artifacts = {}, {}, {}

    def stamp(self):
        number = str(len(self.models) + len(self.versions) + len(self.artifacts) + 1)
        moment = str(1_764_500_000_000 + int(number))
        return {"id": number, "createTimeSinceEpoch": moment, "lastUpdateTimeSinceEpoch": moment}

    def create(self, kind, shelf, body, *, parent=""):
        record = kind.from_dict({**body, **self.stamp()}).to_dict()
        if any((p, other["name"]) == (parent, record["name"]) for p, other in shelf.values()):
            raise RefusedError(409, f"{record['name']} already exists")
        shelf[record["id"]] = (parent, record)
        return record

    @staticmethod
    def find(shelf, query):
        for parent, record in shelf.values():
            if record["name"] == query["name"] and parent == query.get("parentResourceId", ""):
                return record
        raise RefusedError(404, f"no {query['name']}")


def _create_version(state, _arguments, _query, body, _content):
    checked = ModelVersionCreate.from_dict(body).to_dict()
    parent = checked["registeredModelId"]
    if parent not in state.models:
        raise RefusedError(404, f"no registered model {parent}")
    return state.create(ModelVersion, state.versions, checked, parent=parent)


def _create_artifact(state, arguments, _query, body, _content):
    if arguments[0] not in state.versions:
        raise RefusedError(404, f"no version {arguments[0]}")
    assert body["artifactType"] == "model-artifact"
    sent = {key: value for key, value in body.items() if value is not None}
    return state.create(ModelArtifact, state.artifacts, sent, parent=arguments[0])


def _list_models(state, _arguments, _query, _body, _content):
    items = [record for _, record in state.models.values()]
    return {"items": items, "nextPageToken": "", "pageSize": len(items), "size": len(items)}


ROUTES = {
    f"GET {V1}/registered_models": _list_models,
    f"GET {V1}/registered_model": lambda s, a, q, b, c: s.find(s.models, q),
    f"POST {V1}/registered_models": lambda s, a, q, b, c: s.create(
        RegisteredModel, s.models, RegisteredModelCreate.from_dict(b).to_dict()
    ),
    f"GET {V1}/model_version": lambda s, a, q, b, c: s.find(s.versions, q),
    f"POST {V1}/model_versions": _create_version,
    f"GET {V1}/model_artifact": lambda s, a, q, b, c: s.find(s.artifacts, q),
    f"POST {V1}/model_versions/{ONE}/artifacts": _create_artifact,
}


class ModelRegistryServer(KubeflowServer):
    """`with ModelRegistryServer() as server:` serves `server.state` at `server.url`; faults and token as there."""

    routes, posted = ROUTES, 201

    def __init__(self, *, token=None):
        super().__init__(RegistryState(), token=token)
