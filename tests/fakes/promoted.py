"""A promoted artifact as the stage `promotion` seals it, of a few bytes."""

import json

from geartrain import artifacts

INPUTS = {"policy": "1" * 64, "evaluation": "2" * 64}
ANCESTORS = {"3" * 64: "tasks", "4" * 64: "warm_start", "5" * 64: "environment.source"}
CARD = """---
license: apache-2.0
model-index:
- name: geartrain-analyst
  results:
  - dataset: {name: analyst (test), split: test, type: geartrain-analyst}
    metrics:
    - {name: 'success, greedy', type: success, value: 0.675}
    - {name: 'success, sampled', type: success, value: 0.5958}
---
# geartrain-analyst
"""
PACKAGES = {
    "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "version": 1,
    "components": [{"type": "library", "bom-ref": "torch==2.13.0", "name": "torch", "version": "2.13.0"}],
}
"""What an image says of its packages."""


def promoted(folder, *, passed=True, weights="weights", registries=(), name="geartrain-analyst", **section):
    """Seal a promoted artifact in `folder`, or the record of a candidate that has not passed; return its manifest."""
    folder.mkdir(parents=True)
    checks = [{"name": "gain_low", "value": 0.05 if passed else -0.01, "passed": passed}]
    decision = {"name": name, "candidate": "1" * 64, "evaluation": "2" * 64, "promoted": passed, "checks": checks}
    artifacts.write_json(folder / "decision.json", decision)
    if passed:
        for path, text in {"model.safetensors": weights, "config.json": "{}", "README.md": CARD}.items():
            artifacts.write_atomically(folder / "model" / path, text)
    else:
        artifacts.write_json(folder / "candidate.json", {"reasons": ["gain too small"]})
    parameters = {"seed": 0, "promotion": {"require_signature": False, "registries": list(registries), **section}}
    return artifacts.write_manifest(
        folder,
        stage="promotion",
        parameters=parameters,
        inputs=INPUTS,
        metrics={"promoted": int(passed)},
        ancestors=ANCESTORS,
    )


def image_packages(path):
    """Write what an image says of its packages to `path`; return it."""
    path.write_text(json.dumps(PACKAGES))
    return path
