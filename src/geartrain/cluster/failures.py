"""Why a task failed: whether it is to mend, or may pass by itself.

Kubeflow's API has no reason for a failed task: its list of nodes carries no message, and the launcher that starts a
step ends with 1 whatever the step ended with (its `main.go` calls `glog.Exit`). What is left is the step's log: the
launcher writes "failed to execute component: exit status 75" at its end, and before it stands what Python said.
"""

import re
from dataclasses import dataclass

from geartrain.errors import EXIT_INFRASTRUCTURE, EXIT_QUEUE, EXIT_USER

EXIT_FAULT = 1
TAIL = 20_000
"""Characters of a log that are looked at; the end says why."""
STATUS = re.compile(r"failed to execute \w+: .*?(exit status \d+|signal: \w+)")
RAISED = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception|Interrupt|Exit)\b(?:: .*)?)$", re.MULTILINE)
SAID = re.compile(r"^error: (.+)$", re.MULTILINE)
FATAL = re.compile(r"^F\d{4} .*?\] (.*)$", re.MULTILINE)
"""What glog writes last: here, that the launcher itself failed."""
CODE = re.compile(r"exit (?:code|status) (\d+)")
OURS = re.compile(r"\b(UserError|InfrastructureError|QueueError)\b")


@dataclass(frozen=True)
class Reason:
    """Why a task failed."""

    task: str
    kind: str
    """user (to mend, a retry changes nothing), infrastructure (may pass) or fault (of the program, or unknown)."""
    message: str
    hint: str

    @property
    def code(self) -> int:
        """The exit code that stands for it."""
        return {"user": EXIT_USER, "infrastructure": EXIT_INFRASTRUCTURE}.get(self.kind, EXIT_FAULT)


MEND = ("user", "the stage says what to mend: `geartrain logs`")
TROUBLE = ("infrastructure", "disk, network or node trouble")
QUEUED = ("infrastructure", "waited too long in the queue")
NAMES = {"UserError": MEND, "InfrastructureError": TROUBLE, "QueueError": QUEUED}
TOLD = {EXIT_USER: MEND, EXIT_INFRASTRUCTURE: TROUBLE, EXIT_QUEUE: QUEUED}
"""Exit codes with which our own programs say what it is."""
KILLED = {137: ("infrastructure", "killed from outside"), 143: ("infrastructure", "told to stop from outside")}
SIGNS = (
    (r"OOMKilled|signal: killed|MemoryError", "user", "out of memory: raise the task's row in pipelines/resources.py"),
    (r"ImagePullBackOff|ErrImagePull|InvalidImageName", "user", "no such image: check its digest and the pull secret"),
    (r"CreateContainerConfigError", "user", "a Secret or ConfigMap that the pod names is missing: `geartrain doctor`"),
    (r"exceeded quota|Unschedulable|Insufficient", "infrastructure", "no room on the cluster: wait, or ask for quota"),
    (r"Evicted|Preempt|NodeLost|node .*(lost|not ready)|pod (was )?deleted|node shutdown|signal: terminated",
     "infrastructure", "the node was lost, or the pod evicted"),
    (r"connection (refused|reset)|timed? ?out|deadline exceeded|Unavailable|TLS handshake",
     "infrastructure", "the network or a service did not answer"),
)  # fmt: skip
"""Signs in a message that say what is behind it, in order; source: ours."""


def explain(task: str, message: str) -> Reason:
    """Return what a failure's message means: first what our programs say, then what is known of others."""
    kind, hint = _meaning(task, message)
    return Reason(task, kind, message or "Kubeflow gives no reason, and there is no log", hint)


def _meaning(task: str, message: str) -> tuple[str, str]:
    code = CODE.search(message)
    number = None if code is None else int(code[1])
    name = OURS.search(message)
    if number in TOLD:
        return TOLD[number]
    if name is not None:
        return NAMES[name[1]]
    for sign, kind, hint in SIGNS:
        if re.search(sign, message, re.IGNORECASE):
            return kind, hint
    if number in KILLED:
        return KILLED[number]
    if task.endswith("-driver"):
        return "infrastructure", "Kubeflow's own node failed; nothing retries it (kubeflow/pipelines#14266)"
    return "fault", "not a kind that is known to pass: `geartrain logs` first"


def evidence(log: str) -> str:
    """Return what a step's log says of its end, on one line: the last error, how the process ended; maybe nothing."""
    tail = log[-TAIL:]
    raised = [*RAISED.finditer(tail), *SAID.finditer(tail)]
    last = max(raised, key=lambda match: match.start(), default=None)
    ended = [match[1] for match in STATUS.finditer(tail)]
    if last is None and not ended:
        launcher = FATAL.findall(tail)
        return " ".join(launcher[-1].split())[:500] if launcher else ""
    words = [] if last is None else [" ".join(last[1].split())[:500]]
    return " ".join([*words, *(f"({text})" for text in ended[-1:])])
