"""Kubeflow step `register`: enters a promoted model in registries, publishes its record. Only if the gate passed it."""

from kfp import dsl

from components.images import IMAGE


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def register(
    run_id: str,
    dataset_rev: str,
    dataset_digest: str,
    image_digest: str,
    promotion: dsl.Input[dsl.Model],
    record: dsl.Output[dsl.Artifact],
) -> None:
    """Check the model against its manifest, enter it in registries, write its record as an artifact and to the log."""
    import json
    from pathlib import Path

    from geartrain.cluster.release import publish_record
    from geartrain.cluster.step import reported, say

    marks = {"dataset_rev": dataset_rev, "dataset_digest": dataset_digest, "image_digest": image_digest}
    promoted, output = Path(promotion.path), Path(record.path)
    with reported("register"):
        told = publish_record(promoted=promoted, uri=promotion.uri, run_id=run_id, marks=marks, output=output)
    record.metadata.update({**marks, "digest": told["model"]["digest"]})
    say(f"promoted: {json.dumps(told, sort_keys=True)}")
