"""A stage that somebody scrapes and whose log somebody collects, started as people start it."""

import json
import os
import subprocess
import sys

import pytest

from tests.fakes.scrape import fetch, parse

RUN = "11111111-2222-3333-4444-555555555555"


@pytest.mark.slow
def test_a_stage_answers_waits_for_the_last_scrape_and_logs_one_json_object_a_line(tmp_path):
    told = {"GEARTRAIN_METRICS_PORT": "0", "GEARTRAIN_METRICS_LINGER": "120", "GEARTRAIN_LOG": "json"}
    command = [sys.executable, "-m", "geartrain", "run", "--profile", "smoke", "--dir", str(tmp_path / "run")]
    lines = []
    with subprocess.Popen(
        [*command, "--set", "environment.name=twophase", "--until", "tasks"],
        env={**os.environ, **told, "GEARTRAIN_RUN_ID": RUN},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stderr:
            lines.append(json.loads(line))
            message = lines[-1]["message"]
            if message.startswith("metrics: "):
                port = int(message.rpartition(":")[2].partition("/")[0])
                while True:  # until the scrape that sees its end, after which the port is closed
                    found = parse(fetch(port, timeout=60))
                    info = [dict(labels) for name, labels in found if name == "geartrain_stage_info"]
                    if info:
                        seen = info[0]
                    if found.get(("geartrain_stage_ends_total", (("outcome", "complete"), ("stage", "tasks")))) == 1:
                        break
        assert process.wait() == 0
    assert (seen["stage"], seen["run_id"], len(seen["git_commit"]) >= 40) == ("tasks", RUN, True)
    assert found["geartrain_stage_running", (("stage", "tasks"),)] == 0
    of_stage = [line for line in lines if line.get("stage") == "tasks"]
    assert {line["run"] for line in of_stage} == {RUN}
    assert any(line.get("label") == "tasks" and line["done"] == line["total"] for line in of_stage)
