"""Data that goes into a sandbox and comes out: JSON, with a tag where JSON has no form for what Python has.

A list is a list; what else holds values is an object with one key: {"tuple": […]}, {"dict": [[key, value], …]}.
Whoever reads gets exact builtin types, so that no method of the sender's making is ever called.
"""

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

MOST_DEPTH = 64
_FEW = 100
_MOST_BITS = 14_000  # Python writes and reads 4300 digits


class UnfitError(ValueError):
    """A value that is no data: not finite, too deep, of a type without a form."""


def tagged(value: Any) -> Any:
    """Return a value as `json` can write it.

    Raises:
        UnfitError: it has no form.
    """
    return _tagged(value, 0)


def untagged(read: Any) -> Any:
    """Return the value of what `json` read.

    Raises:
        UnfitError: it is none of `tagged`'s.
    """
    return _untagged(read, 0)


def read_json(text: bytes) -> Any:
    """Read JSON that anybody may have written; no constant beyond JSON's, no number beyond a float's.

    Raises:
        UnfitError: it is no JSON.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise UnfitError(f"no JSON: {error}") from None


def _refuse(name: str) -> Any:
    raise UnfitError(f"{name} is no data")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text[:20])


def _tagged(value: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise UnfitError(f"more than {MOST_DEPTH} levels deep, or in a circle")
    if hasattr(value, "tolist"):  # numpy's
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise UnfitError("an integer of more digits than Python writes")
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _refuse(str(float(value)))
    if isinstance(value, dict):
        return {"dict": [[_tagged(key, depth + 1), _tagged(entry, depth + 1)] for key, entry in value.items()]}
    for holder in (list, tuple, set, frozenset):
        if isinstance(value, holder):
            entries = [_tagged(entry, depth + 1) for entry in value]
            return entries if holder is list else {holder.__name__: entries}
    raise UnfitError(f"{type(value).__name__} is no data")


_HOLDERS: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}


def _untagged(read: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise UnfitError(f"more than {MOST_DEPTH} levels deep")
    if isinstance(read, str):
        if not read.isascii() and any("\ud800" <= letter <= "\udfff" for letter in read):
            raise UnfitError("half of a surrogate pair is no text")
        return read
    if isinstance(read, list):
        return [_untagged(entry, depth + 1) for entry in read]
    if not isinstance(read, dict):
        return read
    tag, entries = next(iter(read.items()), ("", None))
    if len(read) != 1 or tag not in _HOLDERS or not isinstance(entries, list):
        raise UnfitError("an object that no sandbox writes")
    if tag == "dict" and not all(isinstance(pair, list) and len(pair) == 2 for pair in entries):
        raise UnfitError("a dict of no pairs")
    if tag == "dict":
        pairs = [(_untagged(key, depth + 1), _untagged(entry, depth + 1)) for key, entry in entries]
        _check_keys([key for key, _ in pairs])
        return dict(pairs)
    inside = [_untagged(entry, depth + 1) for entry in entries]
    if tag != "tuple":
        _check_keys(inside)
    return _HOLDERS[tag](inside)


def _check_keys(keys: Sequence[Any]) -> None:
    """Raise for keys that no dict takes, or that were chosen to have one hash: a dict of n such costs n² time."""
    try:
        hashes = {hash(key) for key in keys}
    except TypeError as error:
        raise UnfitError(str(error)) from None
    if len(keys) > _FEW and len(hashes) < len(keys) // 2:
        raise UnfitError("keys of one hash")
