"""Task generation: every split from a seed, no parameters shared between splits.

The plan of a task and its row of stops are hashed into one of train, val and
test, so no seed and no size moves one into another. There are too few rows of
one stop for that: they are hashed together with their plan. `ood` has a family
of its own. Task i of a split does not depend on the split's size.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from geartrain.environments.environment import Task, nobody
from geartrain.environments.scripted import check_sizes
from geartrain.environments.twophase.drafts import HELD_OUT, TRAINED, Draft, draft
from geartrain.environments.twophase.towns import names_of, world_names
from geartrain.environments.twophase.wording import COMMON, PARAPHRASED
from geartrain.errors import UserError

BUCKETS = ("train",) * 6 + ("val",) + ("test",) * 3
"""Split of a parameter hash modulo 10."""
FLAW_PATTERN = (0, 2, 1, 0, 2, 0, 1, 2, 0, 2, 0, 1, 2, 0, 2, 0, 1, 2, 0, 1)
"""Flaws of a family's 1st, 2nd, ... task: 40% none, 25% one, 35% two."""
SPARE = 4
"""Calls that an episode may take beyond the necessary ones."""
_ATTEMPTS = 2000


def build_splits(
    *, seed: int, sizes: Mapping[str, int], on_task: Callable[[int], object] = nobody
) -> dict[str, list[Task]]:
    """Return tasks by split; a split that `sizes` does not name is empty. Raises UserError."""
    check_sizes(sizes)
    tasks = {split: _draw_split(split, seed, sizes.get(split, 0), on_task) for split in ("train", "val", "test", "ood")}
    tasks["paraphrase"] = [_reword(task, seed) for task in tasks["test"][: sizes.get("paraphrase", 0)]]
    return tasks


def _draw_split(split: str, seed: int, count: int, on_task: Callable[[int], object]) -> list[Task]:
    families = tuple(HELD_OUT if split == "ood" else TRAINED)
    seen: set[str] = set()
    tasks = []
    for index in range(count):
        rng = random.Random(f"{seed}/{split}/{index}")  # noqa: S311 - not a secret
        family = families[index % len(families)]
        flaws = FLAW_PATTERN[index // len(families) % len(FLAW_PATTERN)]
        tasks.append(_draw_task(split, index, family, flaws, rng, seen))
        on_task(1)
    return tasks


def _draw_task(split: str, index: int, family: str, flaws: int, rng: random.Random, seen: set[str]) -> Task:
    for _ in range(_ATTEMPTS):
        form = draft(family, rng, flaws=flaws)
        keys = _keys(family, form)
        if split != "ood" and any(_bucket(key) != split for key in keys):
            continue
        world = rng.choice(world_names(split))
        spec = _spec(form, list(rng.sample(list(names_of(world)), _names_needed(form))), keys)
        known = json.dumps([world, spec["parameters"], spec["decisions"], spec["stops"]])
        if known not in seen:
            seen.add(known)
            return _finish(split, index, family, world, form.steps(), spec, rng)
    raise UserError(f"split '{split}': no new task of family '{family}' after {index} tasks; ask for fewer tasks")


def _keys(family: str, form: Draft) -> list[str]:
    """Return the plan's and the stops' parameters as text, without the names that a town gives."""
    plan = [form.parameters, {name: [asdict(option) for option in form.decisions[name]] for name in form.decisions}]
    stops = list(form.stops)
    # A stop of an order has no name of its own: there, too, the plan tells rows apart.
    row = stops if len(stops) > 1 and family != "order" else [family, plan, stops]
    return [f"plan {family} {json.dumps(plan, sort_keys=True)}", f"stops {json.dumps(row, sort_keys=True)}"]


def _names_needed(form: Draft) -> int:
    if "first" in form.decisions:
        return len(form.stops)
    return sum(len(options) for options in form.decisions.values())


def _spec(form: Draft, names: list[str], keys: list[str]) -> dict[str, Any]:
    """Return the hidden part of a task, JSON values only."""
    ordered = "first" in form.decisions
    decisions, start = [], 0
    for name, options in form.decisions.items():
        own = names if ordered else names[start : start + len(options)]
        start += len(options)
        shown = []
        for label, option in zip(own, options, strict=True):
            waits = [f"after {own[i]}" for i in option.after]
            shown.append({"name": label, "facts": waits + [fact for fact in option.facts if fact != "after"]})
        decisions.append({"name": name, "options": shown})
    stops = [{**stop, "name": names[i]} if ordered else dict(stop) for i, stop in enumerate(form.stops)]
    options_of = list(form.decisions.values())
    return {
        "parameters": dict(form.parameters),
        "decisions": decisions,
        "stops": stops,
        "detour": None if form.detour is None else dict(form.detour),
        "truth": {
            "ok": [[option.ok for option in options] for options in options_of],
            "detour": [[option.detour for option in options] for options in options_of],
            "after": [list(option.after) for option in options_of[0]],
            "ordered": ordered,
        },
        "flaws": list(form.flaws),
        "budget": form.steps() + SPARE,
        "keys": keys,
    }


def _bucket(key: str) -> str:
    return BUCKETS[int(_digest(key), 16) % len(BUCKETS)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _finish(
    split: str, index: int, family: str, world: str, steps: int, spec: Mapping[str, Any], rng: random.Random
) -> Task:
    """Return the task, with a wording of its split."""
    label, wordings = ("paraphrase", PARAPHRASED) if split == "paraphrase" else ("common", COMMON)
    number = rng.randrange(len(wordings[family]))
    town = world.partition("-")[2].capitalize()
    prompt = wordings[family][number].format(town=town, budget=spec["budget"], **spec["parameters"])
    identity = _digest(json.dumps([family, world, prompt, spec["decisions"], spec["stops"]]))[:8]
    worded = {**spec, "wordings": [f"{label}/{family}/{number}"]}
    return Task(f"{split}-{index:04d}-{identity}", "twophase", family, split, prompt, world, steps, worded)


def _reword(task: Task, seed: int) -> Task:
    rng = random.Random(f"{seed}/paraphrase/{task.task_id}")  # noqa: S311 - not a secret
    index = int(task.task_id.split("-")[1])
    spec = {**task.spec, "source": task.task_id}
    return _finish("paraphrase", index, task.family, task.world, task.necessary_steps, spec, rng)
