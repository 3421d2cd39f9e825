"""An import of feast at a third of its price."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typeguard


@contextmanager
def lean_import() -> Iterator[None]:
    """Keep what is imported inside from checking its own types at run time, and from loading torch.

    Feast decorates a score of its classes with typeguard, which parses and compiles their sources anew in every
    process: two thirds of the import. It also loads torch where that is installed, for transformations that we have
    none of.
    """
    checked, torch = typeguard.typechecked, sys.modules.get("torch")
    typeguard.typechecked = _unchecked
    sys.modules["torch"] = None  # type: ignore[assignment]  # "not installed", for whoever imports it inside
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        typeguard.typechecked = checked
        del sys.modules["torch"]
        if torch is not None:
            sys.modules["torch"] = torch


def _unchecked(target: Any = None, **_: Any) -> Any:
    """Stand in for `typeguard.typechecked`, with arguments or without."""
    decorate: Callable[[Any], Any] = lambda decorated: decorated  # noqa: E731
    return decorate if target is None else target
