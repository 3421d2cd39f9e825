"""A 64-bit hash per value of an Arrow column of any type, computed a column at a time.

Equal values have equal hashes whatever type holds them: 1, 1.0 and an int32 are one value, and so are a missing field
of a struct and one that is null. Text is hashed by Python's own `hash`, so hashes mean something within one process
only.

Legend: N values of a column, M values inside its N lists.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
NULL, NAN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03)
_EXACT = float(2**53)
"""Up to here a float holds every integer."""


def hash_column(column: pa.Array) -> Hashes:
    """Return [N]: a hash per value; null has one of its own."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        found = _numbers(column)
    elif pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
        found = _lists(column.offsets, pairs)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _lists(column.offsets, column.values)
    elif pa.types.is_fixed_size_list(kind):
        return hash_column(column.cast(pa.list_(kind.value_type)))
    elif pa.types.is_struct(kind):
        found = _fields(column)
    elif pa.types.is_temporal(kind):
        found = _numbers(column.cast(pa.timestamp("us") if pa.types.is_date(kind) else kind).view(_width(kind)))
    elif pa.types.is_null(kind):
        return np.full(len(column), NULL)
    else:
        found = _texts(column)
    if column.null_count:
        found[column.is_null().to_numpy(zero_copy_only=False)] = NULL
    return found


def mix(values: Hashes) -> Hashes:
    """Return [N]: each bit of the result depends on every bit of the value (the finaliser of splitmix64)."""
    mixed = values + NULL
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def combine(columns: list[Hashes], *, ordered: bool = True) -> Hashes:
    """Return [N]: one hash per row of several columns; unordered: the same whichever column holds which value."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        total = mix(total ^ column) if ordered else total + mix(column)
    return mix(total)


def _numbers(column: pa.Array) -> Hashes:
    filled = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = filled.to_numpy(zero_copy_only=False)
    if values.dtype.kind in "biu":
        return mix(values.astype(np.int64 if values.dtype != np.uint64 else np.uint64).view(np.uint64))
    wide = values.astype(np.float64)
    whole = np.isfinite(wide) & (np.abs(wide) <= _EXACT) & (wide == np.trunc(wide))
    bits = np.where(whole, np.where(whole, wide, 0).astype(np.int64).view(np.uint64), wide.view(np.uint64))
    found = mix(bits)
    found[np.isnan(wide)] = NAN
    return found


def _texts(column: pa.Array) -> Hashes:
    coded = column.dictionary_encode()
    words = coded.dictionary.to_pylist()
    if not words:  # no value at all, or nulls only
        return np.full(len(column), NULL)
    hashes = np.fromiter((hash(_plain(word)) for word in words), dtype=np.int64, count=len(words)).view(np.uint64)
    found: Hashes = mix(hashes)[coded.indices.fill_null(0).to_numpy(zero_copy_only=False)]
    return found


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | bytes) else repr(value)


def _lists(offsets: pa.Array, values: pa.Array) -> Hashes:
    """Hash lists from the hashes of their M values: a sum over what each value and its position mix to."""
    ends_N1 = offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, last = int(ends_N1[0]), int(ends_N1[-1])
    inner_M = hash_column(values.slice(first, last - first))
    lengths_N = np.diff(ends_N1)
    position_M = np.arange(last - first) - np.repeat(ends_N1[:-1] - first, lengths_N)
    terms_M = mix(inner_M + mix(position_M.astype(np.uint64)))
    sums_M1 = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms_M, dtype=np.uint64)])
    totals_N = sums_M1[ends_N1[1:] - first] - sums_M1[ends_N1[:-1] - first]
    return mix(totals_N ^ mix(lengths_N.astype(np.uint64)))


def _fields(column: pa.StructArray) -> Hashes:
    total = np.zeros(len(column), dtype=np.uint64)
    for field, values in zip(column.type, column.flatten(), strict=True):
        inner = hash_column(values)
        name = np.full(1, hash(field.name), dtype=np.int64).view(np.uint64)
        total += np.where(inner == NULL, np.uint64(0), mix(inner ^ mix(name)))
    return mix(total)


def _width(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if not pa.types.is_date(kind) and kind.bit_width == 32 else pa.int64()


def numeric_values(column: pa.Array) -> NDArray[np.float64] | None:
    """Return [N] float64, NaN for null: a number's value, a list's length, a text's characters; None of other types."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        column = pc.list_value_length(column)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = pc.utf8_length(column)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)
