"""Task sets: what each split holds, that they stay apart, and that the stage and the command line know them."""

import json
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from geartrain import walkthrough
from geartrain.config import Config, EnvironmentSection, parse_config
from geartrain.config_file import missing_files
from geartrain.environments import build_worlds, load_environment
from geartrain.environments.environment import Task
from geartrain.environments.leakage import find_leaks
from geartrain.environments.twophase import TwoPhaseEnvironment
from geartrain.environments.twophase.drafts import DO_LURES, HELD_OUT, TRAINED, VERBS
from geartrain.environments.twophase.towns import TOWNS
from geartrain.environments.twophase.wording import COMMON, PARAPHRASED
from geartrain.errors import UserError

Tasks = dict[str, list[Task]]
SETTINGS = EnvironmentSection(name="twophase")


def test_sizes_families_and_worlds(tasks: Tasks) -> None:
    assert {split: len(items) for split, items in tasks.items()} == {
        "train": 240, "val": 60, "test": 120, "ood": 48, "paraphrase": 60,
    }  # fmt: skip
    for split, items in tasks.items():
        families = Counter(task.family for task in items)
        assert set(families) == set(HELD_OUT if split == "ood" else TRAINED)
        assert len(set(families.values())) == 1
        home = "test" if split == "paraphrase" else split
        assert all(task.world.startswith(f"{home}-") and task.split == split for task in items)


def test_no_leaks(tasks: Tasks) -> None:
    assert find_leaks(tasks) == []


def test_another_seed_gives_other_tasks_and_no_leak(environment: TwoPhaseEnvironment, tasks: Tasks) -> None:
    other = environment.build_tasks(seed=1, sizes={"train": 6, "test": 60})
    assert [task.task_id for task in other["train"]] != [task.task_id for task in tasks["train"][:6]]
    assert find_leaks({"train": tasks["train"], "test": other["test"]}) == []


def test_difficulty_is_alike_in_all_trained_splits(tasks: Tasks) -> None:
    lengths = {split: [task.necessary_steps for task in tasks[split]] for split in tasks}
    assert {length for items in lengths.values() for length in items} == set(range(4, 11))
    for split in ("train", "val", "test"):
        assert 5.8 < fmean(lengths[split]) < 6.8, (split, fmean(lengths[split]))


def test_flaws_are_spread_evenly(tasks: Tasks) -> None:
    for family in TRAINED:
        flaws = Counter(len(task.spec["flaws"]) for task in tasks["train"] if task.family == family)
        assert (flaws[0], flaws[1], flaws[2]) == (32, 20, 28)


def test_ids_are_unique_and_do_not_depend_on_sizes(environment: TwoPhaseEnvironment, tasks: Tasks) -> None:
    ids = [task.task_id for items in tasks.values() for task in items]
    assert len(set(ids)) == len(ids)
    fewer = environment.build_tasks(seed=0, sizes={"train": 20, "test": 10, "paraphrase": 5})
    assert fewer["train"] == tasks["train"][:20]
    assert fewer["test"] == tasks["test"][:10]
    assert fewer["paraphrase"] == tasks["paraphrase"][:5]
    assert fewer["val"] == fewer["ood"] == []


def test_records_survive_json(tasks: Tasks) -> None:
    for items in tasks.values():
        for task in items:
            assert Task.from_record(json.loads(json.dumps(task.to_record()))) == task


def test_specs_hang_together(tasks: Tasks) -> None:
    lured = {state for state, _ in DO_LURES.values()}
    for items in tasks.values():
        for task in items:
            assert "{" not in task.prompt
            assert str(task.spec["budget"]) in task.prompt
            assert all(str(value) in task.prompt for value in task.spec["parameters"].values())
            stops = task.spec["stops"]
            assert len(stops) + len(task.spec["decisions"]) + 2 == task.necessary_steps
            assert task.spec["budget"] == task.necessary_steps + 4
            names = [stop["name"] for stop in [*stops, *([task.spec["detour"]] if task.spec["detour"] else [])]]
            assert len(set(names)) == len(names)
            assert all(stop["state"] in VERBS for stop in stops)
            lures = [stop for stop in stops if stop["state"] in lured]
            assert len(lures) == sum(flaw in DO_LURES for flaw in task.spec["flaws"])
            assert all(stop["fragile"] for stop in lures)


def test_paraphrases_ask_the_same_in_other_words(tasks: Tasks) -> None:
    by_id = {task.task_id: task for task in tasks["test"]}
    for task in tasks["paraphrase"]:
        source = by_id[task.spec["source"]]
        assert task.task_id.split("-")[1] == source.task_id.split("-")[1]  # a study pairs them by it
        assert task.prompt != source.prompt
        different = {key for key in task.spec if task.spec[key] != source.spec.get(key)}
        assert different == {"source", "wordings"}
        assert (task.world, task.family, task.necessary_steps) == (source.world, source.family, source.necessary_steps)
    assert set(COMMON) == set(PARAPHRASED)
    assert not {text for texts in COMMON.values() for text in texts} & {t for ts in PARAPHRASED.values() for t in ts}


def test_held_out_towns_are_new_and_speak_words_that_training_knows() -> None:
    towns = [town for places in TOWNS.values() for town in places]
    assert len(set(towns)) == len(towns)
    taught = {name for names in TOWNS["train"].values() for name in names}
    assert not taught & set(towns)
    for split, places in TOWNS.items():
        assert all(len(set(names)) == 7 for names in places.values()), split
        assert {name for names in places.values() for name in names} <= taught, split
        assert split == "train" or all(set(names) not in map(set, TOWNS["train"].values()) for names in places.values())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"trian": 1}, "no split 'trian'"),
        ({"train": -1}, "must not be negative"),
        ({"test": 1, "paraphrase": 2}, "paraphrase rewords test tasks"),
        ({"ood": 1}, "ask for fewer tasks"),
    ],
)
def test_wrong_sizes_are_named(
    environment: TwoPhaseEnvironment, sizes: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("geartrain.environments.twophase.splits._ATTEMPTS", 0)
    with pytest.raises(UserError, match=message):
        environment.build_tasks(seed=0, sizes=sizes)


def test_it_needs_no_raw_data() -> None:
    record = {"environment": {"name": "twophase", "source": "nowhere.json"}}
    assert missing_files(parse_config(record, source="x")) == []
    record["environment"]["name"] = "analyst"
    assert len(missing_files(parse_config(record, source="x"))) == 1


def test_it_loads_by_name_and_is_shown(tmp_path: Path) -> None:
    assert [path.name for path in build_worlds(SETTINGS, tmp_path / "worlds", seed=0)] == ["towns.json"]
    assert load_environment(SETTINGS, tmp_path / "worlds").name == "twophase"
    with walkthrough.open_environment(Config(environment=SETTINGS), tmp_path / "none", "ood") as (shown, tasks):
        episode = list(walkthrough.play_expert(shown, tasks[0], seed=0, max_turns=100))
        assert any(line.startswith("plan(choice): ") for line in walkthrough.describe_tools(shown))
    assert episode[-1] == ("verdict", "success")
