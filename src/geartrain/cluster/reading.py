"""Reads of any object of a Kubernetes API, through a client that `api.connect` made; imports no client itself."""

import json
from collections.abc import Mapping
from typing import Any

from geartrain.cluster.decoding import message
from geartrain.cluster.interface import ForbiddenError, InvalidError, NotFoundError
from geartrain.cluster.records import UnavailableError

METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Asks for name and labels alone: a Secret's values never leave the API server."""
TIMEOUT = (5.0, 20.0)
"""Seconds to connect, and to wait for an answer; a single float would be passed over by the client."""


class ApiReader:
    """Objects as JSON, errors as records; `api` is a `kubernetes.client.ApiClient`."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def read(self, path: str, *, metadata_only: bool = False) -> Mapping[str, Any]:
        """Return the object or list at `path`.

        Raises:
            NotFoundError: it is not there, or the kind is unknown.
            ForbiddenError: HTTP 401 or 403.
            UnavailableError: no answer, or HTTP 5xx.
        """
        return self._ask("GET", path, METADATA if metadata_only else "application/json", None)

    def send(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Post a question, such as an access review, and return the answer. Raises as `read`."""
        return self._ask("POST", path, "application/json", body)

    def _ask(self, method: str, path: str, accept: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        try:
            response = self._api.call_api(
                path,
                method,
                header_params={"Accept": accept, "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=TIMEOUT,
            )
            answer = json.loads(response.data)
        except ValueError as error:
            raise UnavailableError(f"{path}: the answer is no JSON", maybe_done=False) from error
        except Exception as error:
            raise _explain(path, error) from error
        if not isinstance(answer, Mapping):
            raise UnavailableError(f"{path}: the answer is no object", maybe_done=False)
        return answer


def _explain(path: str, error: Exception) -> Exception:
    status = getattr(error, "status", None)
    if status is None or not status or int(status) >= 500 or int(status) == 429:
        what = f"HTTP {status}" if status else type(error).__name__
        return UnavailableError(f"{path}: {what}", maybe_done=False)
    text = f"{path}: HTTP {status}: {message(getattr(error, 'body', ''))}"
    kinds = {401: ForbiddenError, 403: ForbiddenError, 404: NotFoundError}
    return kinds.get(int(status), InvalidError)(text)
