"""The command line in this process, and a folder to work in: a compiled pipeline, a configuration, a schedule."""

from pathlib import Path

import yaml
from typer.testing import CliRunner

from geartrain import cli
from geartrain.cluster.jobs import JOBS
from tests.fakes.pipeline import write_pipeline

SECTIONS = (
    *("model", "environment", "tasks", "warm_start", "collect", "preferences"),
    *("reward_model", "critic", "policy", "evaluation", "promotion"),
)
INPUTS = {
    **{name: {"parameterType": "STRUCT"} for name in SECTIONS},
    "seed": {"parameterType": "NUMBER_INTEGER"},
    "threads": {"parameterType": "NUMBER_INTEGER"},
    "dataset_rev": {"parameterType": "STRING", "isOptional": True},
    **{name: {"parameterType": "STRUCT", "defaultValue": {}, "isOptional": True} for name in ("data", *JOBS.values())},
}


def fill(folder):
    """Write what commands need into a folder that is the working directory."""
    write_pipeline(folder / "training.yaml", inputs=INPUTS)
    (folder / "params.yaml").write_text("seed: 3\npolicy: {iterations: 2}\n")
    (folder / "schedules").mkdir()
    write_schedule("0 0 2 * * *")


def write_schedule(cron, **changes):
    record = {"name": "nightly", "description": "d", "owner": "o@example.org", "cron": cron, "params": "../params.yaml"}
    Path("schedules/nightly.yaml").write_text(yaml.safe_dump({**record, **changes}))


def geartrain(*arguments, code=0, **options):
    done = CliRunner().invoke(cli.app, arguments, **options)
    failure = getattr(done.exception, "exit_code", None)
    assert (done.exit_code if failure is None else failure) == code, done.output or done.exception
    return str(done.exception) if failure is not None else done.stdout
