"""Words, MinHash, languages, personal data: what records are compared and described by."""
# ruff: noqa: RUF001

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geartrain.preferences import words
from geartrain.preferences.held_out import hold_out
from geartrain.preferences.languages import NAMES, find_languages
from geartrain.preferences.minhash import prompt_bands, record_bands, signatures, similarity
from geartrain.preferences.near import ALONE, first_seen, number_groups
from geartrain.preferences.personal import find_personal, flags_of
from geartrain.preferences.tally import wilson
from geartrain.preferences.words import Words, ngrams, words_of

TEXTS = st.lists(st.text(alphabet="aB é.,-7日“”\n", max_size=12), max_size=8)


def hashes(text: str) -> list[int]:
    return words_of(pa.array([text], pa.string())).hash_T.tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Hello, World!", "hello world"),
        ("“Hello” — world…", "hello world"),
        ("¿Qué?", "qué"),
        ("日本語", "日 本 語"),
        ("a1\tb2\nc3", "a1 b2 c3"),
    ],
)
def test_words_are_what_is_left_without_case_and_signs(one: str, other: str) -> None:
    assert hashes(one) == hashes(other)


@given(texts=TEXTS)
def test_words_of_a_text_do_not_depend_on_its_neighbours(texts: list[str]) -> None:
    found = words_of(pa.array(texts, pa.string()))
    alone = [hashes(text) for text in texts]
    assert np.diff(found.ends_N1).tolist() == list(map(len, alone))
    assert found.hash_T.tolist() == [word for one in alone for word in one]


def test_words_do_not_depend_on_where_chunks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array([f"some words {n} and more {n * n}" for n in range(50)], pa.string())
    whole = words_of(texts)
    monkeypatch.setattr(words, "CHUNK", 40)
    assert words_of(texts).hash_T.tolist() == whole.hash_T.tolist()
    assert words_of(texts.slice(7, 9)).hash_T.tolist() == whole.hash_T[whole.ends_N1[7] : whole.ends_N1[16]].tolist()


@given(lengths=st.lists(st.integers(0, 6), max_size=6), size=st.integers(1, 4), short=st.booleans())
def test_ngrams_stay_inside_their_text(lengths: list[int], size: int, short: bool) -> None:
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    given_words = Words(np.arange(1, ends[-1] + 1, dtype=np.uint64) * np.uint64(7919), ends)
    counts = np.diff(ngrams(given_words, size, short=short).ends_N1).tolist()
    assert counts == [max(length - size + 1, min(length, 1) if short else 0) for length in lengths]
    for row, length in enumerate(lengths):  # as if it were alone
        part = Words(given_words.hash_T[ends[row] : ends[row + 1]], np.array([0, length]))
        both = ngrams(given_words, size, short=short)
        inside = both.hash_T[both.ends_N1[row] : both.ends_N1[row + 1]]
        assert ngrams(part, size, short=short).hash_T.tolist() == inside.tolist()


def test_similarity_is_near_the_share_of_common_ngrams() -> None:
    chance = random.Random(0)
    base = [f"w{chance.randrange(10**6)}" for _ in range(400)]
    for edits in (4, 20, 60):
        other = list(base)
        for place in chance.sample(range(400), edits):
            other[place] = f"x{place}"
        texts = pa.array([" ".join(base), " ".join(other)])
        grams = ngrams(words_of(texts), 3, short=True)
        sets = [set(grams.hash_T[grams.ends_N1[i] : grams.ends_N1[i + 1]].tolist()) for i in range(2)]
        truth = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
        signature = signatures(words_of(texts))
        assert similarity(signature[0], signature[1]) == pytest.approx(truth, abs=0.13)  # three standard errors


def test_near_prompts_are_found_as_often_as_the_table_says() -> None:
    chance = random.Random(1)
    found = {2: 0, 40: 0}
    for edits in found:
        for _ in range(60):
            base = [f"w{chance.randrange(10**6)}" for _ in range(100)]
            other = list(base)
            for place in chance.sample(range(100), edits):
                other[place] = f"x{place}"
            bands = prompt_bands(signatures(words_of(pa.array([" ".join(base), " ".join(other)]))))
            found[edits] += any(band[0] == band[1] for band in bands)
    assert found[2] == 60, "J is 0.89"
    assert found[40] <= 6, "J is 0.1"


def test_texts_without_words_are_near_their_equals_alone() -> None:
    texts = ["???", "???", "!!!", "a word"]
    signature = signatures(words_of(pa.array(texts)), lambda place: len(set(texts[place])) + ord(texts[place][0]))
    for bands in (prompt_bands(signature), record_bands(signature, signature)):
        assert all(band[0] == band[1] for band in bands)
        assert all(len({band[0], band[2], band[3]}) == 3 for band in bands)


@given(numbers=st.lists(st.integers(0, 4), max_size=12))
def test_groups_are_of_those_who_share_a_number(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.uint64)
    group, count = number_groups(array, 10)
    shared = {number for number in numbers if numbers.count(number) > 1}
    assert count == len(shared)
    assert [place == ALONE for place in group] == [number not in shared for number in numbers]
    named = {(number, place) for number, place in zip(numbers, group.tolist(), strict=True) if place != ALONE}
    assert len(named) == len(shared)
    assert {place for _, place in named} == set(range(10, 10 + count))
    assert first_seen(array).tolist() == [number not in numbers[:place] for place, number in enumerate(numbers)]


SENTENCES = {
    "en": "How do I explain to my neighbour that the noise is too much?",
    "de": "Wie kann ich das Fahrrad reparieren, wenn die Kette nicht mehr passt?",
    "fr": "Comment puis-je apprendre une langue sans aller dans un autre pays ?",
    "es": "¿Cómo se hace una tortilla de patatas para cuatro personas?",
    "it": "Qual è la differenza tra il vino e la birra, e come si usa?",
    "pt": "Como é que eu posso aprender a tocar um instrumento em casa?",
    "nl": "Wat is het verschil tussen een hond en een kat, en hoe kan ik dat zien?",
    "pl": "Jak to zrobić, aby nie było to za trudne dla dzieci w szkole?",
    "ru": "Как это можно сделать, если у меня нет времени на работу?",
    "zh": "请问这个问题应该怎么回答才好",
    "ja": "この問題をどうやって解けばいいですか",
    "ko": "이 문제를 어떻게 풀어야 하나요",
    "ar": "كيف يمكن أن نكتب رسالة إلى المدير في العمل",
    "hi": "मैं बैंक को पत्र कैसे लिखूं",
    "el": "Πώς γράφω ένα γράμμα στην τράπεζα",
    "he": "איך כותבים מכתב לבנק",
    "th": "ฉันจะเขียนจดหมายถึงธนาคารได้อย่างไร",
    "und": "12 + 4 = ?",
}


def test_languages_are_told_by_script_and_common_words() -> None:
    found = find_languages(pa.array(list(SENTENCES.values()), pa.string()))
    assert [NAMES[place] for place in found] == list(SENTENCES)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("write to jo.doe+x@mail.example.org.", ["email"]),
        ("call +44 20 7946 0958 or (415) 555-2671", ["phone"]),
        ("4111 1111 1111 1111", ["card"]),
        ("4111 1111 1111 1112", []),
        ("DE89 3704 0044 0532 0130 00", ["iban"]),
        ("DE89 3704 0044 0532 0130 01", []),
        ("key sk-" + "a1B2" * 6, ["key"]),
        ("AKIA" + "ABCD1234EFGH5678", ["key"]),
        ("@mention, 3.14159265358979 and 2024-01-02 10:20:30, 1234567890123", []),
        ("name@localhost, a@b", []),
    ],
)
def test_personal_data_is_flagged_where_its_own_check_agrees(text: str, kinds: list[str]) -> None:
    assert flags_of(text) == kinds
    assert find_personal(pa.array(["nothing", text])) == ({1: kinds} if kinds else {})


def test_a_message_leaks_by_half_of_its_ngrams_or_by_holding_a_whole_prompt() -> None:
    prompt = " ".join(f"held{i}" for i in range(20))
    held = hold_out([prompt, "short one"])
    filler = " ".join(f"other{i}" for i in range(60))
    leaking = [prompt, f"{filler} {prompt} {filler}", "Short one!"]
    others = [f"{filler} short one", filler, "held0 held1 held2", ""]
    found = held.leaks(words_of(pa.array([*leaking, *others], pa.string())))
    assert found.tolist() == [True] * 3 + [False] * 4


def test_an_interval_holds_its_share_and_narrows_with_more() -> None:
    for wins, count in ((0, 5), (3, 5), (5, 5), (500, 1000)):
        low, high = wilson(wins, count)
        assert 0.0 <= low <= wins / count + 1e-12
        assert wins / count - 1e-12 <= high <= 1.0
    assert wilson(300, 1000)[1] - wilson(300, 1000)[0] < wilson(3, 10)[1] - wilson(3, 10)[0]
