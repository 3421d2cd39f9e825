"""The worlds: towns, each with its own seven names for the things that can be chosen. No town is in two splits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

TOWNS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "train": {
        "ashby": ("amber", "birch", "cedar", "delta", "ember", "flint", "grove"),
        "brook": ("hazel", "iron", "jade", "kelp", "linen", "maple", "north"),
        "calder": ("olive", "pearl", "quartz", "raven", "slate", "thorn", "umber"),
        "dunmore": ("violet", "willow", "yarrow", "zinc", "acorn", "basalt", "clover"),
    },
    # the same words, dealt anew: what is held out are plans and stops, not a vocabulary that no training can teach
    "val": {
        "elston": ("acorn", "birch", "hazel", "quartz", "thorn", "zinc", "jade"),
        "fenwick": ("amber", "linen", "clover", "pearl", "grove", "willow", "iron"),
    },
    "test": {
        "garth": ("basalt", "ember", "kelp", "olive", "umber", "yarrow", "flint"),
        "holm": ("cedar", "maple", "raven", "violet", "north", "delta", "slate"),
    },
    "ood": {
        "irby": ("delta", "jade", "umber", "acorn", "pearl", "flint", "maple"),
        "kelso": ("slate", "zinc", "amber", "iron", "basalt", "hazel", "raven"),
    },
}
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
