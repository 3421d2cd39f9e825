"""Where a run comes from: the code, the image, and the run of an orchestrator that it is a part of.

All of it is read from the environment and from git, once a process; what is not known is left out, never guessed.

    GEARTRAIN_RUN_ID        the run that this one is a part of: Kubeflow's, or that of `geartrain run`; a bare
                            `dvc repro` is one as well, found by its process
    GEARTRAIN_IMAGE_DIGEST  what the process runs in
    GEARTRAIN_GIT_COMMIT, GEARTRAIN_GIT_REPOSITORY   in images, which hold no git
    GEARTRAIN_NAMESPACE, GEARTRAIN_CLUSTER_NAME      of a pod; OPENLINEAGE_NAMESPACE overrules both
"""

import os
import platform
import subprocess
import uuid
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from geartrain.artifacts import checkout, code_digest
from geartrain.places import web_address

RUN_ID = "GEARTRAIN_RUN_ID"
"""Variable with Kubeflow's run id. A parameter would be part of the cache key, and no run would hit another's cache."""
IMAGE = "GEARTRAIN_IMAGE_DIGEST"
NAMESPACE, CLUSTER = "GEARTRAIN_NAMESPACE", "GEARTRAIN_CLUSTER_NAME"
PIPELINE = "geartrain"
"""Name of the pipeline; a job is `<pipeline>.<stage>`, as Kubeflow's tasks are named."""
DIRTY = "-dirty"
"""End of an image's commit where it was built from changed sources (k8s/images/build)."""
LOCAL = "local://geartrain"
"""Namespace of jobs outside of a cluster."""


def job_namespace(environment: Mapping[str, str]) -> str:
    """Return the namespace of this process's jobs: `kfp://<cluster>/<namespace>` in a pod, else a fixed one."""
    if given := environment.get("OPENLINEAGE_NAMESPACE"):
        return given
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return LOCAL
    cluster = environment.get(CLUSTER) or "cluster"
    return f"kfp://{cluster}/{environment.get(NAMESPACE) or 'default'}"


def parent_run(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return `run`, `namespace` and `job` of the run that this process works for; None if there is none."""
    given = environment.get(RUN_ID, "") or (dvc_run() if "DVC_STAGE" in environment else "")
    try:
        run = str(uuid.UUID(given))
    except ValueError:
        return None
    return {"run": run, "namespace": job_namespace(environment), "job": PIPELINE}


@cache
def dvc_run() -> str:
    """Return an id for the `dvc repro` that this process works for; "" where that cannot be found out (outside Linux).

    DVC names no run. All stages of one command have the same ancestor: the first process without DVC's variables. Boot,
    number and start of that process are no other's, so they make the same UUID for each of its stages.
    """
    try:
        pid = os.getppid()
        while pid > 1:
            parent, started = _process(pid)
            if b"DVC_STAGE=" not in Path(f"/proc/{pid}/environ").read_bytes():
                boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
                return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{boot} {pid} {started}"))
            pid = parent
    except (OSError, ValueError, IndexError):
        pass
    return ""


def _process(pid: int) -> tuple[int, int]:
    """Return (parent, ticks from boot to start) of a process: proc(5), fields 4 and 22."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
    return int(fields[1]), int(fields[19])


def code_facets(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of the facets `code` and `environment`."""
    commit, changed = _commit(environment)
    code: dict[str, Any] = {"digest": code_digest(), "version": version("geartrain")}
    if commit:
        code["commit"] = commit
    if changed is not None:
        code["changed"] = changed
    surroundings = {"python": platform.python_version(), "machine": platform.machine()}
    image = environment.get(IMAGE)
    return {"code": code, "environment": {**surroundings, **({"image": image} if image else {})}}


def whence(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return run, image and commit of this process's work, None where not known; a changed commit ends in `-dirty`."""
    commit, changed = _commit(environment)
    run = parent_run(environment)
    return {
        "run": None if run is None else run["run"],
        "image": environment.get(IMAGE) or None,
        "commit": f"{commit}{DIRTY if changed else ''}" if commit else None,
    }


def source_location(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return `repository` (a web address, without names and keys) and `commit`; None unless both are known."""
    commit, _ = _commit(environment)
    repository = web_address(environment.get("GEARTRAIN_GIT_REPOSITORY") or _git().get("remote", ""))
    return {"repository": repository, "commit": commit} if commit and repository else None


def _commit(environment: Mapping[str, str]) -> tuple[str, bool | None]:
    """Return the commit, or "", and whether sources were changed since; an image's commit says so by its end."""
    named, found = environment.get("GEARTRAIN_GIT_COMMIT"), _git()
    if named:
        return named.removesuffix(DIRTY), True if named.endswith(DIRTY) else found.get("changed")
    return found.get("commit", ""), found.get("changed")


@cache
def _git() -> dict[str, Any]:
    """Return commit, remote and whether sources were changed, of the checkout that this package is part of, if any."""
    root = checkout()
    if not (root / ".git").exists() or not (root / "src" / "geartrain").is_dir():
        return {}
    commit = _ask(root, "rev-parse", "HEAD")
    if not commit:
        return {}
    changed = _ask(root, "status", "--porcelain", "--", "src")
    return {"commit": commit, "remote": _ask(root, "config", "--get", "remote.origin.url"), "changed": bool(changed)}


def _ask(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    variables = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # only looks: whoever works there is not to wait
    try:
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
