"""A Kubernetes API of objects by path, over HTTP: for reads of any kind, with permissions of one caller."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAMESPACE = "geartrain"
SPACE = f"/api/v1/namespaces/{NAMESPACE}"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
QUEUE = f"{KUEUE}/namespaces/{NAMESPACE}/localqueues/geartrain"
RUNTIME = f"{TRAINER}/namespaces/{NAMESPACE}/trainingruntimes/geartrain-torch"
NODES = "/api/v1/nodes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEPLOYMENTS = "/apis/apps/v1/deployments"
SECRET_VALUE = "aHVudGVyMg=="


def named(name, **fields):
    return {"metadata": {"name": name}, **fields}


def deployment(image):
    return named("controller", spec={"template": {"spec": {"containers": [{"image": image}]}}})


def served(*names):
    return {"resources": [{"name": name} for name in names]}


def claim(*modes, phase="Bound", storage_class=None):
    """A volume claim; as long as it is not bound, only its spec says how it may be mounted."""
    spec = {"accessModes": list(modes), **({} if storage_class is None else {"storageClassName": storage_class})}
    bound = {"accessModes": list(modes)} if phase == "Bound" else {}
    return named("geartrain-work", spec=spec, status={"phase": phase, **bound})


def storage_class(name, provisioner, *, default=False, binding="Immediate"):
    marks = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}} if default else {}
    return {"metadata": {"name": name, **marks}, "provisioner": provisioner, "volumeBindingMode": binding}


def runtime(*claims):
    """The TrainingRuntime; its pods mount these claims, and a folder of their own."""
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    pod = {"template": {"spec": {"volumes": [*volumes, {"name": "tmp", "emptyDir": {}}]}}}
    jobs = [{"name": "node", "template": {"spec": pod}}]
    policy = {"numNodes": 1, "torch": {}}
    return named("geartrain-torch", spec={"mlPolicy": policy, "template": {"spec": {"replicatedJobs": jobs}}})


def installation():
    """The objects of a cluster that is fit for our runs."""
    return {
        "/version": {"gitVersion": "v1.34.1"},
        TRAINER: served("trainjobs", "trainjobs/status", "trainingruntimes"),
        "/apis/jobset.x-k8s.io/v1alpha2": served("jobsets"),
        KUEUE: served("localqueues", "clusterqueues"),
        "/apis/argoproj.io/v1alpha1": served("workflows"),
        "/apis/kubeflow.org/v1beta1": served("scheduledworkflows"),
        DEPLOYMENTS: {
            "items": [
                deployment("ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0"),
                deployment("registry.k8s.io/kueue/kueue:v0.19.2@sha256:aa"),
            ]
        },
        SPACE: {"metadata": {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}},
        f"{SPACE}/resourcequotas": {
            "items": [named("geartrain", status={"used": {"pods": "3"}, "hard": {"pods": "50"}})]
        },
        f"{SPACE}/limitranges": {"items": [named("geartrain")]},
        f"{SPACE}/serviceaccounts/geartrain-pipeline": named("geartrain-pipeline"),
        f"{SPACE}/serviceaccounts/geartrain-train": named("geartrain-train", automountServiceAccountToken=False),
        f"{SPACE}/serviceaccounts/geartrain-reaper": named("geartrain-reaper"),
        f"{SPACE}/persistentvolumeclaims/geartrain-work": claim("ReadWriteMany"),
        f"{SPACE}/secrets/geartrain-s3": named("geartrain-s3", data={"secret-access-key": SECRET_VALUE}),
        QUEUE: named(
            "geartrain",
            spec={"clusterQueue": "geartrain-gpu"},
            status={"conditions": [{"type": "Active", "status": "True"}], "pendingWorkloads": 1},
        ),
        RUNTIME: runtime("geartrain-work"),
        NODES: {"items": [named("one"), named("two")]},
        CLASSES: {"items": [storage_class("files", "nfs.csi.k8s.io", default=True)]},
    }


class ObjectServer:
    """`with ObjectServer() as server:` serves `server.objects` at `server.url`.

    `forbidden` are paths that answer 403, `may` decides on (verb, group, resource), `sent` is what went out.
    """

    def __init__(self):
        self.objects = installation()
        self.forbidden, self.down = set(), set()
        self.may = lambda verb, group, resource: True
        self.sent = []

    def __enter__(self):
        handler = type("Bound", (Handler,), {"owner": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, method, path, accept, body):
        if path in self.down:
            return 503, {"message": "down"}
        if path in self.forbidden:
            return 403, {"message": f'User "eve" cannot get {path}'}
        if method == "POST":
            asked = body["spec"]["resourceAttributes"]
            resource = "/".join(part for part in (asked["resource"], asked.get("subresource")) if part)
            return 201, {"status": {"allowed": self.may(asked["verb"], asked.get("group", ""), resource)}}
        if path not in self.objects:
            return 404, {"message": "not found"}
        found = self.objects[path]
        return 200, {"metadata": found["metadata"]} if "PartialObjectMetadata" in accept else found


class Handler(BaseHTTPRequestHandler):
    """One request."""

    owner: ObjectServer
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def do_GET(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        accept = self.headers.get("Accept", "")
        status, answer = self.owner.answer(self.command, self.path, accept, json.loads(content) if content else None)
        body = json.dumps(answer).encode()
        self.owner.sent.append(body.decode())
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        """Say nothing."""
