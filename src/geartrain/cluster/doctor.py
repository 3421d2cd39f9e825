"""Is this installation fit for our runs? Each line is ok, warn or fail, and says what to do.

Works with whatever the caller may see: what is forbidden is a warning with the name of the missing permission, and a
server that does not answer fails its own lines only.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from geartrain.cluster.findings import FAIL, OK, WARN, Finding, Reader
from geartrain.cluster.interface import ForbiddenError, NotFoundError
from geartrain.cluster.records import Server
from geartrain.cluster.volume_checks import CLAIM, check_claims, mounted_claims
from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_USER, GeartrainError, InfrastructureError

KFP, TRAINER, KUEUE = (2, 17), (2, 3), (0, 19)
"""Oldest versions that work together (kubeflow/pipelines#11329, kubernetes-sigs/kueue#14722, #14504)."""
KINDS = (
    ("trainer.kubeflow.org/v1alpha1", "trainjobs", "install Kubeflow Trainer 2.3"),
    ("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "install Kubeflow Trainer 2.3"),
    ("jobset.x-k8s.io/v1alpha2", "jobsets", "Kubeflow Trainer brings JobSet 0.12 along"),
    ("kueue.x-k8s.io/v1beta2", "localqueues", "install Kueue 0.19"),
    ("kueue.x-k8s.io/v1beta2", "clusterqueues", "install Kueue 0.19"),
    ("argoproj.io/v1alpha1", "workflows", "Kubeflow Pipelines brings Argo Workflows 4.0 along"),
    (
        "kubeflow.org/v1beta1",
        "scheduledworkflows",
        "Kubeflow Pipelines brings it along; without it, `schedule render --argo`",
    ),
)
"""API group and version, resource, what to do without it."""
CONTROLLERS = (
    (
        "Kubeflow Trainer",
        re.compile(r"trainer-controller-manager[:@]|kubeflow/trainer[^:@]*controller[^:@]*[:@]"),
        TRAINER,
    ),
    ("Kueue", re.compile(r"/kueue[:@]"), KUEUE),
)
UNTESTED = {
    "Kubeflow Trainer": (
        Finding(
            WARN,
            "pause",
            "suspending and resuming a TrainJob is untested on this Trainer: its JobSet may refuse the resumed job "
            "(kubeflow/trainer#3008)",
            "upgrade; until then end jobs with `geartrain cancel`, and let no ClusterQueue preempt them",
        ),
    )
}
"""What else is in doubt where a controller is older."""
VERBS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("trainer.kubeflow.org", "trainjobs", ("create", "get", "list", "watch", "patch", "delete"), "launch, cancel"),
    ("", "pods", ("get", "list"), "say why a job waits or failed"),
    ("", "pods/log", ("get",), "show logs"),
    ("", "events", ("list",), "say why a job waits"),
)
"""API group, resource, verbs that we use, and what for: the rules of Role geartrain-pipeline in k8s/base."""
ACCOUNTS = ("geartrain-pipeline", "geartrain-train", "geartrain-reaper")
QUEUE, RUNTIME = "geartrain", "geartrain-torch"


@dataclass(frozen=True)
class Expected:
    """What this installation should have."""

    namespace: str = "geartrain"
    claims: tuple[str, ...] = ()
    """Volume claims for the work folder; empty takes those that the runtime mounts."""
    secrets: tuple[str, ...] = ()
    """Names of Secrets with keys of the object store, if storage needs keys."""


def examine(
    kubeflow: Callable[[], Server], sdk: str, cluster: Callable[[], Reader], expected: Expected
) -> Iterator[Finding]:
    """Yield the findings, one check after the other.

    Args:
        kubeflow: asks Kubeflow Pipelines who it is; may raise.
        sdk: version of the kfp package.
        cluster: connects to the Kubernetes API; may raise.
        expected: what should be there.
    """
    yield from _guarded("Kubeflow Pipelines", lambda: _kubeflow(kubeflow(), sdk))
    try:
        reader = cluster()
        about = reader.read("/version")
    except GeartrainError as error:
        yield _failure("Kubernetes", error)
        return
    yield Finding(OK, "Kubernetes", f"answers, {about.get('gitVersion', 'version unknown')}")
    space = f"/api/v1/namespaces/{expected.namespace}"
    checks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("kinds", lambda: _kinds(reader)),
        ("versions", lambda: _controllers(reader)),
        ("namespace", lambda: _namespace(reader, space, expected.namespace)),
        ("permissions", lambda: _permissions(reader, expected.namespace)),
        ("quota", lambda: _quota(reader, space)),
        ("accounts", lambda: _accounts(reader, space)),
        ("storage", lambda: _storage(reader, space, expected)),
        ("queue", lambda: _queue(reader, expected.namespace)),
        ("runtime", lambda: _runtime(reader, expected.namespace)),
    )
    for name, check in checks:
        yield from _guarded(name, check)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 if nothing fails, 75 if all that fails is that nothing answered, else 2."""
    failed = [finding for finding in findings if finding.level == FAIL]
    if not failed:
        return 0
    return EXIT_INFRASTRUCTURE if all(finding.unreachable for finding in failed) else EXIT_USER


def _guarded(name: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Yield what a check finds; what it may not see, or gets no answer to, becomes a finding."""
    try:
        yield from check()
    except GeartrainError as error:
        yield _failure(name, error)


def _failure(name: str, error: GeartrainError) -> Finding:
    if isinstance(error, ForbiddenError):
        return Finding(WARN, name, f"may not be seen: {error}", "ask for the permission, or let an administrator look")
    return Finding(FAIL, name, str(error), unreachable=isinstance(error, InfrastructureError))


def _kubeflow(server: Server, sdk: str) -> Iterator[Finding]:
    found = version_of(server.version)
    name = "Kubeflow Pipelines"
    if found is None:
        yield Finding(
            WARN, name, f"does not say its version ({server.version!r})", "see the tag of the ml-pipeline image"
        )
        return
    if found < KFP:
        yield Finding(
            FAIL, name, f"{server.version}; 2.17 is needed", "upgrade: before it, a retry may stay pending for ever"
        )
    elif found != version_of(sdk):
        mend = (
            f"install kfp {found[0]}.{found[1]}: with another minor, limits may be dropped (kubeflow/pipelines#11374)"
        )
        yield Finding(FAIL, name, f"{server.version}, but the kfp package is {sdk}", mend)
    else:
        yield Finding(OK, name, f"{server.version}, kfp {sdk}, {'several users' if server.multi_user else 'one user'}")


def version_of(text: str) -> tuple[int, int] | None:
    """Return (major, minor) of "2.17.1" or "v0.19.2-rc1"; None of anything else."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    return None if match is None else (int(match[1]), int(match[2]))


def _kinds(reader: Reader) -> Iterator[Finding]:
    """Ask by discovery, which every account may do; the definitions themselves are an administrator's."""
    for group, resource, mend in KINDS:
        try:
            served = {item.get("name") for item in reader.read(f"/apis/{group}").get("resources") or ()}
        except NotFoundError:
            served = set()
        there = resource in served
        yield Finding(
            OK if there else FAIL,
            f"kind {resource}",
            f"{group} is {'served' if there else 'missing'}",
            "" if there else mend,
        )


def _controllers(reader: Reader) -> Iterator[Finding]:
    deployments = reader.read("/apis/apps/v1/deployments").get("items") or ()
    images = [image for deployment in deployments for image in _images(deployment)]
    for name, pattern, oldest in CONTROLLERS:
        found = next((image for image in images if pattern.search(image)), None)
        wanted = ".".join(map(str, oldest))
        if found is None:
            yield Finding(
                WARN, name, "its controller was not found among the deployments", f"check that it is {wanted} or newer"
            )
            continue
        tag = version_of(found.partition("@")[0].rpartition(":")[2])
        if tag is None:
            yield Finding(
                WARN, name, f"{found}: the image does not tell its version", f"check that it is {wanted} or newer"
            )
        elif tag < oldest:
            mend = f"upgrade to {wanted}: older ones leave jobs suspended for ever (kubernetes-sigs/kueue#14722)"
            yield Finding(FAIL, name, f"{found}: older than {wanted}", mend)
            yield from UNTESTED.get(name, ())
        else:
            yield Finding(OK, name, found)


def _images(deployment: Mapping[str, Any]) -> list[str]:
    spec = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return [str(container.get("image", "")) for container in spec.get("containers") or ()]


def _namespace(reader: Reader, space: str, name: str) -> Iterator[Finding]:
    try:
        labels = reader.read(space)["metadata"].get("labels") or {}
    except NotFoundError:
        yield Finding(FAIL, "namespace", f"{name} is not there", "kubectl apply -k k8s/overlays/…, or give --namespace")
        return
    level = labels.get("pod-security.kubernetes.io/enforce", "none")
    restricted = level == "restricted"
    mend = "" if restricted else "label it pod-security.kubernetes.io/enforce=restricted, as k8s/base does"
    yield Finding(OK if restricted else WARN, "namespace", f"{name}, pod security: {level}", mend)


def _permissions(reader: Reader, namespace: str) -> Iterator[Finding]:
    for group, resource, verbs, purpose in VERBS:
        missing = [verb for verb in verbs if not _may(reader, namespace, group, resource, verb)]
        kind = f"{resource}.{group}" if group else resource
        if missing:
            mend = f"needed to {purpose}; Role geartrain-pipeline of k8s/base grants it, bind it to yourself or ask"
            yield Finding(FAIL, f"permission {kind}", f"you may not {', '.join(missing)}", mend)
        else:
            yield Finding(OK, f"permission {kind}", ", ".join(verbs))


def _may(reader: Reader, namespace: str, group: str, resource: str, verb: str) -> bool:
    kind, _, part = resource.partition("/")
    asked = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }
    answer = reader.send("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    return bool((answer.get("status") or {}).get("allowed"))


def _quota(reader: Reader, space: str) -> Iterator[Finding]:
    quotas = reader.read(f"{space}/resourcequotas").get("items") or ()
    ranges = reader.read(f"{space}/limitranges").get("items") or ()
    if quotas and not ranges:
        mend = "add a LimitRange with defaults, for Argo's own containers ask for nothing (deployKF#228)"
        yield Finding(FAIL, "quota", "a ResourceQuota without a LimitRange", mend)
    for quota in quotas:
        status = quota.get("status") or {}
        used, hard = status.get("used") or {}, status.get("hard") or {}
        full = sorted(key for key in hard if used.get(key) == hard[key] and str(hard[key]) != "0")
        if full:
            yield Finding(
                WARN, "quota", f"{quota['metadata']['name']}: used up: {', '.join(full)}", "wait, or ask for more"
            )
    if not quotas:
        yield Finding(OK, "quota", "none in this namespace")
    elif ranges:
        yield Finding(OK, "quota", f"{len(quotas)} ResourceQuota(s), and a LimitRange with defaults")


def _accounts(reader: Reader, space: str) -> Iterator[Finding]:
    for name in ACCOUNTS:
        try:
            account = reader.read(f"{space}/serviceaccounts/{name}")
        except NotFoundError:
            yield Finding(FAIL, f"account {name}", "is not there", "kubectl apply -k k8s/overlays/…")
            continue
        if name == "geartrain-train" and account.get("automountServiceAccountToken") is not False:
            mend = "set automountServiceAccountToken: false: training pods run what a model wrote"
            yield Finding(FAIL, f"account {name}", "its token is mounted into training pods", mend)
        else:
            yield Finding(OK, f"account {name}", "is there")


def _storage(reader: Reader, space: str, expected: Expected) -> Iterator[Finding]:
    mounted = mounted_claims(_read_runtime(reader, expected.namespace) or {})
    yield from check_claims(reader, expected.namespace, expected.claims or mounted)
    if not expected.secrets:
        mend = "name the one with the object store's keys, if it needs any: --secret"
        yield Finding(WARN, "secret", "none was looked for", mend)
    for name in expected.secrets:
        try:
            reader.read(f"{space}/secrets/{name}", metadata_only=True)
        except NotFoundError:
            yield Finding(
                FAIL, f"secret {name}", "is not there", "create it, or let External Secrets do so (docs/cluster.md)"
            )
        except ForbiddenError:
            mend = "you may not read secrets, which is as it should be; an administrator can look"
            yield Finding(WARN, f"secret {name}", "may not be looked for", mend)
        else:
            yield Finding(OK, f"secret {name}", "is there; its values were not asked for")


def _queue(reader: Reader, namespace: str) -> Iterator[Finding]:
    api = "/apis/kueue.x-k8s.io/v1beta2"
    try:
        queue = reader.read(f"{api}/namespaces/{namespace}/localqueues/{QUEUE}")
    except NotFoundError:
        yield Finding(
            FAIL, f"queue {QUEUE}", "is not there: jobs would wait for ever", "kubectl apply -k k8s/overlays/…"
        )
        return
    backing = str((queue.get("spec") or {}).get("clusterQueue", ""))
    active = {item.get("type"): item for item in (queue.get("status") or {}).get("conditions") or ()}.get("Active", {})
    if active.get("status") == "False":
        mend = f"see ClusterQueue {backing}: kubectl describe clusterqueue {backing}; k8s/queue has one"
        yield Finding(FAIL, f"queue {QUEUE}", f"admits nothing: {active.get('message', 'no reason given')}", mend)
    elif not active:
        yield Finding(
            WARN, f"queue {QUEUE}", f"of ClusterQueue {backing}; Kueue has not looked at it", "is Kueue running?"
        )
    else:
        waiting = (queue.get("status") or {}).get("pendingWorkloads", 0)
        yield Finding(OK, f"queue {QUEUE}", f"of ClusterQueue {backing}, {waiting} waiting")


def _runtime(reader: Reader, namespace: str) -> Iterator[Finding]:
    name, runtime = f"runtime {RUNTIME}", _read_runtime(reader, namespace)
    if runtime is None:
        yield Finding(FAIL, name, "is not there", "kubectl apply -k k8s/overlays/…")
        return
    policy = (runtime.get("spec") or {}).get("mlPolicy") or {}
    if "torch" not in policy or "mpi" in policy:
        mend = "use torch: under MPI, resources and variables reach the launcher only (kubeflow/trainer#2650)"
        yield Finding(FAIL, name, "is not of policy torch", mend)
    else:
        yield Finding(OK, name, "policy torch")
    if not mounted_claims(runtime):
        mend = f"add {CLAIM} to your overlay"
        yield Finding(WARN, "work folder", "is no volume claim: a job that lost its pods begins anew", mend)


def _read_runtime(reader: Reader, namespace: str) -> Mapping[str, Any] | None:
    try:
        return reader.read(f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainingruntimes/{RUNTIME}")
    except NotFoundError:
        return None
