"""The same as on the stand-in, on a real GPU: what models do there, and the policy stage of the smoke profile.

Skipped without one. Last bits differ between kernels, so numbers agree within a tolerance, not bit for bit.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from geartrain.placement import VARIABLE, own_device
from tests.fakes.chores import CHORES, CPU, fresh, numbers, same

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
DIVERGES = {"train", "teacher,", "killed", "begun"}
"""First words of chores that play after they have learned: a token that falls the other way changes all that follows,
so of these only the first iteration's numbers are compared."""
FIRST = 20


@pytest.mark.parametrize("name", CHORES)
def test_a_gpu_says_what_the_cpu_says(name: str, tmp_path: Path) -> None:
    expected = numbers(CHORES[name](CPU, fresh(tmp_path, "cpu")))
    found = numbers(CHORES[name](own_device({VARIABLE: "cuda"}), fresh(tmp_path, "gpu")))
    if name.split()[0] in DIVERGES:
        found, expected = found[:FIRST], expected[:FIRST]
    same(found, expected, tolerance=2e-3)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """The smoke run up to the policy, on the CPU."""
    folder = tmp_path_factory.mktemp("smoke")
    _geartrain(root, "run", "--profile", "smoke", "--dir", str(folder), "--until", "critic", device="cpu")
    return folder


def test_the_policy_stage_trains_there(prepared: Path, tmp_path: Path, root: Path) -> None:
    told: dict[str, list[dict[str, Any]]] = {}
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        shutil.copytree(prepared, folder, symlinks=True)
        _geartrain(root, "stage", "policy", "--dir", str(folder), device=device)
        told[device] = [json.loads(line) for line in (folder / "models/policy/history.jsonl").read_text().splitlines()]
    assert len(told["cuda"]) == len(told["cpu"]) > 0
    assert all(record.get("mismatch", 0.0) < 1e-3 for record in told["cuda"])
    for name in ("start_val_greedy", "reward", "groups", "trained_trajectories", "tokens"):
        assert told["cuda"][0].get(name) == pytest.approx(told["cpu"][0].get(name), rel=2e-2), name


def test_a_run_that_began_there_goes_on_without_it(prepared: Path, tmp_path: Path, root: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(prepared, folder, symlinks=True)
    running = subprocess.Popen(
        [sys.executable, "-m", "geartrain", "stage", "policy", "--dir", str(folder)],
        cwd=root,
        env={**os.environ, VARIABLE: "cuda"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while running.poll() is None and not list(folder.glob(".geartrain/work/policy-*/checkpoints/*.pt")):
        time.sleep(0.05)
    running.kill()
    running.wait()
    _geartrain(root, "stage", "policy", "--dir", str(folder), device="cpu")
    assert len((folder / "models/policy/history.jsonl").read_text().splitlines()) == 2


def _geartrain(root: Path, *words: str, device: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "geartrain", *words],
        cwd=root,
        env={**os.environ, VARIABLE: device},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
