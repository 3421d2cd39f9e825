"""The tokenizer: lossless on any text, tool-call scaffold in one token, digits among themselves."""

import random

import pytest
from tokenizers import Tokenizer

from geartrain.models.tokenizer import PAD, TURN_END, TURN_START, train_tokenizer

CALLS = [
    f'{{"name": "query_database", "arguments": {{"sql": "SELECT name FROM track_{n} WHERE year = {n}", "limit": {n}}}}}'
    for n in range(60)
] + [
    '{"name": "finish", "arguments": {}}',
    '{"name": "send", "arguments": {"to": "a b", "rows": ["x", "y"]}}',
    '{"name": "f", "arguments": {"a": "b"}}',
] * 40


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(CALLS, vocabulary=600)


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i], skip_special_tokens=False) for i in tokenizer.encode(text).ids]


def test_scaffold_joins_and_closers_are_one_token_each(tokenizer):
    parts = pieces(tokenizer, CALLS[7])
    assert parts[0] == '{"name": "query_database", "arguments": {"sql": "'
    assert '", "limit": ' in parts
    assert parts[-1] == "}}"
    assert pieces(tokenizer, CALLS[-3]) == ['{"name": "finish", "arguments": {', "}}"]
    assert pieces(tokenizer, CALLS[-2])[-1] == '"]}}'


def test_digits_join_nothing_else_and_identifiers_stay_whole(tokenizer):
    parts = pieces(tokenizer, " FROM track_ 1234567 WHERE x1 = 2009")
    numbers = [part for part in parts if any(c.isdigit() for c in part)]
    assert all(part.isdigit() and len(part) <= 4 for part in numbers)
    assert "".join(numbers) == "123456712009"
    assert " track_" in parts


def test_what_is_copied_or_decided_as_a_whole_is_one_token():
    texts = ["q1: 3 rows", "<x>assistant\n", "a2 q1[0] 2010-03", "GROUP BY city ORDER BY v DESC LIMIT 2"] * 20
    learned = train_tokenizer(texts, vocabulary=600)
    assert pieces(learned, "assistant\n") == ["assistant\n"]
    assert pieces(learned, '"q1[0]",a2') == ['"', "q1", "[0]", '"', ",", "a2"]
    assert pieces(learned, "2010-03") == ["2010", "-", "03"]
    assert pieces(learned, " ORDER BY v DESC LIMIT 2") == [" ORDER BY", " v", " DESC LIMIT", " ", "2"]


def test_closers_are_not_swallowed_by_the_marks_before_them(tokenizer):
    assert pieces(tokenizer, "x = 'y')\"}}")[-1] == '"}}'


@pytest.mark.parametrize("seed", range(20))
def test_every_text_survives_a_round_trip(tokenizer, seed):
    rng = random.Random(seed)
    ranges = [(32, 126), (0x80, 0x2FFF), (0x1F300, 0x1FAFF), (9, 13), (0xE000, 0xFFFD), (0x300, 0x36F)]
    for _ in range(50):
        text = "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randrange(40)))
        text += rng.choice(["", CALLS[0][: rng.randrange(60)], " \n\t ", '"}}", "k": '])
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_same_texts_give_the_same_tokenizer(tokenizer):
    assert train_tokenizer(CALLS, vocabulary=600).to_str() == tokenizer.to_str()


def test_special_tokens_come_first_and_end_differs_from_padding(tokenizer):
    assert [tokenizer.token_to_id(token) for token in (PAD, TURN_START, TURN_END)] == [0, 1, 2]


def test_a_small_corpus_gives_a_small_vocabulary():
    assert train_tokenizer(["a b"], vocabulary=1024).get_vocab_size() < 300
