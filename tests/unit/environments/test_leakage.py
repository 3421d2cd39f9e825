"""Every kind of leak is found, and only leaks are."""

from dataclasses import replace

import pytest

from geartrain.environments.environment import Task
from geartrain.environments.leakage import find_leaks


def make(split: str, /, **changes: object) -> Task:
    spec = {"keys": [f"key of {split}"], "wordings": [f"wording of {'paraphrase' if split == 'paraphrase' else 'all'}"]}
    if split == "paraphrase":
        spec |= {"keys": ["key of test"], "source": "test-0"}
    world = "test" if split == "paraphrase" else split
    family = "held out" if split == "ood" else "trained"
    task = Task(f"{split}-0", "any", family, split, f"Prompt of {split}.", world, 4, spec)
    spec_changes = {key: changes.pop(key) for key in list(changes) if key in ("keys", "wordings", "source")}
    return replace(task, spec={**spec, **spec_changes}, **changes)


CLEAN = {split: [make(split)] for split in ("train", "val", "test", "ood", "paraphrase")}


def test_clean_splits_have_no_leaks() -> None:
    assert find_leaks(CLEAN) == []


@pytest.mark.parametrize(
    ("split", "changes", "expected"),
    [
        ("train", {"prompt": "prompt  of TEST."}, "same prompt in test and train"),
        ("val", {"keys": ["key of train"]}, "same parameters in train and val"),
        ("paraphrase", {"keys": ["key of train"]}, "same parameters in paraphrase and train"),
        ("test", {"world": "train"}, "same world in test and train"),
        ("train", {"family": "held out"}, "same family in ood and train"),
        ("train", {"wordings": ["wording of paraphrase"]}, "same wording in paraphrase and train"),
        ("val", {"task_id": "train-0"}, "task id train-0 is used twice"),
        ("val", {"split": "train"}, "is listed under 'val'"),
        ("paraphrase", {"source": "train-0"}, "rewords train-0, which is not a test task"),
    ],
)
def test_each_leak_is_found(split: str, changes: dict[str, object], expected: str) -> None:
    leaks = find_leaks({**CLEAN, split: [make(split, **changes)]})
    assert any(expected in leak for leak in leaks), leaks


def test_many_leaks_of_one_kind_are_counted() -> None:
    train = [make("train", task_id=f"train-{i}", prompt=f"p{i}") for i in range(9)]
    val = [make("val", task_id=f"val-{i}", prompt=f"p{i}") for i in range(9)]
    leaks = find_leaks({**CLEAN, "train": train, "val": val})
    assert leaks[-1] == "same prompt in train and val: 6 more"
    assert len(leaks) == 4
