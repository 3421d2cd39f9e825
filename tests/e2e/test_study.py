"""A real study in tiny sizes: killed while its first variant trains, resumed, and looked at."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from geartrain.lineage.events import read_events, stage_of
from geartrain.study.run import OWN, SHARED
from tests.e2e.checkout import ROOT, Checkout, make_checkout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
STUDY = [sys.executable, "-m", "geartrain", "study", "studies/smoke.yaml"]
POLL_SECONDS = 0.1
SEEDS, VARIANTS = (0, 1), ("grpo", "gear_b")


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose study was killed in the middle and then went through."""
    checkout = make_checkout(tmp_path_factory.mktemp("study"))
    (checkout.root / "studies").mkdir()
    (checkout.root / "studies/smoke.yaml").write_bytes((ROOT / "studies/smoke.yaml").read_bytes())
    _kill_in_the_first_variant(checkout)
    early = checkout.run(*STUDY, "--table")
    assert early.returncode == 0, early.stderr
    assert "`twophase/seed-1/gear_b`: not run yet" in (_output(checkout) / "results.md").read_text()
    resumed = checkout.run(*STUDY)
    assert resumed.returncode == 0, resumed.stderr
    assert "shared stages: 2 of 2 are finished already" in resumed.stderr
    return checkout


def test_no_finished_stage_ran_twice(studied: Checkout) -> None:
    for seed in SEEDS:
        assert _started(studied, seed, "base") == list(SHARED)
        for variant in VARIANTS:
            started = _started(studied, seed, variant)
            killed = (seed, variant) == (0, "grpo")
            assert started == (["policy", *OWN] if killed else list(OWN))


def test_results_hold_every_cell_on_equal_ground(studied: Checkout) -> None:
    results = json.loads((_output(studied) / "results.json").read_text())
    assert (len(results["cells"]), results["missing"]) == (4, {})
    for seed in SEEDS:
        first, second = (cell for cell in results["cells"] if cell["seed"] == seed)
        # the same policy plays the same first tasks; only then do the methods part
        assert first["curve"]["success"][0] == second["curve"]["success"][0]
        assert first["curve"]["environment_steps"][:2] == second["curve"]["environment_steps"][:2]
        assert first["episodes"] == second["episodes"] == 3 * 3 * 3
        assert all("plan_success" in record for cell in (first, second) for record in _history(studied, cell))
        before, other = (cell["credit"]["before"]["scores"] for cell in (first, second))
        assert before["all"]["steps"] == other["all"]["steps"] > 0
    compared = results["environments"]["twophase"]["comparisons"]["test_sampled"]["gear_b"]
    assert (compared["over_tasks"]["pairs"], compared["over_seeds"]["pairs"]) == (6, 2)


def test_table_and_picture_are_there_and_built_again_the_same(studied: Checkout) -> None:
    output = _output(studied)
    names = ("results.json", "results.md", "results.csv", "curves.svg")
    first = [(output / name).read_bytes() for name in names]
    assert studied.run(*STUDY, "--table").returncode == 0
    assert [(output / name).read_bytes() for name in names] == first
    assert [row["variant"] for row in csv.DictReader((output / "results.csv").read_text().splitlines())] == list(
        VARIANTS
    )
    assert str(studied.root) not in (output / "results.json").read_text()


def test_a_finished_study_runs_nothing(studied: Checkout) -> None:
    again = studied.run(*STUDY)
    assert again.returncode == 0
    assert "cells: 4 of 4 are finished already" in again.stderr


def _output(checkout: Checkout) -> Path:
    return checkout.root / "runs/studies/smoke"


def _history(checkout: Checkout, cell: Mapping[str, Any]) -> list[dict[str, Any]]:
    folder = _output(checkout) / cell["environment"] / f"seed-{cell['seed']}" / cell["variant"]
    return [json.loads(line) for line in (folder / "models/policy/history.jsonl").read_text().splitlines()]


def _started(checkout: Checkout, seed: int, variant: str) -> list[str]:
    log = _output(checkout) / f"twophase/seed-{seed}/{variant}/.geartrain/lineage"
    return [stage_of(event) for event in read_events(log) if event["eventType"] == "START"]


def _kill_in_the_first_variant(checkout: Checkout) -> None:
    with (
        (checkout.root / "study.log").open("w") as output,
        subprocess.Popen(STUDY, cwd=checkout.root, env=checkout.variables, stdout=output, stderr=output) as study,
    ):
        while "policy" not in _started(checkout, 0, "grpo"):
            assert study.poll() is None, (checkout.root / "study.log").read_text()
            try:
                study.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        children = psutil.Process(study.pid).children(recursive=True)
        study.send_signal(signal.SIGKILL)
        study.wait()
        psutil.wait_procs(children, timeout=60)
        assert not [child for child in children if child.is_running()], "a stage outlived its study"
