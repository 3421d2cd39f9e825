"""What is said of real trainings into which faults were put: of what they have recorded, and (slow) of new ones."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks/injected_faults.py"
LEAST = 10
"""Of the twelve faults of the first set that must be named first."""


@pytest.fixture(scope="module")
def faults():
    spec = importlib.util.spec_from_file_location("injected_faults", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def named(faults, name):
    found = faults.read(faults.FIXTURES / f"{name}.json.gz").causes
    return found[0].name if found else ""


def test_at_least_ten_of_twelve_faults_are_named_first(faults):
    sick = {name: run.expected for name, run in faults.FIRST.items() if run.expected}
    assert len(sick) == len(set(sick.values())) == 12
    right = [name for name, expected in sick.items() if named(faults, name) == expected]
    assert len(right) >= LEAST, set(sick) - set(right)


def test_healthy_runs_are_called_healthy(faults):
    """Three of `twophase`. The one of `analyst` is not, and rightly: in twelve iterations it unlearns its tasks."""
    well = {name: named(faults, name) for name, run in faults.FIRST.items() if not run.expected}
    assert well.pop("healthy_analyst") == "plateau"
    assert len(well) >= 3
    assert well == dict.fromkeys(well, "")


def test_runs_that_no_limit_was_set_by_are_named_as_they_were(faults):
    """The second set, as it came out."""
    wrong = {name: named(faults, name) for name, run in faults.SECOND.items() if named(faults, name) != run.expected}
    assert wrong == {"clipped_ratio": "", "healthy_grpo_again": "plateau"}


def test_nothing_that_is_recorded_says_what_was_put_in(faults):
    """No record holds the name of its run or of its fault, and none has a key that healthy runs never have."""
    paths = {path.name.removesuffix(".json.gz"): path for path in faults.FIXTURES.glob("*.json.gz")}
    assert set(paths) == {*faults.FIRST, *faults.SECOND}
    usual = set().union(*(faults.keys_of(paths[name]) for name in paths if name.startswith("healthy")))
    for name, path in paths.items():
        expected = {**faults.FIRST, **faults.SECOND}[name].expected
        text = faults.text_of(path)
        assert f'"{name}"' not in text
        assert not expected or f'"{expected}"' not in text
        assert faults.keys_of(path) - usual <= {"kl_unpaid"}, name


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["masked", "equal_rewards"])
def test_a_fault_is_put_in_anew_and_named(faults, name, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("GEARTRAIN_FEATURE_REPO", str(ROOT / "data/feature_repo"))
    monkeypatch.delenv("GEARTRAIN_HOME", raising=False)
    work = tmp_path_factory.getbasetemp() / "injected"  # what the runs share is made once
    faults.prepare(work / "analyst", "analyst")
    run = replace(faults.FIRST[name], base="analyst")
    faults.train(name, replace(run, settings={**run.settings, "policy.iterations": 5}), work, work / "kept")
    found = faults.read(work / "kept" / f"{name}.json.gz")
    assert found.causes[0].name == run.expected
