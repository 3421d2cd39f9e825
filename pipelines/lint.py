"""What compiles and runs on one machine, and fails or lies on a cluster: one rule per trap.

kfp.local accepts more than the backend does. Each rule names the issue that shows the trap, the task that is in it and
the way out. `python -m pipelines.compile` always checks; `--lint FILE` checks any compiled pipeline.

Numbers such as kubeflow/pipelines#12390 are public issues; "backend" is that repository's backend/src/v2 (2.17).
"""

from collections.abc import Iterator

from pipelines.compiled import Compiled, Task
from pipelines.findings import Finding, Found, Rule
from pipelines.lint_values import RULES as VALUES

SIZE_BUDGET = 150_000
"""Bytes of YAML. Argo's object is about three times as large, grows while the run goes on, and etcd takes 1.5 MiB."""
MARKS = ("dataset_rev", "dataset_digest", "image_digest")
RUN_ID = "{{$.pipeline_job_uuid}}"
WORKSPACE = "{{$.workspace_path}}"
MOST_RETRIES = 3
"""Of a step. What it launches once more after `geartrain cancel`, `geartrain reap` deletes."""
STORES = ("gs://", "s3://", "minio://", "oci://")
MODEL = "system.Model"


def lint(compiled: Compiled, *, release: bool = False) -> list[Finding]:
    """Return every trap that a compiled pipeline is in.

    Args:
        compiled: the pipeline.
        release: also ask what matters on a real cluster only, such as images by digest.
    """
    return [
        Finding(rule.name, task, what, rule.issue, rule.mend)
        for rule in (*RULES, *VALUES)
        if release or not rule.release
        for task, what in rule.check(compiled)
    ]


def loop_in_exit_handler(compiled: Compiled) -> Found:
    """A loop below an exit handler."""
    for task in compiled.tasks:
        if task.iterates and task.guarded:
            yield task.name, "a loop inside an exit handler fails at run time"


def loop_without_limit(compiled: Compiled) -> Found:
    """A loop that starts everything at once."""
    for task in compiled.tasks:
        if task.iterates and not task.body.get("iteratorPolicy", {}).get("parallelismLimit"):
            yield task.name, "a loop without a limit overruns the metadata store"


def importer_in_loop(compiled: Compiled) -> Found:
    """An importer below an iterator."""
    for task in compiled.tasks:
        if "importer" in task.executor and any(outer.iterates for outer in task.above):
            yield task.name, "an importer inside a loop fails at run time"


def importer_of_output(compiled: Compiled) -> Found:
    """An importer whose address a task has made."""
    for task in compiled.tasks:
        name = task.executor.get("importer", {}).get("artifactUri", {}).get("runtimeParameter")
        if name and "componentInputParameter" not in task.parameters.get(name, {}):
            yield task.name, "the backend's importer reads a parameter of the pipeline, not the output of a task"


def importer_of_odd_address(compiled: Compiled) -> Found:
    """An importer of an address that no object store has."""
    for task in compiled.tasks:
        uri = task.executor.get("importer", {}).get("artifactUri", {}).get("constant", STORES[0])
        if not str(uri).startswith(STORES):
            yield task.name, f"the backend reads {', '.join(STORES)} only, not {uri!r}"


def cached_without_digest(compiled: Compiled) -> Found:
    """A cached step whose key does not say which data and which code; of an exit task see `cached_exit_task`."""
    for task in compiled.tasks:
        missing = [name for name in MARKS if name not in task.parameters]
        if task.cached and missing and task.container and not task.is_exit:
            yield task.name, f"may come from the cache, but is not told {', '.join(missing)}"


def cache_key(compiled: Compiled) -> Found:
    """A cache key of one's own."""
    for task in compiled.tasks:
        if task.body.get("cachingOptions", {}).get("cacheKey"):
            yield task.name, "its cacheKey replaces all inputs in the key: changed inputs get old outputs"


def cached_exit_task(compiled: Compiled) -> Found:
    """An exit task that may be skipped."""
    for task in compiled.tasks:
        if task.is_exit and task.cached:
            yield task.name, "the exit task may come from the cache, and would then do nothing"


def cached_by_run(compiled: Compiled) -> Found:
    """A cached step that is given the run's id."""
    for task in compiled.tasks:
        if task.cached and RUN_ID in map(str, task.constants.values()):
            yield task.name, "is given the run's id, so no other run hits its cache; or it acts on the world"


def cached_with_workspace(compiled: Compiled) -> Found:
    """A cached step that uses the run's own volume."""
    for task in compiled.tasks:
        container = task.container
        words = [*task.constants.values(), *container.get("command", []), *container.get("args", [])]
        words += [variable.get("value", "") for variable in container.get("env", [])]
        if task.cached and any(WORKSPACE in str(word) for word in words):
            yield task.name, "its key has the name of this run's volume, so no other run hits its cache"


def retry_of_dag(compiled: Compiled) -> Found:
    """Retries of what is no container."""
    for task in compiled.tasks:
        if task.is_dag and task.body.get("retryPolicy", {}).get("maxRetryCount"):
            yield task.name, "retries of a sub-DAG are ignored"


def no_retry(compiled: Compiled) -> Found:
    """A step that the first lost node fails."""
    for task in compiled.tasks:
        if task.container and not task.body.get("retryPolicy", {}).get("maxRetryCount"):
            yield task.name, "one lost node fails the whole run"


def many_retries(compiled: Compiled) -> Found:
    """A step that begins anew again and again after its run was ended: Argo takes what is terminated for failed."""
    for task in compiled.tasks:
        count = int(task.body.get("retryPolicy", {}).get("maxRetryCount", 0))
        if task.container and count > MOST_RETRIES:
            yield task.name, f"{count} retries; a run that is terminated starts it as often again"


def _steps(compiled: Compiled) -> Iterator[Task]:
    return (task for task in compiled.tasks if task.container)


def too_large(compiled: Compiled) -> Found:
    """More than the cluster's database takes."""
    if compiled.size > SIZE_BUDGET:
        yield "pipeline", f"{compiled.size} bytes; more than {SIZE_BUDGET} may not fit, nor be retried"


def no_limits(compiled: Compiled) -> Found:
    """A step that may take a node's memory, or that says half of what accelerator it wants."""
    for task in _steps(compiled):
        resources = task.container.get("resources", {})
        wanted = ("resourceCpuRequest", "resourceMemoryRequest", "resourceMemoryLimit")
        missing = [name.removeprefix("resource") for name in wanted if not resources.get(name)]
        if missing:
            yield task.name, f"has no {', '.join(missing)}"
        accelerator = resources.get("accelerator")
        if accelerator is not None and not (accelerator.get("resourceType") and accelerator.get("resourceCount")):
            yield task.name, "names an accelerator's type or count, not both, and gets none"


def unsized_volume(compiled: Compiled) -> Found:
    """A step that may fill a node's disk."""
    for task in _steps(compiled):
        mounts = task.platform.get("emptyDirMounts", [])
        for mount in mounts:
            if not mount.get("sizeLimit"):
                yield task.name, f"its volume at {mount['mountPath']} has no size"
        outputs = task.component.get("outputDefinitions", {}).get("artifacts", {}).values()
        models = any(output["artifactType"].get("schemaTitle") == MODEL for output in outputs)
        if models and not (mounts or task.platform.get("pvcMount") or task.platform.get("genericEphemeralVolume")):
            yield task.name, "writes a model to the pod's own disk, and may be evicted for it"


def maybe_root(compiled: Compiled) -> Found:
    """A step that may run as root."""
    for task in _steps(compiled):
        context = task.platform.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or int(context.get("runAsUser", 0)) <= 0:
            yield task.name, "does not say that it runs as a user by number, and not as root"


def installs(compiled: Compiled) -> Found:
    """A step that installs packages when it starts."""
    for task in _steps(compiled):
        if "pip install" in " ".join(map(str, task.container.get("command", []))):
            yield task.name, "installs packages when it starts: other versions, no network, no user to write as"


_LEAF = "Set retries on the steps themselves: set_retry(num_retries=2, backoff_duration='30s')."
_DIGESTS = "Give it dataset_rev, dataset_digest and image_digest as parameters, as step `resolve` found them."
_LOOP = "Write the loop in Python, so that it is unrolled when the pipeline is compiled."
_RESOLVE = "Read the address in a step of your own, as `resolve` does; or make it a parameter of the pipeline."
_UNCACHED = "set_caching_options(False)."
RULES = (
    Rule(loop_in_exit_handler, "kubeflow/pipelines#12390", _LOOP),
    Rule(loop_without_limit, "kubeflow/pipelines#13179, #12131", "dsl.ParallelFor(..., parallelism=2)."),
    Rule(importer_in_loop, "kubeflow/pipelines#10860", _RESOLVE),
    Rule(importer_of_output, "backend component/importer_launcher.go", _RESOLVE),
    Rule(importer_of_odd_address, "backend component/importer_launcher.go", _RESOLVE),
    Rule(cached_without_digest, "kubeflow/pipelines#12751; backend cacheutils", f"{_DIGESTS} Or {_UNCACHED}"),
    Rule(cache_key, "kubeflow/pipelines#13762", "Leave cache_key out."),
    Rule(cached_exit_task, "backend driver/cache.go", _UNCACHED),
    Rule(
        cached_by_run,
        "backend cacheutils",
        f"{_UNCACHED} Or take the id from the pod's label pipeline/runid (use_field_path_as_env).",
    ),
    Rule(cached_with_workspace, "backend cacheutils", f"Pass artifacts instead, or {_UNCACHED}"),
    Rule(retry_of_dag, "kubeflow/pipelines#9950, #11288", _LEAF),
    Rule(no_retry, "kubeflow/pipelines#14266", _LEAF),
    Rule(many_retries, "kubeflow/pipelines#4692", f"Give it {MOST_RETRIES} at most."),
    Rule(too_large, "kubeflow/pipelines#13738", "Fewer tasks, and no code or data inlined."),
    Rule(no_limits, "kubeflow/pipelines#11374, #11390", "Give it a row in pipelines/resources.py."),
    Rule(unsized_volume, "kubeflow/pipelines#11137", "kubernetes.empty_dir_mount(task, ..., size_limit='10Gi')."),
    Rule(
        maybe_root,
        "kubeflow/pipelines#13885",
        "kubernetes.set_security_context(task, run_as_user=65532, run_as_non_root=True).",
    ),
    Rule(
        installs,
        "opendatahub-io/pipelines-components#190",
        "Put packages into the image; @dsl.component(install_kfp_package=False).",
    ),
)
