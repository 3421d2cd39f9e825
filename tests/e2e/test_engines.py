"""The same bytes whoever runs the stages; a second run repeats nothing."""

import shutil
import sys
from pathlib import Path

import pytest

from geartrain.stages.stage import ORDER
from tests.e2e.checkout import Checkout, digests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
GEARTRAIN = [sys.executable, "-m", "geartrain"]


def test_a_second_direct_run_skips_every_stage(finished: Checkout) -> None:
    again = finished.run(*GEARTRAIN, "run")
    assert again.returncode == 0
    assert again.stderr.count("unchanged, skipped") == len(ORDER)


def test_a_damaged_output_is_made_again_and_comes_out_the_same(finished: Checkout, tmp_path: Path) -> None:
    damaged = Checkout(tmp_path / "damaged")
    shutil.copytree(finished.root, damaged.root, symlinks=True)
    (damaged.root / "models/promoted/manifest.json").write_text("{}")
    again = damaged.run(*GEARTRAIN, "run")
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("unchanged, skipped") == len(ORDER) - 1
    assert digests(damaged.root) == digests(finished.root)


def test_kubeflow_s_local_runner_makes_the_same_artifacts(finished: Checkout, tmp_path: Path) -> None:
    ran = finished.run(*GEARTRAIN, "run", "--profile", "smoke", "--engine", "kfp", "--dir", str(tmp_path))
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert digests(tmp_path) == digests(finished.root)


def test_the_report_shows_the_run(finished: Checkout) -> None:
    shown = finished.run(*GEARTRAIN, "report")
    assert shown.returncode == 0, shown.stderr
    assert (finished.root / "reports/index.html").is_file()
    assert shown.stdout.splitlines()[-1] == "report: reports/index.html"


def test_any_model_folder_can_be_measured(finished: Checkout) -> None:
    measured = finished.run(*GEARTRAIN, "eval", "models/warm_start", "--split", "test")
    assert measured.returncode == 0, measured.stderr
    assert '"greedy"' in measured.stdout
    assert '"sampled"' in measured.stdout
