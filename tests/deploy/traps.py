"""Pipelines that compile, and that would run here; each is in one trap of the cluster's, named as the rule for it."""

import functools
from collections.abc import Callable
from typing import Any

from kfp import dsl, kubernetes

IMAGE = "geartrain/python:dev"
MARKS = {"dataset_rev": "v3", "dataset_digest": "sha256:d", "image_digest": "sha256:i"}
component = functools.partial(dsl.component, base_image=IMAGE, install_kfp_package=False)
Build = Callable[[], Any]


@component
def step(dataset_rev: str, dataset_digest: str, image_digest: str, text: str) -> str:
    return text


@component
def unmarked(text: str) -> str:
    return text


@component
def last(run_id: str, status: dsl.PipelineTaskFinalStatus) -> None:
    print(run_id, status.state)


@component
def model(dataset_rev: str, dataset_digest: str, image_digest: str, model: dsl.Output[dsl.Model]) -> None:
    model.metadata["made"] = "yes"


@component(base_image="geartrain/python:latest")
def latest(dataset_rev: str, dataset_digest: str, image_digest: str) -> None: ...


@component(packages_to_install=["six"])
def installing(dataset_rev: str, dataset_digest: str, image_digest: str) -> None: ...


def housed(task: Any, *, size: str | None = "1Gi", memory: str = "1G", retries: int = 1, user: int = 65532) -> Any:
    """Give a task all that the rules ask for, but for what is said."""
    if memory:
        task.set_cpu_request("1").set_memory_request(memory).set_memory_limit(memory)
    if retries:
        task.set_retry(num_retries=retries)
    if user:
        kubernetes.set_security_context(task, run_as_user=user, run_as_non_root=True)
    if size != "":
        kubernetes.empty_dir_mount(task, "work", "/work", size_limit=size)
    return task


def good(text: str = "x") -> Any:
    return housed(step(text=text, **MARKS))


def pipeline(body: Callable[[], Any]) -> Build:
    """Make a pipeline of a body without parameters."""
    return lambda: dsl.pipeline(name="trap")(body)


def _exit(*, cached: bool = False) -> Any:
    return housed(last(run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER)).set_caching_options(cached)


def loop_in_exit_handler() -> None:
    with dsl.ExitHandler(_exit()), dsl.ParallelFor(["a", "b"], parallelism=1) as item:
        good(item)


def loop_without_limit() -> None:
    with dsl.ParallelFor(["a", "b"]) as item:
        good(item)


def importer_in_loop() -> None:
    with dsl.ParallelFor(["a", "b"], parallelism=1):
        dsl.importer(artifact_uri="s3://bucket/data", artifact_class=dsl.Dataset)


def importer_of_output() -> None:
    dsl.importer(artifact_uri=good("s3://bucket/data").output, artifact_class=dsl.Dataset)


def importer_of_odd_address() -> None:
    dsl.importer(artifact_uri="dvc://registry/data", artifact_class=dsl.Dataset)


def cached_without_digest() -> None:
    housed(unmarked(text="x"))


def cache_key() -> None:
    good().set_caching_options(True, cache_key="fixed")


def cached_exit_task() -> None:
    with dsl.ExitHandler(housed(last(run_id="x"))):
        good()


def cached_by_run() -> None:
    good(dsl.PIPELINE_JOB_ID_PLACEHOLDER)


WORKSPACE = dsl.PipelineConfig(workspace=dsl.WorkspaceConfig(size="1Gi"))


@dsl.pipeline(name="trap", pipeline_config=WORKSPACE)
def cached_with_workspace() -> None:
    good(dsl.WORKSPACE_PATH_PLACEHOLDER)


@dsl.pipeline(name="inner")
def inner() -> None:
    good()


def retry_of_dag() -> None:
    inner().set_retry(num_retries=2)


def no_retry() -> None:
    housed(step(text="x", **MARKS), retries=0)


def many_retries() -> None:
    housed(step(text="x", **MARKS), retries=4)


def too_large() -> None:
    for number in range(70):
        good(f"{number}" * 800)


def no_limits() -> None:
    housed(step(text="x", **MARKS), memory="")


def half_an_accelerator() -> None:
    good().set_accelerator_limit(1)


def unsized_volume() -> None:
    housed(model(**MARKS), size="")


def volume_without_size() -> None:
    housed(model(**MARKS), size=None)


def maybe_root() -> None:
    housed(step(text="x", **MARKS), user=0)


def installs() -> None:
    housed(installing(**MARKS))


def moving_image() -> None:
    housed(latest(**MARKS))


def image_without_digest() -> None:
    good()


def secret_in_clear() -> None:
    good().set_env_variable("S3_SECRET", "hunter2hunter2")


def secret_by_its_looks() -> None:
    good("https://robot:hunter2@git.example.org/data")


@dsl.pipeline(name="trap")
def secret_default(token: str = "abcdefgh", options: dict = {"api_key": "abcdefgh", "tokenizer": "bpe"}) -> None:  # noqa: B006
    good(token)


TRAPS: dict[str, tuple[str, Build]] = {
    **{
        body.__name__: (body.__name__, pipeline(body))
        for body in (
            loop_in_exit_handler,
            loop_without_limit,
            importer_in_loop,
            importer_of_output,
            importer_of_odd_address,
            cached_without_digest,
            cache_key,
            cached_exit_task,
            cached_by_run,
            retry_of_dag,
            no_retry,
            many_retries,
            too_large,
            no_limits,
            unsized_volume,
            maybe_root,
            installs,
            moving_image,
            image_without_digest,
            secret_in_clear,
        )
    },
    "cached_with_workspace": ("cached_with_workspace", lambda: cached_with_workspace),
    "half_an_accelerator": ("no_limits", pipeline(half_an_accelerator)),
    "volume_without_size": ("unsized_volume", pipeline(volume_without_size)),
    "secret_by_its_looks": ("secret_in_clear", pipeline(secret_by_its_looks)),
    "secret_default": ("secret_in_clear", lambda: secret_default),
}
"""Name -> (the rule that has to see it, what makes the pipeline)."""
