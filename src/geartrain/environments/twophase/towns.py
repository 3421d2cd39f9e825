"""The worlds: towns, each with its own seven names for the things that can be chosen. No town is in two splits.

All towns deal from the same words: what is held out are plans and stops, not a
vocabulary that no training can teach. There are many of them, because a policy
that has seen few learns their names by heart instead of reading the board.
"""

import json
import random
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

NAMES = (
    *("acorn", "amber", "basalt", "birch", "cedar", "clover", "delta", "ember", "flint", "grove"),
    *("hazel", "iron", "jade", "kelp", "linen", "maple", "north", "olive", "pearl", "quartz"),
    *("raven", "slate", "thorn", "umber", "violet", "willow", "yarrow", "zinc"),
)
"""What an option may be called."""
NAMES_OF_A_TOWN = 7
_STEMS = (
    *("ash", "brook", "cal", "dun", "el", "fen", "garth", "holm", "ir", "kel"),
    *("lang", "mar", "nor", "os", "pen", "rad", "sel", "thorn", "ul", "wex"),
)
_ENDINGS = ("by", "don", "wick")
_SHARES: Mapping[str, int] = {"train": 40, "val": 6, "test": 10, "ood": 4}


def _deal() -> dict[str, dict[str, Sequence[str]]]:
    """Give every town its names, and every split its towns."""
    order = [stem + ending for stem, ending in product(_STEMS, _ENDINGS)]
    random.Random("towns").shuffle(order)  # noqa: S311 - not a secret
    towns: dict[str, dict[str, Sequence[str]]] = {}
    for split, count in _SHARES.items():
        places, order = order[:count], order[count:]
        towns[split] = {place: random.Random(place).sample(NAMES, NAMES_OF_A_TOWN) for place in places}  # noqa: S311
    return towns


TOWNS: Mapping[str, Mapping[str, Sequence[str]]] = _deal()
"""Split -> town -> names. `paraphrase` is asked in the towns of `test`."""


def world_names(split: str) -> list[str]:
    """Return the names of a split's worlds, such as "train-ashby". Raises KeyError on an unknown split."""
    return [f"{split}-{town}" for town in TOWNS[split]]


def names_of(world: str) -> Sequence[str]:
    """Return the names that a world gives to its options. Raises KeyError on an unknown world."""
    split, _, town = world.partition("-")
    return TOWNS[split][town]


def build_worlds(out_dir: Path, *, seed: int) -> list[Path]:
    """Write `towns.json` into a folder and return its path; the seed changes nothing.

    A task carries all that its episode needs: the file is there for people, and so that the folder exists.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / "towns.json"
    path.write_text(json.dumps(TOWNS, indent=2) + "\n", encoding="utf-8")
    return [path]
