"""What tasks are made of: decisions with options, stops with states, and which flaws have room in them.

Three families are trained; `order` is held out and asks for a plan of another
form (an order instead of a choice) with the same tools.

The truth of a draft is drawn first and the facts are made to fit it. An episode
judges by the facts alone (`constraints.py`), so the two can be held together.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from geartrain.environments.twophase.flaws import DO_LURES, PLAN_LURES

VERBS: Mapping[str, str] = {
    "shut": "open",
    "wet": "dry",
    "cold": "heat",
    "dirty": "wash",
    "loose": "tighten",
    "dark": "light",
    "locked": "unlock",
    "heavy": "lift",
}
"""State of a stop -> the verb that clears it."""
WAIT = "wait"
"""The verb that does nothing."""
WORDS = (*VERBS.values(), *(verb for _, verb in DO_LURES.values()), WAIT)
"""Every verb that `do` takes."""
ROAD = ("gate", "bridge", "tunnel", "ford", "toll", "ferry", "arch", "yard")
KITCHEN = ("oven", "pot", "pan", "sieve", "kettle", "board", "mill", "tray")
CART_KINDS = ("cooled", "padded", "covered", "sealed")
FOODS = ("nuts", "milk", "egg", "corn", "fish", "soy", "wheat", "mint")
LOADS = range(20, 90, 10)
FRAGILE_SHARE = 0.3
"""How often a stop without a lure is fragile."""
STOP_COUNTS = ((1, 2, 3, 4, 5, 6), (10, 25, 30, 20, 10, 5))
"""Stops of a task with one decision, and how often each is wanted."""


@dataclass
class Option:
    """One choice of a decision: what the board says, and the truth behind it."""

    facts: list[str]
    ok: bool = True
    detour: bool = False
    after: list[int] = field(default_factory=list)
    """Options that must be planned earlier (an order); empty for a choice."""


@dataclass(frozen=True)
class Draft:
    """A task before it has names and words."""

    parameters: Mapping[str, Any]
    """What the prompt says."""
    decisions: Mapping[str, Sequence[Option]]
    """Decision -> options, in the order in which they are made; every decision of an order has the same options."""
    stops: Sequence[Mapping[str, Any]]
    """{"name", "state", "fragile"}; of an order stop i belongs to option i and has no name yet."""
    detour: Mapping[str, Any] | None
    """The stop that an option with a detour puts before the others."""
    flaws: Sequence[str]

    def steps(self) -> int:
        """Return the calls of the scripted solution: one look, the plan, the stops, finish."""
        return 1 + len(self.decisions) + len(self.stops) + 1


def draft(family: str, rng: random.Random, *, flaws: int) -> Draft:
    """Return a random draft with `flaws` (0, 1 or 2) places in which the flawed expert goes wrong.

    One place lies in either phase; two places are one in each.
    """
    in_plan = flaws == 2 or (flaws == 1 and rng.random() < 0.5)
    in_stops = flaws == 2 or (flaws == 1 and not in_plan)
    return {**TRAINED, **HELD_OUT}[family](rng, in_plan, in_stops)


def _route_options(rng: random.Random, load: int, lure: bool) -> list[Option]:
    def holds(least: int, most: int) -> str:
        return f"holds {rng.randrange(least, most + 1, 10)}"

    good = Option([holds(load, 90), "direct"])
    bad = Option([holds(10, load - 10), "shortcut" if lure else "direct"], ok=False)
    far_holds = rng.random() < 0.5
    far = Option([holds(load, 90) if far_holds else holds(10, load - 10), "detour"], ok=far_holds, detour=True)
    return rng.sample([good, bad, far], 3)


def _cart_options(rng: random.Random, need: str, lure: bool) -> list[Option]:
    others = rng.sample([kind for kind in CART_KINDS if kind != need], 2)
    options = [Option([need])] + [Option([kind], ok=False) for kind in others]
    if lure:
        options[1].facts.append("cheap")
    return rng.sample(options, 3)


def _recipe_options(rng: random.Random, avoid: str, lure: bool) -> list[Option]:
    def foods(ok: bool) -> list[str]:
        pair = rng.sample([food for food in FOODS if food != avoid], 2)
        if not ok:
            pair[rng.randrange(2)] = avoid
        return pair

    slow_ok = rng.random() < 0.5
    good = Option([*foods(True), "quick"])
    bad = Option([*foods(False), "popular" if lure else "quick"], ok=False)
    slow = Option([*foods(slow_ok), "slow"], ok=slow_ok, detour=True)
    return rng.sample([good, bad, slow], 3)


def _stops(rng: random.Random, objects: Sequence[str], count: int, flaw: str | None) -> list[dict[str, Any]]:
    """Return stops with different names (none where `objects` is empty); `flaw` says which lure one of them has."""
    plain = [state for state in VERBS if state not in {state for state, _ in DO_LURES.values()}]
    names = rng.sample(list(objects), count) if objects else [""] * count
    stops = [{"name": n, "state": rng.choice(plain), "fragile": rng.random() < FRAGILE_SHARE} for n in names]
    if flaw:
        stops[rng.randrange(count)].update(state=DO_LURES[flaw][0], fragile=True)
    return stops


def _assemble(
    rng: random.Random,
    parameters: Mapping[str, Any],
    decisions: Mapping[str, Sequence[Option]],
    place: tuple[Sequence[str], int],
    flaws: Sequence[str],
) -> Draft:
    """Return the draft with stops; `place` is the names that stops may have and how many there are."""
    objects, count = place
    stops = _stops(rng, objects, count, next((flaw for flaw in flaws if flaw in DO_LURES), None))
    detour = None
    if any(option.detour for options in decisions.values() for option in options):
        free = [name for name in objects if name not in {stop["name"] for stop in stops}]
        detour = {**_stops(rng, free, 1, None)[0], "fragile": False}
    return Draft(parameters, decisions, stops, detour, flaws)


def _do_flaw(rng: random.Random, in_stops: bool) -> list[str]:
    return [rng.choice(sorted(DO_LURES))] if in_stops else []


def _count(rng: random.Random, least: int) -> int:
    return max(least, rng.choices(*STOP_COUNTS)[0])


def _route(rng: random.Random, in_plan: bool, in_stops: bool) -> Draft:
    load = rng.choice(LOADS)
    decisions = {"route": _route_options(rng, load, in_plan)}
    flaws = ["shortcut_taken"] * in_plan + _do_flaw(rng, in_stops)
    return _assemble(rng, {"load": load}, decisions, (ROAD, _count(rng, 1)), flaws)


def _recipe(rng: random.Random, in_plan: bool, in_stops: bool) -> Draft:
    avoid = rng.choice(FOODS)
    decisions = {"recipe": _recipe_options(rng, avoid, in_plan)}
    flaws = ["popular_taken"] * in_plan + _do_flaw(rng, in_stops)
    return _assemble(rng, {"avoid": avoid}, decisions, (KITCHEN, _count(rng, 1)), flaws)


def _convoy(rng: random.Random, in_plan: bool, in_stops: bool) -> Draft:
    load, need = rng.choice(LOADS), rng.choice(CART_KINDS)
    lure = rng.choice(("shortcut_taken", "cheap_taken")) if in_plan else ""
    decisions = {
        "route": _route_options(rng, load, lure == "shortcut_taken"),
        "cart": _cart_options(rng, need, lure == "cheap_taken"),
    }
    flaws = [lure] * in_plan + _do_flaw(rng, in_stops)
    return _assemble(rng, {"load": load, "need": need}, decisions, (ROAD, _count(rng, 2)), flaws)


def _order(rng: random.Random, in_plan: bool, in_stops: bool) -> Draft:
    count = rng.choice((3, 3, 4))
    places = rng.sample(range(count), count)
    options = [Option(["free"]) for _ in range(count)]
    for earlier, later in pairwise(places):
        if later == places[-1] or rng.random() < 0.75:  # at least one has to wait
            options[later] = Option(["after"], after=[earlier])
    if in_plan:
        options[rng.choice([i for i in range(count) if options[i].after])].facts.append(PLAN_LURES["near_first"][1])
    decisions = dict.fromkeys(("first", "second", "third")[: count - 1], options)
    flaws = ["near_first"] * in_plan + _do_flaw(rng, in_stops)
    return _assemble(rng, {}, decisions, ((), count), flaws)


TRAINED: Mapping[str, Callable[[random.Random, bool, bool], Draft]] = {
    "route": _route,
    "recipe": _recipe,
    "convoy": _convoy,
}
HELD_OUT: Mapping[str, Callable[[random.Random, bool, bool], Draft]] = {"order": _order}
