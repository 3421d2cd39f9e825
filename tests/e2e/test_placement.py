"""Every stage that has a model puts it on the device that its process is told to take, and finds what the CPU finds.

On the stand-in, whose rules are CUDA's, from the artifacts of the smoke run.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from geartrain.artifacts import read_manifest
from geartrain.config import parse_config
from geartrain.placement import VARIABLE
from geartrain.stages.stage import FOLDERS, load_stage
from geartrain.trajectory import read_trajectories
from tests.e2e.checkout import Checkout
from tests.fakes.chores import numbers, same
from tests.fakes.standin import KIND, standin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SMALLER = {"warm_start": {"epochs": 2.0}, "policy": {"iterations": 1, "validate_every": 1}}
"""Less of the same where a device of Python would take minutes; the CPU does it anew."""
PLACED = ("warm_start", "collect", "reward_model", "critic", "policy", "evaluation")


def _run(finished: Checkout, name: str, target: Path) -> dict[str, Any]:
    """Run one stage in this process, on the inputs that the smoke run left."""
    record = yaml.safe_load((finished.root / "params.yaml").read_text("utf-8"))
    record[name] |= SMALLER.get(name, {})
    stage = load_stage(name)
    inputs = {read: finished.root / FOLDERS[read] for read in stage.inputs}
    return stage.run(parse_config(record, source="params.yaml"), inputs, {name: target})


@pytest.mark.parametrize("name", PLACED)
def test_a_stage_on_a_device_finds_what_the_cpu_finds(
    name: str, finished: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    monkeypatch.chdir(finished.root)
    monkeypatch.setenv("GEARTRAIN_HOME", str(tmp_path / "home"))
    expected, cpu = read_manifest(finished.root / FOLDERS[name]).metrics, finished.root / FOLDERS[name]
    if name in SMALLER:
        cpu = tmp_path / "cpu"
        expected = _run(finished, name, cpu)
    monkeypatch.setenv(VARIABLE, KIND)
    with standin() as rules:
        found = _run(finished, name, tmp_path / "device")
    same(numbers(found), numbers(expected), tolerance=1e-3)
    assert rules.done[KIND] > 0
    assert rules.done["cpu"] == 0, "a model of this stage is not where its process should have it"
    if name == "collect":
        played, known = (list(read_trajectories(at / "trajectories.parquet")) for at in (tmp_path / "device", cpu))
        assert [t.token_ids() for t in played] == [t.token_ids() for t in known]


def test_no_other_stage_has_a_model() -> None:
    """Who loads one is in the list above."""
    has = {name for name in FOLDERS if "own_device" in vars(__import__(f"geartrain.stages.{name}", fromlist=["run"]))}
    assert has == set(PLACED)
