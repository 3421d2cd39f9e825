"""Data that goes in and out: the same at the other end, exact builtins, and nothing that was made to do harm."""

import json
import time
from collections import Counter, OrderedDict, defaultdict, namedtuple
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geartrain.sandbox import frames
from geartrain.sandbox.values import UnfitError, read_json, tagged, untagged

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
KEYS = PLAIN | st.tuples(PLAIN, PLAIN) | st.frozensets(PLAIN, max_size=3)
DATA = st.recursive(
    KEYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.sets(KEYS, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=6,
)


def there_and_back(value: Any) -> Any:
    return untagged(read_json(json.dumps(tagged(value)).encode()))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(DATA)
def test_data_is_the_same_at_the_other_end(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, set | frozenset | dict | tuple | list)


class Level(IntEnum):
    LOW = 1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (namedtuple("Pair", "a b")(1, 2), (1, 2)),
        (Counter("aab"), {"a": 2, "b": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (Level.LOW, 1),
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
    ],
)
def test_kinds_of_builtins_come_out_as_these(value: Any, plain: Any) -> None:
    back = there_and_back(value)
    assert back == plain
    assert type(back) is type(plain)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), b"bytes", 1j, [10**5000], iter([]), [[float("-inf")]]]
)
def test_what_is_no_data_is_refused(value: Any) -> None:
    with pytest.raises(UnfitError):
        tagged(value)


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "Infinity", "-Infinity", "1e999", "[", "", "\0", "[" * 100_000, "9" * 5000, "{'a': 1}"),
        *(
            '{"tuple": 1}',
            '{"dict": [1]}',
            '{"dict": [[1, 2, 3]]}',
            '{"list": []}',
            '{"set": [[]]}',
            '{"a": 1, "b": 2}',
        ),
        *('{"dict": [[[], 1]]}', "{}", r'"\ud800"', "[" * 100 + "]" * 100, '{"__class__": []}'),
    ],
)
def test_what_a_sandbox_would_not_write_is_refused(text: str) -> None:
    with pytest.raises(UnfitError):
        untagged(read_json(text.encode()))
    with pytest.raises(UnfitError):
        read_json(b"\xff" + text.encode())


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict"])
def test_keys_that_were_chosen_to_have_one_hash_cost_no_time(kind: str) -> None:
    keys: list[Any] = [index * (2**61 - 1) for index in range(1, 40_000)]
    started = time.process_time()
    with pytest.raises(UnfitError, match="one hash"):
        untagged({kind: [[key, 1] for key in keys] if kind == "dict" else keys})
    assert time.process_time() - started < 1.0, "a set of them takes a minute"


def test_frames_are_split_as_they_come() -> None:
    received = bytearray()
    found = []
    for byte in frames.framed(b"one") + frames.framed(b"") + frames.framed(b"three"):
        received.append(byte)
        if (message := frames.split(received, 10)) is not None:
            found.append(message)
    assert found == [b"one", b"", b"three"]
    with pytest.raises(ValueError, match="11 bytes"):
        frames.split(bytearray(frames.framed(b"x" * 11)[:4]), 10)
