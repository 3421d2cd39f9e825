"""A stage in a few bytes, under the name that it is imported by. $TOY_TROUBLE: "stage:error" makes one fail."""

import errno
import os

from geartrain import errors
from geartrain.artifacts import read_manifest, write_json
from geartrain.stages.stage import stage

NAME = __name__.rpartition(".")[2]
INPUTS = {
    "tasks": (),
    "warm_start": ("tasks",),
    "collect": ("tasks", "warm_start"),
    "preferences": ("tasks", "collect"),
    "reward_model": ("preferences",),
    "critic": ("warm_start", "collect", "preferences"),
    "policy": ("tasks", "warm_start", "preferences", "reward_model", "critic"),
    "evaluation": ("tasks", "warm_start", "policy"),
    "promotion": ("policy", "evaluation"),
}
PLAYS = {"warm_start", "collect", "policy", "evaluation"}
SECTIONS = {
    **{name: (name,) for name in INPUTS},
    **{name: ("model", "environment", name) for name in PLAYS},
    "tasks": ("environment", "tasks"),
    "critic": ("model", "critic"),
}


@stage(inputs=INPUTS[NAME], sections=SECTIONS[NAME], files=("environment.source",) if NAME == "tasks" else ())
def run(job):
    trouble, _, kind = os.environ.get("TOY_TROUBLE", "").partition(":")
    if trouble == NAME:
        raise (
            OSError(errno.ENOSPC, "no space left")
            if kind == "OSError"
            else getattr(errors, kind, ValueError)("on purpose\nand on two lines")
        )
    made_of = {name: read_manifest(path).digest for name, path in job.inputs.items()}
    write_json(job.outputs[NAME] / "made.json", made_of)
    if NAME == "promotion":
        promoted = os.environ.get("TOY_VERDICT", "1") == "1"
        write_json(job.outputs[NAME] / "model" / "config.json", {"toy": True})
        checks = [{"name": "gain_low", "value": 0.1}]
        decision = {"promoted": promoted, "candidate": made_of["policy"], "evaluation": made_of["evaluation"]}
        write_json(job.outputs[NAME] / "decision.json", {**decision, "checks": checks})
        return {"promoted": int(promoted)}
    return {"inputs": len(made_of), "nested": {"one": 1}, "text": "left out"}
