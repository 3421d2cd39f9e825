"""Names are valid whatever they are made from, equal for equal input, and different for different input."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.cluster import naming

RFC_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?")
KEYS = st.tuples(st.text(max_size=40), st.text(max_size=80), st.integers(1, 10**6))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.lists(KEYS, unique=True, max_size=8))
def test_names_are_valid_stable_and_their_own(keys: list[tuple[str, str, int]]) -> None:
    names = [naming.job_name(*key) for key in keys]
    assert [name for name in names if not RFC_1035.fullmatch(name)] == []
    assert max(map(len, names), default=0) <= naming.NAME_LIMIT
    assert len(set(names)) == len(keys)
    assert [naming.job_name(*key) for key in keys] == names


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.text(max_size=100))
def test_any_text_becomes_a_label_value(text: str) -> None:
    value = naming.label_value(text)
    assert LABEL.fullmatch(value)
    assert 0 < len(value) <= 63


def test_a_name_says_what_it_is_for() -> None:
    # golden: a name that changed with a release would orphan every job that trains
    assert naming.job_name("5f0c7c4e", "reward_model", 1) == "reward-model-8bde7db752"
    assert naming.job_name("5f0c7c4e", "9 Lives!", 2).startswith("stage-9-lives-")


def test_parts_do_not_run_into_each_other() -> None:
    assert naming.job_name("ab", "c", 1)[-10:] != naming.job_name("a", "bc", 1)[-10:]


def test_pods_of_the_longest_name_fit_into_a_label_of_dns() -> None:
    longest = naming.job_name("r", "s" * 200, 1)
    assert len(longest) == naming.NAME_LIMIT
    assert len(f"{longest}-node-0-9999-abcde") <= 63
    assert len(f"trainjob-{longest}") <= 57


def test_different_texts_have_different_label_values() -> None:
    assert naming.label_value("run id") != naming.label_value("run/id")
    assert naming.label_value("5f0c7c4e-9b1d") == "5f0c7c4e-9b1d"


def test_the_selector_finds_what_the_labels_mark() -> None:
    wanted = dict(pair.split("=") for pair in naming.selector(run="a run", stage="policy").split(","))
    assert wanted == naming.labels("a run", "policy")
    assert naming.selector() == "app.kubernetes.io/part-of=geartrain,geartrain.dev/pipeline=geartrain"
