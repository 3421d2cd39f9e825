"""Kubeflow's exit task `conclude`: the final record of a run, however it ended."""

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def conclude(
    run_id: str,
    dataset_rev: str,
    status: dsl.PipelineTaskFinalStatus,
    record: dsl.Output[dsl.Artifact],
) -> None:
    """Write state, failed task and reason as an artifact and to the log."""
    from pathlib import Path

    from geartrain.cluster.conclusion import conclude

    told = conclude(run_id=run_id, state=status.state, output=Path(record.path), marks={"dataset_rev": dataset_rev})
    record.metadata.update({"state": told["state"], "failed_task": told["failed_task"] or ""})
