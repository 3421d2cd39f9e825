"""The doctor against a real HTTP API, through the real kubernetes client: what is wrong, and what to do about it."""

import pytest
from kubernetes.client import ApiClient, Configuration

from geartrain.cluster.doctor import Expected, examine, exit_code, version_of
from geartrain.cluster.findings import FAIL, OK, WARN
from geartrain.cluster.reading import ApiReader
from geartrain.cluster.records import Server, UnavailableError
from geartrain.errors import UserError
from tests.fakes.api_objects import (
    CLASSES,
    DEPLOYMENTS,
    KUEUE,
    NODES,
    QUEUE,
    RUNTIME,
    SECRET_VALUE,
    SPACE,
    ObjectServer,
    claim,
    deployment,
    named,
    runtime,
    storage_class,
)

CLAIM = f"{SPACE}/persistentvolumeclaims/geartrain-work"
STOPPED = [{"type": "Active", "status": "False", "message": "ClusterQueue x doesn't exist"}]
STORAGE = Expected(claims=("geartrain-work",), secrets=("geartrain-s3",))


@pytest.fixture
def cluster():
    with ObjectServer() as server:
        yield server


def connect(url):
    settings = Configuration(host=url)
    settings.retries = False
    return ApiReader(ApiClient(settings))


def find(cluster, *, kubeflow=lambda: Server("2.17.1", False), sdk="2.17.3", expected=STORAGE):
    return list(examine(kubeflow, sdk, lambda: connect(cluster.url), expected))


def wrong(findings):
    return {finding.check: finding for finding in findings if finding.level != OK}


def test_a_fit_installation_is_all_ok_and_no_secret_is_fetched(cluster):
    findings = find(cluster)
    assert wrong(findings) == {}
    assert exit_code(findings) == 0
    assert len(findings) > 20
    assert not any(SECRET_VALUE in text for text in cluster.sent)


@pytest.mark.parametrize(
    ("server", "sdk", "level", "text"),
    [
        ("2.16.1", "2.16.0", FAIL, "2.17 is needed"),
        ("2.17.1", "2.18.0", FAIL, "kubeflow/pipelines#11374"),
        ("unknown", "2.17.3", WARN, "does not say its version"),
        ("v2.17.9", "2.17.3", OK, ""),
    ],
)
def test_versions_of_server_and_sdk_fit(cluster, server, sdk, level, text):
    finding = find(cluster, kubeflow=lambda: Server(server, False), sdk=sdk)[0]
    assert finding.level == level
    assert text in f"{finding.message} {finding.mend}"


@pytest.mark.parametrize(
    ("path", "value", "check", "level", "text"),
    [
        (KUEUE, None, "kind localqueues", FAIL, "install Kueue 0.19"),
        (KUEUE, {"resources": [{"name": "localqueues"}]}, "kind clusterqueues", FAIL, "missing"),
        (SPACE, None, "namespace", FAIL, "is not there"),
        (SPACE, {"metadata": {"name": "geartrain"}}, "namespace", WARN, "pod security: none"),
        (f"{SPACE}/limitranges", {"items": []}, "quota", FAIL, "deployKF#228"),
        (f"{SPACE}/serviceaccounts/geartrain-reaper", None, "account geartrain-reaper", FAIL, "is not there"),
        (f"{SPACE}/serviceaccounts/geartrain-train", {}, "account geartrain-train", FAIL, "token is mounted"),
        (CLAIM, None, "volume claim geartrain-work", FAIL, "is not there"),
        (CLAIM, claim("ReadWriteMany", phase="Lost"), "volume claim geartrain-work", FAIL, "Lost"),
        (CLAIM, claim("ReadWriteOnce"), "volume claim geartrain-work", FAIL, "ReadWriteMany is needed"),
        (CLAIM, claim("ReadWriteOncePod"), "volume claim geartrain-work", FAIL, "other nodes cannot mount it"),
        (RUNTIME, runtime(), "work folder", WARN, "begins anew"),
        (f"{SPACE}/secrets/geartrain-s3", None, "secret geartrain-s3", FAIL, "is not there"),
        (QUEUE, None, "queue geartrain", FAIL, "wait for ever"),
        (
            QUEUE,
            {"spec": {"clusterQueue": "x"}, "status": {"conditions": STOPPED}},
            "queue geartrain",
            FAIL,
            "doesn't exist",
        ),
        (QUEUE, {"spec": {"clusterQueue": "x"}}, "queue geartrain", WARN, "is Kueue running?"),
        (RUNTIME, None, "runtime geartrain-torch", FAIL, "is not there"),
        (RUNTIME, {"spec": {"mlPolicy": {"mpi": {}}}}, "runtime geartrain-torch", FAIL, "kubeflow/trainer#2650"),
        (DEPLOYMENTS, {"items": [deployment("registry.k8s.io/kueue/kueue:v0.18.0")]}, "Kueue", FAIL, "older than 0.19"),
        (DEPLOYMENTS, {"items": []}, "Kubeflow Trainer", WARN, "was not found"),
        (DEPLOYMENTS, {"items": [deployment("mirror/kueue@sha256:aa")]}, "Kueue", WARN, "does not tell its version"),
    ],
)
def test_one_thing_wrong_is_one_line_with_its_mend(cluster, path, value, check, level, text):
    if value is None:
        del cluster.objects[path]
    else:
        cluster.objects[path] = value
    found = wrong(find(cluster))[check]
    assert found.level == level
    assert text in f"{found.message} {found.mend}"
    assert found.mend
    assert exit_code(find(cluster)) == (2 if level == FAIL else 0)


PENDING = claim("ReadWriteMany", phase="Pending")
KIND = storage_class("standard", "rancher.io/local-path", default=True, binding="WaitForFirstConsumer")
LATE = storage_class("late", "nfs.csi.k8s.io", binding="WaitForFirstConsumer")


@pytest.mark.parametrize(
    ("wanted", "classes", "level", "text"),
    [
        (None, [KIND], FAIL, "(rancher.io/local-path) gives a folder of one node, it will never be bound"),
        (None, [KIND], FAIL, "patch its accessModes to [ReadWriteOnce]"),
        (None, [LATE], FAIL, "there is no default StorageClass"),
        ("nowhere", [KIND], FAIL, "there is no StorageClass 'nowhere'"),
        ("late", [KIND, LATE], WARN, "class late binds it with the first pod"),
        (None, [storage_class("files", "nfs.csi.k8s.io", default=True)], WARN, "describe pvc geartrain-work"),
    ],
)
def test_a_claim_that_is_not_bound_says_what_it_waits_for(cluster, wanted, classes, level, text):
    cluster.objects[CLAIM] = claim("ReadWriteMany", phase="Pending", storage_class=wanted)
    cluster.objects[CLASSES] = {"items": classes}
    found = wrong(find(cluster))["volume claim geartrain-work"]
    assert (found.level, text in f"{found.message} {found.mend}") == (level, True)


def test_on_a_cluster_of_one_node_a_disk_of_that_node_does(cluster):
    cluster.objects[CLASSES] = {"items": [KIND]}
    cluster.objects[NODES] = {"items": [named("kind-control-plane")]}
    cluster.objects[CLAIM] = claim("ReadWriteOnce")
    assert wrong(find(cluster)) == {}
    cluster.objects[CLAIM] = claim("ReadWriteOnce", phase="Pending")
    assert wrong(find(cluster))["volume claim geartrain-work"].level == WARN
    cluster.forbidden.add(NODES)  # who may not count nodes is not told that one is enough
    assert wrong(find(cluster))["volume claim geartrain-work"].level == FAIL


def test_who_may_not_see_classes_is_told_where_to_look(cluster):
    cluster.objects[CLAIM] = PENDING
    cluster.forbidden.add(CLASSES)
    found = wrong(find(cluster))["volume claim geartrain-work"]
    assert (found.level, found.message) == (WARN, "Pending, ReadWriteMany")
    assert "kubectl -n geartrain describe pvc geartrain-work" in found.mend


def test_the_claims_that_the_runtime_mounts_are_looked_at_unasked(cluster):
    cluster.objects[RUNTIME] = runtime("geartrain-work", "scratch")
    found = wrong(find(cluster, expected=Expected(secrets=("geartrain-s3",))))
    assert {name: finding.message for name, finding in found.items()} == {"volume claim scratch": "is not there"}
    found = wrong(find(cluster, expected=Expected()))
    assert set(found) == {"volume claim scratch", "secret"}
    assert found["secret"].level == WARN


def test_pausing_is_untested_on_an_older_trainer(cluster):
    trainer = "ghcr.io/kubeflow/trainer/trainer-controller-manager"
    kueue = deployment("registry.k8s.io/kueue/kueue:v0.19.2")
    for tag, levels in (("v2.2.1", {"Kubeflow Trainer": FAIL, "pause": WARN}), ("v2.3.1", {}), ("v3.0.0", {})):
        cluster.objects[DEPLOYMENTS] = {"items": [deployment(f"{trainer}:{tag}"), kueue]}
        found = wrong(find(cluster))
        assert {name: finding.level for name, finding in found.items()} == levels
    cluster.objects[DEPLOYMENTS] = {"items": [deployment(f"{trainer}:v2.2.1"), kueue]}
    told = wrong(find(cluster))["pause"]
    assert "untested on this Trainer" in told.message
    assert "geartrain cancel" in told.mend


def test_a_quota_that_is_used_up_is_told(cluster):
    gpus = {"requests.nvidia.com/gpu": "0"}  # none allowed, none used: that is no shortage
    status = {"used": {"pods": "50", **gpus}, "hard": {"pods": "50", **gpus}}
    cluster.objects[f"{SPACE}/resourcequotas"]["items"][0]["status"] = status
    assert wrong(find(cluster))["quota"].message == "geartrain: used up: pods"


def test_each_verb_is_asked_for_and_a_missing_one_is_named(cluster):
    asked = []

    def may(*request):
        asked.append(request)
        return request[0] != "delete"

    cluster.may = may
    found = wrong(find(cluster))
    assert set(found) == {"permission trainjobs.trainer.kubeflow.org"}
    assert "may not delete" in found["permission trainjobs.trainer.kubeflow.org"].message
    assert ("get", "", "pods/log") in asked
    assert ("create", "trainer.kubeflow.org", "trainjobs") in asked


def test_what_may_not_be_seen_is_a_warning_and_the_rest_is_checked(cluster):
    cluster.forbidden |= {DEPLOYMENTS, SPACE, f"{SPACE}/resourcequotas", f"{SPACE}/secrets/geartrain-s3", QUEUE}
    findings = find(cluster)
    assert {name: finding.level for name, finding in wrong(findings).items()} == dict.fromkeys(
        ("versions", "namespace", "quota", "secret geartrain-s3", "queue"), WARN
    )
    assert exit_code(findings) == 0


def test_a_part_that_is_down_fails_its_own_line(cluster):
    cluster.down.add(QUEUE)
    findings = find(cluster)
    assert set(wrong(findings)) == {"queue"}
    assert exit_code(findings) == 75


def test_no_answer_at_all_is_an_outage_not_a_fault(cluster):
    def away():
        raise UnavailableError("http://x: no answer", maybe_done=False)

    url = cluster.url
    cluster.__exit__()
    findings = list(examine(away, "2.17.3", lambda: connect(url), STORAGE))
    assert [(finding.check, finding.level) for finding in findings] == [
        ("Kubeflow Pipelines", FAIL),
        ("Kubernetes", FAIL),
    ]
    assert exit_code(findings) == 75
    cluster.__enter__()


def test_no_configuration_is_for_people_to_mend(cluster):
    def nothing():
        raise UserError("no cluster to talk to: give --kubeconfig")

    findings = list(examine(lambda: Server("2.17.1", False), "2.17.3", nothing, STORAGE))
    assert (findings[-1].level, exit_code(findings)) == (FAIL, 2)


@pytest.mark.parametrize(
    ("text", "version"), [("2.17.1", (2, 17)), ("v0.19.2-rc.1", (0, 19)), ("latest", None), ("", None)]
)
def test_versions_are_read(text, version):
    assert version_of(text) == version
