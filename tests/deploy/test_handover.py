"""What passes between steps, on kfp.local: an artifact that a job has put elsewhere, and what the cache sees."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl, local

from tests.deploy import traps


@traps.component
def launching(place: str, model: dsl.Output[dsl.Model], metrics: dsl.Output[dsl.Metrics]) -> None:
    import os
    from pathlib import Path

    from geartrain.cluster.step import launch_step

    def job(**asked: Any) -> dict:
        folder = Path(place) / ("d" * 64)
        folder.mkdir()
        (folder / "weights").write_text(f"{asked['stage']} of {asked['run_id']}")
        return {"uri": str(folder), "reward": 0.5, "bytes": 7}

    os.environ["GEARTRAIN_RUN_ID"] = "run-1"
    marks = {"dataset_digest": "sha256:d"}
    launch_step(job, "policy", {"seed": 1}, {}, model, metrics, marks, cluster={"nodes": 2})


@traps.component
def reading(model: dsl.Input[dsl.Model]) -> str:
    from pathlib import Path

    told = [model.metadata[key] for key in ("digest", "dataset_digest")]
    return " ".join([(Path(model.path) / "weights").read_text(), *told])


@dsl.pipeline(name="handover")
def handover(place: str) -> str:
    return reading(model=launching(place=place).outputs["model"]).output


@traps.component
def counting(folder: str, dataset_rev: str, dataset_digest: str, image_digest: str) -> int:
    from pathlib import Path

    (Path(folder) / f"{len(list(Path(folder).iterdir()))}").touch()
    return len(list(Path(folder).iterdir()))


@dsl.pipeline(name="cached")
def cached(folder: str, dataset_digest: str = "sha256:d", image_digest: str = "sha256:i") -> int:
    return counting(folder=folder, dataset_rev="v3", dataset_digest=dataset_digest, image_digest=image_digest).output


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Any]:
    """A local runner, as a call with its settings; what it keeps in the process is put back."""
    before, level = local.config.LocalExecutionConfig.instance, logging.getLogger().level

    def init(**settings: Any) -> None:
        folders = {"pipeline_root": str(tmp_path / "kfp"), "workspace_root": str(tmp_path / "workspace")}
        local.init(local.SubprocessRunner(use_venv=False), raise_on_error=True, **folders, **settings)

    yield init
    local.config.LocalExecutionConfig.instance = before
    logging.getLogger().setLevel(level)


def test_the_next_step_reads_where_the_job_has_published(tmp_path: Path, runner: Any) -> None:
    runner()
    (tmp_path / "store").mkdir()
    told = handover(place=str(tmp_path / "store")).output
    assert told == f"policy of run-1 {'d' * 64} sha256:d"
    # nothing was copied to where Kubeflow had wanted it
    assert not list((tmp_path / "kfp").rglob("weights"))


def test_same_digests_hit_the_cache_and_others_do_not(tmp_path: Path, runner: Any) -> None:
    runner(enable_caching=True, cache_root=str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    folder.mkdir()
    assert cached(folder=str(folder)).output == 1
    assert cached(folder=str(folder)).output == 1
    assert cached(folder=str(folder), dataset_digest="sha256:changed").output == 2
    assert cached(folder=str(folder), image_digest="sha256:changed").output == 3
    assert len(list(folder.iterdir())) == 3
