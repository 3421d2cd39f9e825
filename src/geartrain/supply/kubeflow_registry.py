"""A promoted model in Kubeflow's Model Registry (Kubeflow Hub): a registered model, a version, the artifact's address.

The one importer of model_registry. Its `ModelRegistry.register_model` refuses a version that is there, also one that a
crash has left without its artifact, and patches asyncio; so this uses the layer below it, a step at a time.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from geartrain.errors import InfrastructureError, UserError
from geartrain.supply.attestation import MODEL
from geartrain.supply.registration import DIGEST, PREFIX, Entry, Registered

ADDRESS, TOKEN_FILE, CA_FILE = (
    "GEARTRAIN_MODEL_REGISTRY",
    "GEARTRAIN_MODEL_REGISTRY_TOKEN_FILE",
    "GEARTRAIN_MODEL_REGISTRY_CA_FILE",
)
"""Variables: the server (http://host:8080 inside a cluster), a file with a bearer token, certificates to trust."""
AUTHOR = "geartrain"
SECONDS = 120.0
"""That one model may take."""
PASSING = frozenset([408, 429, *range(500, 600)])
Found = TypeVar("Found")


def enter(entry: Entry) -> Registered:
    """Enter a model; of a candidate that failed this registry keeps nothing. Raises as `registration.register`."""
    if not entry.promoted:
        return Registered("kubeflow", entry.name, "", new=False)
    if entry.uri is None:
        raise UserError(
            f"{entry.folder}: Kubeflow's registry keeps addresses, not files. Publish the artifact where the cluster "
            "can read it, and name that place: --uri s3://bucket/key."
        )
    address = _address()
    import aiohttp
    from mr_openapi.exceptions import ApiException

    try:
        return asyncio.run(_enter(_api(address), entry, entry.uri))
    except ApiException as error:
        text = f"Kubeflow's Model Registry at {address}: {error.status} {error.reason}: {_body(error)}"
        if error.status in PASSING:
            raise InfrastructureError(f"{text}. Try again: what is entered already is not entered twice.") from error
        raise UserError(f"{text}. Mend it, then `geartrain model register`.") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InfrastructureError(
            f"Kubeflow's Model Registry at {address} does not answer: {why}. Try again."
        ) from error


async def _enter(api: Any, entry: Entry, uri: str) -> Registered:
    from model_registry.types import ModelArtifact, ModelVersion, RegisteredModel

    async with asyncio.timeout(SECONDS):
        model, _ = await _found_or_made(
            lambda: api.get_registered_model_by_params(entry.name),
            lambda: api.upsert_registered_model(RegisteredModel(name=entry.name, owner=AUTHOR)),
        )
        properties = {**entry.properties, **{f"{PREFIX}data.{name}": digest for name, digest in entry.data.items()}}
        version, new = await _found_or_made(
            lambda: api.get_model_version_by_params(model.id, entry.version),
            lambda: api.upsert_model_version(
                ModelVersion(name=entry.version, author=AUTHOR, custom_properties={**properties, **entry.numbers}),
                model.id,
            ),
        )
        known = (version.custom_properties or {}).get(DIGEST)
        if known != entry.digest:
            raise UserError(
                f"{entry.name} {entry.version} is another model there (its {DIGEST} is {known}). Give another name: "
                "promotion.model_name, or --name."
            )
        _, added = await _found_or_made(
            lambda: api.get_model_artifact_by_params(entry.name, version.id),
            lambda: api.upsert_model_version_artifact(
                ModelArtifact(
                    name=entry.name,
                    uri=f"{uri.rstrip('/')}/{MODEL}",
                    model_format_name="transformers",
                    model_format_version="5",
                    **(_source(entry.run_id) if entry.run_id else {}),
                ),
                version.id,
            ),
        )
    return Registered("kubeflow", entry.name, entry.version, new=new or added)


async def _found_or_made(
    find: Callable[[], Awaitable[Found | None]], make: Callable[[], Awaitable[Found]]
) -> tuple[Found, bool]:
    """Return what is there, or what was made, and whether it was; somebody else may be making it at the same time."""
    from mr_openapi.exceptions import ApiException

    there = await find()
    if there is not None:
        return there, False
    try:
        return await make(), True
    except ApiException:
        there = await find()
        if there is None:
            raise
        return there, False


def _source(run_id: str) -> dict[str, str]:
    namespace = os.environ.get("GEARTRAIN_NAMESPACE", "geartrain")
    return {
        "model_source_kind": "kfp",
        "model_source_class": "pipelinerun",
        "model_source_group": namespace,
        "model_source_id": run_id,
    }


def _api(address: str) -> Any:
    from model_registry.core import ModelRegistryAPIClient
    from mr_openapi import Configuration

    named = os.environ.get(TOKEN_FILE)
    try:
        token = Path(named).read_text(encoding="utf-8").strip() if named else None
    except OSError as error:
        raise UserError(f"{TOKEN_FILE}: {named}: {error.strerror}") from error
    authority = os.environ.get(CA_FILE) or None
    return ModelRegistryAPIClient(Configuration(host=address, access_token=token, ssl_ca_cert=authority))


def _address() -> str:
    address = os.environ.get(ADDRESS, "").rstrip("/")
    if not address.startswith(("http://", "https://")) or "@" in urlsplit(address).netloc:
        raise UserError(
            f"{ADDRESS}: name the server, such as http://model-registry-service.kubeflow.svc:8080; credentials are no "
            f"part of it ({TOKEN_FILE})."
        )
    return address


def _body(error: Any) -> str:
    return " ".join(str(error.body or "").split())[:300] or "no further word"
