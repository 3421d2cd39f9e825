"""Task sets: what each split holds, and that they stay apart."""

import json
from collections import Counter
from statistics import fmean

import pytest

from geartrain.environments.analyst import AnalystEnvironment
from geartrain.environments.analyst.families import HELD_OUT, STEPS, TRAINED
from geartrain.environments.analyst.questions import from_record, sections, steps, to_record
from geartrain.environments.analyst.splits import part_key
from geartrain.environments.analyst.wording import COMMON, PARAPHRASED
from geartrain.environments.environment import Task
from geartrain.environments.leakage import find_leaks
from geartrain.errors import UserError

Tasks = dict[str, list[Task]]


def test_sizes_families_and_worlds(tasks: Tasks) -> None:
    assert {split: len(items) for split, items in tasks.items()} == {
        "train": 240, "val": 60, "test": 120, "ood": 48, "paraphrase": 60,
    }  # fmt: skip
    for split, items in tasks.items():
        families = Counter(task.family for task in items)
        assert set(families) == set(HELD_OUT if split == "ood" else TRAINED)
        assert len(set(families.values())) == 1
        home = "test" if split == "paraphrase" else split
        assert all(task.world.startswith(home) and task.split == split for task in items)


def test_no_leaks(tasks: Tasks) -> None:
    assert find_leaks(tasks) == []


def test_difficulty(tasks: Tasks) -> None:
    lengths = [task.necessary_steps for items in tasks.values() for task in items]
    assert set(lengths) <= set(STEPS)
    assert min(lengths) == 4
    assert max(lengths) >= 18
    assert 5.5 < fmean(lengths) < 8.0


def test_flaw_sites_are_spread_evenly(tasks: Tasks) -> None:
    for family in TRAINED:
        sites = Counter(len(task.spec["flaws"]) for task in tasks["train"] if task.family == family)
        assert (sites[0], sites[1], sites[2]) == (12, 18, 10)


def test_ids_are_unique_and_do_not_depend_on_sizes(environment: AnalystEnvironment, tasks: Tasks) -> None:
    ids = [task.task_id for items in tasks.values() for task in items]
    assert len(set(ids)) == len(ids)
    fewer = environment.build_tasks(seed=0, sizes={"train": 20, "test": 10, "paraphrase": 5})
    assert fewer["train"] == tasks["train"][:20]
    assert fewer["test"] == tasks["test"][:10]
    assert fewer["paraphrase"] == tasks["paraphrase"][:5]
    assert fewer["val"] == fewer["ood"] == []


def test_another_seed_gives_other_tasks_in_the_same_halves(environment: AnalystEnvironment, tasks: Tasks) -> None:
    """Parameters are split by hash: no seed may move a training question into the test split."""
    other = environment.build_tasks(seed=1, sizes={"train": 6, "test": 60})
    assert [task.prompt for task in other["train"][:6]] != [task.prompt for task in tasks["train"][:6]]
    mixed = {"train": tasks["train"], "test": other["test"]}
    assert [leak for leak in find_leaks(mixed) if "parameters" in leak] == []


def test_records_survive_json(tasks: Tasks) -> None:
    for items in tasks.values():
        for task in items:
            assert Task.from_record(json.loads(json.dumps(task.to_record()))) == task


def test_prompts_name_every_section_and_are_distinct(tasks: Tasks) -> None:
    for items in tasks.values():
        assert len({task.prompt for task in items}) == len(items)
        for task in items:
            assert "{" not in task.prompt
            assert all(name in task.prompt for name in task.spec["facts"]), task.prompt


def test_specs_hang_together(tasks: Tasks) -> None:
    for items in tasks.values():
        for task in items:
            parts = [from_record(record) for record in task.spec["parameters"]["parts"]]
            assert [to_record(part) for part in parts] == task.spec["parameters"]["parts"]
            assert [part_key(part) for part in parts] == task.spec["keys"]
            assert len(set(task.spec["keys"])) == len(parts)
            mail = task.spec["parameters"]["mail"]
            assert sum(map(steps, parts)) + (2 if mail else 0) + 1 == task.necessary_steps
            assert list(task.spec["facts"]) == [name for names in task.spec["sections"] for name in names]
            assert [len(names) for names in task.spec["sections"]] == [len(sections(part)) for part in parts]
            assert (task.spec["recipient"] is None) is (mail is None)


def test_paraphrases_ask_the_same_in_other_words(tasks: Tasks) -> None:
    by_id = {task.task_id: task for task in tasks["test"]}
    for task in tasks["paraphrase"]:
        source = by_id[task.spec["source"]]
        assert task.task_id.split("-")[1] == source.task_id.split("-")[1]  # a study pairs them by it
        assert task.prompt != source.prompt
        for key in ("parameters", "sections", "facts", "recipient", "flaws"):
            assert task.spec[key] == source.spec[key]
        assert (task.world, task.family, task.necessary_steps) == (source.world, source.family, source.necessary_steps)


def test_wordings_of_paraphrases_are_no_others(tasks: Tasks) -> None:
    assert set(COMMON) == set(PARAPHRASED)
    for kind in COMMON:
        assert len(COMMON[kind]) >= 3
        assert not set(COMMON[kind]) & set(PARAPHRASED[kind])
        assert len({*COMMON[kind], *PARAPHRASED[kind]}) == len(COMMON[kind]) + len(PARAPHRASED[kind])
    used = {wording for task in tasks["train"] for wording in task.spec["wordings"]}
    held_out_only = {f"common/share/{i}" for i in range(len(COMMON["share"]))}
    assert used == {f"common/{kind}/{i}" for kind in COMMON for i in range(len(COMMON[kind]))} - held_out_only


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"trian": 1}, "no split 'trian'"),
        ({"train": -1}, "must not be negative"),
        ({"test": 1, "paraphrase": 2}, "paraphrase rewords test tasks"),
    ],
)
def test_wrong_sizes_are_named(environment: AnalystEnvironment, sizes: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        environment.build_tasks(seed=0, sizes=sizes)
