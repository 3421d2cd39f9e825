"""Prompts: what to plan, in wordings for everyone and wordings kept for the paraphrase split."""

from collections.abc import Mapping, Sequence

COMMON: Mapping[str, Sequence[str]] = {
    "route": (
        "In {town}, bring {load} crates by a route that holds them. You have {budget} calls.",
        "{load} crates leave {town}: plan a route that holds them and clear its stops. You have {budget} calls.",
        "Plan a route out of {town} for {load} crates, then clear every stop. You have {budget} calls.",
    ),
    "recipe": (
        "In {town}, cook for a guest who takes no {avoid}. You have {budget} calls.",
        "A guest in {town} takes no {avoid}: plan a recipe and clear its stops. You have {budget} calls.",
        "Plan a recipe without {avoid} in {town}, then clear every stop. You have {budget} calls.",
    ),
    "convoy": (
        "In {town}, bring {load} crates by a route that holds them, in a {need} cart. You have {budget} calls.",
        "{load} crates leave {town} in a {need} cart: plan both and clear the stops. You have {budget} calls.",
        "Plan a route out of {town} for {load} crates and a {need} cart, then clear every stop. "
        "You have {budget} calls.",
    ),
    "order": (
        "In {town}, plan the order of the stations, then clear them in it. You have {budget} calls.",
        "The stations of {town} need an order: plan it and clear them. You have {budget} calls.",
        "Plan in which order the stations of {town} come, then clear every one. You have {budget} calls.",
    ),
}
PARAPHRASED: Mapping[str, Sequence[str]] = {
    "route": (
        "With {budget} calls, get {load} crates out of {town}; the route must hold them.",
        "Within {budget} calls: from {town}, a route that holds {load} crates, and all its stops cleared.",
    ),
    "recipe": (
        "With {budget} calls, feed a guest of {town}; nothing with {avoid}.",
        "Within {budget} calls: a meal in {town} that has no {avoid}, and all its stops cleared.",
    ),
    "convoy": (
        "With {budget} calls, get {load} crates out of {town} in a {need} cart; the route must hold them.",
        "Within {budget} calls: from {town}, a {need} cart, a route that holds {load} crates, all stops cleared.",
    ),
    "order": (
        "With {budget} calls, clear all stations of {town} in an order that is right.",
        "Within {budget} calls: the stations of {town}, planned in their order, and all of them cleared.",
    ),
}
