"""A compiled pipeline of one task, small enough to read."""

import yaml

SPEC = {
    "components": {"comp-tasks": {"executorLabel": "exec-tasks"}},
    "deploymentSpec": {"executors": {"exec-tasks": {"container": {"image": "geartrain/python:dev", "args": ["x"]}}}},
    "pipelineInfo": {"name": "geartrain"},
    "root": {
        "dag": {
            "tasks": {
                "tasks": {
                    "componentRef": {"name": "comp-tasks"},
                    "taskInfo": {"name": "tasks"},
                    "cachingOptions": {"enableCache": False},
                    "retryPolicy": {"maxRetryCount": 2},
                }
            }
        },
        "inputDefinitions": {"parameters": {"seed": {"parameterType": "NUMBER_INTEGER"}}},
    },
    "schemaVersion": "2.1.0",
    "sdkVersion": "kfp-2.17.3",
}


def write_pipeline(path, *, image="geartrain/python:dev", platform=None, inputs=None):
    """Write the pipeline's YAML to `path`; `platform` is a second document, `inputs` other parameters."""
    spec = yaml.safe_load(yaml.safe_dump(SPEC))
    spec["deploymentSpec"]["executors"]["exec-tasks"]["container"]["image"] = image
    if inputs is not None:
        spec["root"]["inputDefinitions"]["parameters"] = inputs
    path.write_text(yaml.safe_dump_all([spec] if platform is None else [spec, platform]))
    return path
