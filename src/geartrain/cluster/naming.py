"""Names, labels and annotations of what geartrain puts on a cluster; a pure function of run, stage and attempt.

A name that says what it is for makes creation idempotent: whoever comes second gets "already exists", and adopts.
A random one would leave a second job training after every retry (Metaflow#2632 shows what templated names do).
"""

import hashlib
import json
import re

RUN_LABEL = "geartrain.dev/run"
STAGE_LABEL = "geartrain.dev/stage"
PIPELINE_LABEL = "geartrain.dev/pipeline"
PART_OF_LABEL = "app.kubernetes.io/part-of"
PIPELINE = "geartrain"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
SPEC_HASH = "geartrain.dev/spec-hash"
ATTEMPT = "geartrain.dev/attempt"

NAME_LIMIT = 45
"""Kubernetes allows 63, but JobSet appends `-node-0-<pod>-<5 random>` for its pods and refuses what gets longer, and
Kueue cuts `trainjob-<name>` at 57 to name its Workload (kubernetes-sigs/kueue#9872)."""
_DIGITS = 10
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def job_name(run: str, stage: str, attempt: int) -> str:
    """Return the RFC 1035 name of a stage's job: equal input, equal name; valid whatever the input is.

    Source: ours.
    """
    words = re.sub(r"[^a-z0-9]+", "-", stage.lower()).strip("-")
    if not re.match("[a-z]", words):
        words = f"stage-{words}".strip("-")
    return f"{words[: NAME_LIMIT - _DIGITS - 1].rstrip('-')}-{_digest(run, stage, str(attempt))}"


def label_value(text: str) -> str:
    """Return `text` if it may be a label's value, else a readable part of it and a digest. Source: ours."""
    if _LABEL.fullmatch(text):
        return text
    words = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:40].rstrip("-") or "x"
    return f"{words}-{_digest(text)}"


def labels(run: str, stage: str) -> dict[str, str]:
    """Return the labels that every object of a stage carries; cancelling and reaping find it by them."""
    return {
        RUN_LABEL: label_value(run),
        STAGE_LABEL: label_value(stage),
        PIPELINE_LABEL: PIPELINE,
        PART_OF_LABEL: PIPELINE,
    }


def selector(*, run: str | None = None, stage: str | None = None) -> str:
    """Return the label selector of our jobs: all, or those of a run, or of one stage of it."""
    wanted = {PART_OF_LABEL: PIPELINE, PIPELINE_LABEL: PIPELINE}
    if run is not None:
        wanted[RUN_LABEL] = label_value(run)
    if stage is not None:
        wanted[STAGE_LABEL] = label_value(stage)
    return ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))


def _digest(*words: str) -> str:
    # as JSON, so that ("a", "bc") and ("ab", "c") differ
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:_DIGITS]
