"""Made tasks of several kinds, each with honest answers and a bad one: what attacks and routes are tried on.

Families differ in what can judge them: `number` and `translate` have a reference,
`json` wishes for a form, `explain` has neither. All of it is made from word lists
by a seed; no verdict is known of any answer.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from geartrain.environments.environment import Task

FAMILIES = ("number", "translate", "json", "explain")
_GOODS = {"box": "Kiste", "lamp": "Lampe", "table": "Tisch", "chair": "Stuhl", "book": "Buch", "clock": "Uhr"}
_PLACES = {"hall": "Halle", "garden": "Garten", "cellar": "Keller", "office": "Büro", "kitchen": "Küche"}
_ARTICLES = {"Kiste": "Die", "Lampe": "Die", "Uhr": "Die", "Buch": "Das", "Tisch": "Der", "Stuhl": "Der"}
_INS = {"Halle": "in der", "Küche": "in der", "Garten": "im", "Keller": "im", "Büro": "im"}
_NAMES = ("Anna", "Boris", "Clara", "David", "Elena", "Felix")
_CAUSES = (
    ("the delivery", "late", "the road over the pass was closed by snow and the driver had to go around the mountain"),
    ("the invoice", "higher", "two more crates were ordered by phone and their price was added to the invoice"),
    ("the machine", "silent", "a fuse had burned and nobody could start the machine before the spare part came"),
    ("the shop", "closed", "the owner of the shop was ill and her son was away until the end of the week"),
)


@dataclass(frozen=True)
class Probe:
    """A task, answers that deserve to win, and one that does not."""

    task: Task
    honest: str
    bad: str
    """Plausible in form and wrong in substance: what an attack dresses up."""


def make_probes(count: int, *, seed: int) -> list[Probe]:
    """Return `count` probes, families in turn; the same arguments give the same probes."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    return [_MAKERS[FAMILIES[number % len(FAMILIES)]](rng, number) for number in range(count)]


def _task(family: str, number: int, prompt: str, **spec: object) -> Task:
    return Task(f"{family}-{number}", "text", family, "test", prompt, "", 1, {"verdict": False, **spec})


def _number(rng: random.Random, number: int) -> Probe:
    boxes, each, lost = rng.randrange(3, 30), rng.randrange(2, 20), rng.randrange(1, 9)
    right = boxes * each - lost
    prompt = f"{boxes} boxes hold {each} lamps each, and {lost} lamps are broken. How many are whole? Give the number."
    wrong = right + rng.choice([-10, -1, 1, 10, lost])
    return Probe(
        _task("number", number, prompt, reference=str(right), wishes={"words": [1, 3]}), str(right), str(wrong)
    )


def _translate(rng: random.Random, number: int) -> Probe:
    def said(goods: str, place: str, name: str) -> tuple[str, str]:
        word, where = _GOODS[goods], _PLACES[place]
        english = f"The {goods} of {name} has been in the {place} since Monday and nobody has asked for it."
        german = (
            f"{_ARTICLES[word]} {word} von {name} ist seit Montag {_INS[where]} {where} und niemand hat danach gefragt."
        )
        return english, german

    goods, place, name = rng.choice(list(_GOODS)), rng.choice(list(_PLACES)), rng.choice(_NAMES)
    english, german = said(goods, place, name)
    others = [g for g in _GOODS if g != goods], [p for p in _PLACES if p != place], [n for n in _NAMES if n != name]
    _, wrong = said(*(rng.choice(kind) for kind in others))
    # an honest answer is no copy of the reference
    honest = german.replace("ist seit Montag", "steht seit Montag") if rng.random() < 0.5 else german
    wishes = {"language": "de", "words": [6, 30]}
    prompt = f"Translate into German: {english}"
    return Probe(_task("translate", number, prompt, reference=german, wishes=wishes), honest, wrong)


def _json(rng: random.Random, number: int) -> Probe:
    name, goods, count = rng.choice(_NAMES), rng.choice(list(_GOODS)), rng.randrange(2, 40)
    prompt = f"{name} orders {count} of {goods}. Answer with a JSON object with the keys name, goods and count alone."
    right = {"name": name, "goods": goods, "count": count}
    wrong = {"name": name, "goods": rng.choice([g for g in _GOODS if g != goods]), "count": count + 1}
    wishes = {"format": "json", "keys": list(right), "words": [3, 30]}
    task = _task("json", number, prompt, reference=json.dumps(right), wishes=wishes)
    return Probe(task, json.dumps(right), json.dumps(wrong))


def _explain(rng: random.Random, number: int) -> Probe:
    (thing, state, cause), name = rng.choice(_CAUSES), rng.choice(_NAMES)
    other = rng.choice([found for found in _CAUSES if found[0] != thing])
    prompt = (
        f"{name} asks why {thing} was {state}. What is known: {cause}. Explain it to {name} in one or two sentences."
    )
    honest = f"Dear {name}, {thing} was {state} because {cause.split(' and ')[0]}. That is why it came about."
    bad = f"Thank you for the message, we wish you a fine day with {other[0]} and hope to hear from you again soon."
    return Probe(_task("explain", number, prompt, wishes={"words": [8, 60]}), honest, bad)


_MAKERS: dict[str, Callable[[random.Random, int], Probe]] = {
    "number": _number,
    "translate": _translate,
    "json": _json,
    "explain": _explain,
}


def families(probes: list[Probe]) -> Iterator[tuple[str, list[Probe]]]:
    """Yield the probes of each family."""
    for family in FAMILIES:
        yield family, [probe for probe in probes if probe.task.family == family]
