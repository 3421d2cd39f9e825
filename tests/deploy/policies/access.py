"""Who may do what, and where secrets are not. A policy returns the breaches, in words."""

import re
from collections.abc import Iterator, Sequence

from tests.deploy.policies.pods import Document, containers, pods, title, walk

FORBIDDEN_RESOURCES = {"secrets", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token"}
FORBIDDEN_VERBS = {"escalate", "bind", "impersonate"}
SECRET_NAME = re.compile(r"(?i)password|passwd|secret|token|credential|access[_-]?key|api[_-]?key|private[_-]?key")
NOT_A_VALUE = re.compile(r"(?i)^(|true|false|/[\w./-]*)$")
"""A switch or a path is no secret, whatever its variable is called."""
SECRET_VALUE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    r"|\bey[JK][A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."
    r"|://[^/\s:@]+:[^/\s:@]+@"
)
BLOB = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}")


def _rules(documents: Sequence[Document]) -> Iterator[tuple[str, Document]]:
    for document in documents:
        if document["kind"] in {"Role", "ClusterRole"}:
            for rule in document.get("rules") or []:
                yield title(document), rule


def no_wildcards(documents: Sequence[Document]) -> list[str]:
    """A star grants what nobody thought of."""
    return [
        f"{name}: {key} has a star"
        for name, rule in _rules(documents)
        for key in ("apiGroups", "resources", "verbs", "nonResourceURLs")
        if any("*" in entry for entry in rule.get(key, []))
    ]


def no_secrets_no_exec(documents: Sequence[Document]) -> list[str]:
    """No account of ours reads secrets, enters a pod or gains rights (Kubeflow's stock runner may)."""
    breaches = []
    for name, rule in _rules(documents):
        breaches += [f"{name}: {entry}" for entry in rule.get("resources", []) if entry in FORBIDDEN_RESOURCES]
        breaches += [f"{name}: verb {entry}" for entry in rule.get("verbs", []) if entry in FORBIDDEN_VERBS]
    return breaches


def own_accounts(documents: Sequence[Document]) -> list[str]:
    """Roles are bound to accounts of this installation, in its namespace; pods run under them."""
    accounts = {
        (found["metadata"]["namespace"], found["metadata"]["name"])
        for found in documents
        if found["kind"] == "ServiceAccount"
    }
    breaches = []
    for document in documents:
        if document["kind"] == "ClusterRoleBinding":
            breaches.append(f"{title(document)}: binds a role in every namespace")
        if document["kind"] == "RoleBinding":
            breaches += [
                f"{title(document)}: binds {subject['kind']} {subject.get('namespace')}/{subject['name']}"
                for subject in document["subjects"]
                if subject["kind"] != "ServiceAccount"
                or (subject.get("namespace"), subject["name"]) not in accounts
                or subject["namespace"] != document["metadata"]["namespace"]
            ]
    names = {name for _, name in accounts}
    return breaches + [
        f"{name}: runs under account {pod.get('serviceAccountName')!r}"
        for name, pod in pods(documents)
        if pod.get("serviceAccountName") not in names
    ]


def no_idle_tokens(documents: Sequence[Document]) -> list[str]:
    """A pod whose account is bound to no role gets no token of it."""
    bound = {
        subject["name"]
        for document in documents
        if document["kind"] == "RoleBinding"
        for subject in document["subjects"]
    }
    return [
        f"{name}: mounts the token of {pod.get('serviceAccountName')!r}, which may do nothing"
        for name, pod in pods(documents)
        if pod.get("serviceAccountName") not in bound and pod.get("automountServiceAccountToken") is not False
    ]


def no_secret_values(documents: Sequence[Document]) -> list[str]:
    """Secrets are referred to; their values are in no manifest, variable or argument."""
    breaches = [f"{title(found)}: a Secret in git" for found in documents if found["kind"] == "Secret"]
    for name, _, container in containers(documents):
        breaches += [
            f"{name}: variable {variable['name']} has a value"
            for variable in container.get("env", [])
            if SECRET_NAME.search(variable["name"]) and not NOT_A_VALUE.match(variable.get("value", ""))
        ]
    for document in documents:
        if document["kind"] == "ConfigMap":
            breaches += [f"{title(document)}: key {key}" for key in document.get("data", {}) if SECRET_NAME.search(key)]
        breaches += [
            f"{title(document)}: {path} looks like a secret"
            for path, value in walk(document)
            if isinstance(value, str) and (SECRET_VALUE.search(value) or any(map(_is_blob, BLOB.findall(value))))
        ]
    return breaches


def _is_blob(text: str) -> bool:
    """Base64 of something random mixes cases and digits; a digest is hexadecimal, a path has words."""
    classes = (str.islower, str.isupper, str.isdigit)
    return all(sum(map(test, text)) >= 5 for test in classes)


POLICIES = (no_wildcards, no_secrets_no_exec, own_accounts, no_idle_tokens, no_secret_values)
