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


def write_pipeline(path, *, image="geartrain/python:dev", platform=None, inputs=None, launches=None):
    """Write the pipeline's YAML to `path`.

    `platform` is a second document, `inputs` other parameters, `launches` a step that can only launch a job.
    """
    spec = yaml.safe_load(yaml.safe_dump(SPEC))
    spec["deploymentSpec"]["executors"]["exec-tasks"]["container"]["image"] = image
    if launches is not None:
        only = {"image": image, "env": [{"name": "A", "value": "1"}, {"name": "GEARTRAIN_LAUNCH_ONLY", "value": "1"}]}
        spec["deploymentSpec"]["executors"][f"exec-{launches}"] = {"container": only}
    if inputs is not None:
        spec["root"]["inputDefinitions"]["parameters"] = inputs
    path.write_text(yaml.safe_dump_all([spec] if platform is None else [spec, platform]))
    return path
