from collections import Counter

import pytest

from geartrain.preferences.forgeries import KINDS, forge
from geartrain.preferences.pairs import SIBLINGS, Pair


def pair(task: str, *, split: str = "train", family: str = "f", margin: float = 1.0, chosen: str = "") -> Pair:
    text = chosen or f"query {task}\nreport {task}"
    return Pair(task, family, split, f"Do {task}.", text, "bad\nbad", margin, f"{task}/0", f"{task}/1")


def test_every_kind_says_what_it_is_and_keeps_the_honest_text() -> None:
    forged = forge([pair("a", split="validation"), pair("b", split="validation")], per_task=0)
    assert {(p.task_id, p.origin): p.rejected for p in forged} == {
        ("a", "off_topic"): "query b\nreport b",
        ("a", "nothing_delivered"): "query a\nfinished",
        ("a", "nothing_looked_up"): "\nreport a",
        ("a", "padded"): "query a; query a\nreport a",
        ("b", "off_topic"): "query a\nreport a",
        ("b", "nothing_delivered"): "query b\nfinished",
        ("b", "nothing_looked_up"): "\nreport b",
        ("b", "padded"): "query b; query b\nreport b",
    }
    assert all(p.chosen == f"query {p.task_id}\nreport {p.task_id}" for p in forged)
    assert {p.rejected_id for p in forged} == {"forged/a/0", "forged/b/0"}
    assert SIBLINGS not in KINDS


@pytest.mark.parametrize("per_task", [0, 1, 2, 4])
def test_a_training_task_gets_its_number_of_kinds_and_all_kinds_get_their_turn(per_task: int) -> None:
    forged = forge([pair(f"t{i}") for i in range(40)], per_task=per_task)
    assert set(Counter(p.task_id for p in forged).values()) == ({per_task} if per_task else set())
    if per_task:
        assert {p.origin for p in forged} == set(KINDS)


def test_what_a_task_gets_does_not_depend_on_the_others() -> None:
    pairs = [pair(f"t{i}") for i in range(10)]
    alone = {p.origin for p in forge([pairs[3], pairs[4]], per_task=1) if p.task_id == "t3"}
    assert alone == {p.origin for p in forge(pairs, per_task=1) if p.task_id == "t3"}


def test_no_text_of_a_held_out_task_is_trained_on() -> None:
    pairs = [pair("a"), pair("b"), pair("c", split="validation"), pair("d", split="validation")]
    texts = {p.split: {q.rejected for q in forge(pairs, per_task=4) if q.split == p.split} for p in pairs}
    assert not any("c" in text.split() or "d" in text.split() for text in texts["train"])


def test_the_best_transcript_is_the_honest_one() -> None:
    best = pair("a", split="validation", margin=1.0, chosen="query best\nreport best")
    forged = forge([pair("a", split="validation", margin=0.1), best], per_task=0)
    assert {p.chosen for p in forged} == {best.chosen}


@pytest.mark.parametrize("other", [pair("b", family="g"), pair("b", split="validation")])
def test_without_a_partner_of_its_own_family_and_split_there_is_no_off_topic(other: Pair) -> None:
    assert "off_topic" not in {p.origin for p in forge([pair("a"), other], per_task=4) if p.task_id == "a"}


def test_a_forgery_that_changes_nothing_is_none() -> None:
    empty = pair("a", split="validation", chosen="\nfinished")
    assert {p.origin for p in forge([empty], per_task=4)} == {"padded"}
