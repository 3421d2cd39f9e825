"""What a stage asks of the cluster (`ClusterSection`) and what its pods are told to do (`Request`), both checked."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, ValidationError, model_validator

from geartrain.cluster.reasons import LOCAL_QUEUE
from geartrain.cluster.trainjob import UNPINNED, is_pinned
from geartrain.errors import UserError
from geartrain.schema import Count, Number, Positive, Section

GPU = "nvidia.com/gpu"
_SECRET = re.compile(r"SECRET|TOKEN(?!IZ)|PASSWORD|PASSWD|CREDENTIAL|ACCESS_KEY|API_?KEY", re.IGNORECASE)
S = TypeVar("S", bound=Section)


def _pinned(image: str) -> str:
    if not is_pinned(image):
        raise ValueError(UNPINNED)
    return image


def _absolute(path: str) -> str:
    if not path.startswith("/") or path.rstrip("/") == "":
        raise ValueError("expected the path of a folder, such as /work")
    return path.rstrip("/")


class Toleration(Section):
    """A taint of nodes that the pods put up with, in the words of Kubernetes."""

    key: str | None = None
    operator: str = "Equal"
    value: str | None = None
    effect: str | None = None
    tolerationSeconds: Annotated[int, Number] | None = None


class ClusterSection(Section):
    """A stage on N nodes of a cluster; the container's command and the data are not in here."""

    image: Annotated[str, AfterValidator(_pinned)]
    """Of the training pods, by digest: `registry/name@sha256:…`. By a tag, code could change between two attempts."""
    nodes: Count = 1
    """Pods. More play and train faster, wait longer for their place, and all start anew when one is lost."""
    processes_per_node: Count = 1
    """Ranks in a pod: one per GPU. On CPUs more than one shares the pod's cores; each holds a copy of the models."""
    cpu: str = "2"
    """Cores of a pod, as Kubernetes writes them ("8", "500m"). Low starves the episodes, which are played on CPUs; high
    waits for a node that has as many free."""
    memory: str = "6Gi"
    """Of a pod, its shared memory included. Low ends in OOMKilled, at exit code 137; high blocks room for others."""
    gpus: Annotated[int, Field(ge=0, le=64), Number] = 0
    """GPUs of a pod, as many as processes; 0 trains on CPUs."""
    queue: str | None = LOCAL_QUEUE
    """Kueue's LocalQueue. None (or an empty name) starts at once, past everybody who waits, and may find no free
    node."""
    priority_class: str | None = None
    """Kueue's WorkloadPriorityClass. A high one preempts others, a low one is preempted: it goes on from its last
    checkpoint when its turn comes."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    """Labels of the nodes that may be used. Better set in the ResourceFlavor, for all jobs alike."""
    tolerations: list[Toleration] = Field(default_factory=list)
    """Taints that the pods put up with; as `node_selector`."""
    queue_seconds: Positive = 4 * 3600.0
    """Longest wait in the queue since it ran last. Low fails (exit code 76) on a busy day; high hides that it never
    gets its turn."""
    start_seconds: Positive = 45 * 60.0
    """Longest time from admission to running pods. Below the pull of the image it never starts; high waits long for a
    node that is broken. Kueue's own limit (waitForPodsReady) has to be longer."""
    run_seconds: Positive = 48 * 3600.0
    """Longest training, all resumptions together. Low ends one that was well (a retry goes on from its checkpoint, with
    a new budget); high pays for one that hangs."""
    poll_seconds: Positive = 15.0
    """Between two looks at the job. Low burdens the API server, high learns late how it ended."""
    work: Annotated[str, AfterValidator(_absolute)] = "/work"
    """Where the pods keep work in progress: a volume that all nodes share and that outlives pods. On one that does not,
    everything is right but each restart begins anew."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment of the pods, such as NCCL_DEBUG. Stored in clear with the job: no secrets."""
    namespace: str | None = None
    """Of the TrainJob; None takes that of the launching pod."""

    @model_validator(mode="after")
    def _fits_together(self) -> "ClusterSection":
        if self.gpus and self.gpus != self.processes_per_node:
            raise ValueError(
                f"gpus ({self.gpus}) and processes_per_node ({self.processes_per_node}): each process uses one GPU; "
                "make them equal, or gpus 0"
            )
        secret = next((name for name in self.variables if _SECRET.search(name)), None)
        if secret is not None:
            raise ValueError(f"variables.{secret} looks like a secret; mount it in the TrainingRuntime instead")
        return self


class LoneSection(ClusterSection):
    """The job of a stage that runs in one process, on CPUs or one GPU."""

    @model_validator(mode="after")
    def _alone(self) -> "LoneSection":
        if (self.nodes, self.processes_per_node) != (1, 1):
            raise ValueError("this stage runs in one process: nodes 1, processes_per_node 1, gpus 0 or 1")
        return self


class Request(Section):
    """What the pods of a job do: run a stage on artifacts, and publish what it makes."""

    stage: str
    record: dict[str, Any]
    """Of the configuration: `seed`, `threads` and the sections that the stage reads."""
    inputs: dict[str, str]
    """Name -> URI of an artifact."""
    data: dict[str, Any] = Field(default_factory=dict)
    """Key of the configuration -> `pinned.Pin`, of what the stage reads from outside."""
    output: str
    """URI below which the artifact is published, as `<output>/<digest>`."""
    result: str
    """URI of the note that says which artifact it is; written last."""


def parse_section(kind: type[S], record: Any, *, source: str) -> S:
    """Check a record that was read from `source`.

    Raises:
        UserError: a key is unknown, missing, of the wrong type or impossible; the message names key, reason and the
            nearest valid name.
    """
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        lines = [_explain(problem, kind) for problem in error.errors()]
        raise UserError("\n".join([f"{source}: {len(lines)} problem(s)", *lines])) from error


def _explain(problem: Mapping[str, Any], kind: type[Section]) -> str:
    place = [str(part) for part in problem["loc"]]
    key = ".".join(place) or "(all of it)"
    if problem["type"] == "extra_forbidden":
        names = sorted((Toleration if place[0] == "tolerations" else kind).model_fields)
        near = get_close_matches(place[-1], names, n=1, cutoff=0.5)
        return f"  {key}: unknown key; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}")
    if problem["type"] == "missing":
        return f"  {key}: is missing"
    given = problem["input"]
    shown = "" if isinstance(given, dict | Section) or not place else f" (got {given!r:.80})"
    return f"  {key}: {problem['msg'].removeprefix('Value error, ')}{shown}"
