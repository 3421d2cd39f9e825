"""Task generation: every split from a seed, no parameters shared between splits.

A part's parameters are hashed into one of the splits, so that train, val, test
and ood never ask the same question, whatever the seed and the sizes. Task i of
a split does not depend on the split's size: a larger set only adds tasks.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from geartrain.environments.analyst import wording
from geartrain.environments.analyst.editions import EDITIONS
from geartrain.environments.analyst.families import HELD_OUT, TRAINED, Draft, draft, redraw
from geartrain.environments.analyst.ledger import Ledger
from geartrain.environments.analyst.questions import Part, from_record, sections, to_record
from geartrain.environments.analyst.truth import facts as true_facts
from geartrain.environments.analyst.verification import Fact
from geartrain.environments.environment import Task, nobody
from geartrain.environments.scripted import check_sizes
from geartrain.errors import UserError

BUCKETS = ("train",) * 6 + ("val",) + ("test",) * 2 + ("ood",)
"""Split of a parameter hash modulo 10."""
FLAW_PATTERN = (0, 1, 2, 1, 0, 1, 0, 1, 2, 1, 0, 1, 2, 0, 1, 2, 1, 0, 1, 2)
"""Flaw sites of a family's 1st, 2nd, ... task: 30% none, 45% one, 25% two. One is what sampling can mend; where two
must be mended at once, siblings hardly ever differ."""
_PART_ATTEMPTS = 60
_TASK_ATTEMPTS = 200
_LETTERS = "abcdef"


def build_splits(
    worlds: Path, *, seed: int, sizes: Mapping[str, int], on_task: Callable[[int], object] = nobody
) -> dict[str, list[Task]]:
    """Return tasks by split; a split that `sizes` does not name is empty. Raises UserError."""
    check_sizes(sizes)
    ledgers = {edition: Ledger(worlds / f"{edition}.sqlite") for edition in EDITIONS}
    tasks = {
        split: _Generator(split, seed, ledgers).tasks(sizes.get(split, 0), on_task)
        for split in ("train", "val", "test", "ood")
    }
    tasks["paraphrase"] = [_reword(task, seed) for task in tasks["test"][: sizes.get("paraphrase", 0)]]
    return tasks


class _Generator:
    """Draws the tasks of one split, one after the other."""

    def __init__(self, split: str, seed: int, ledgers: Mapping[str, Ledger]):
        self._split = split
        self._seed = seed
        self._ledgers = {name: ledger for name, ledger in ledgers.items() if name.startswith(split)}
        self._families = tuple(HELD_OUT if split == "ood" else TRAINED)
        self._seen: set[str] = set()

    def tasks(self, count: int, on_task: Callable[[int], object]) -> list[Task]:
        made = []
        for index in range(count):
            made.append(self._task(index))
            on_task(1)
        return made

    def _task(self, index: int) -> Task:
        rng = random.Random(f"{self._seed}/{self._split}/{index}")  # noqa: S311 - not a secret
        family = self._families[index % len(self._families)]
        flaws = FLAW_PATTERN[index // len(self._families) % len(FLAW_PATTERN)]
        world = rng.choice(sorted(self._ledgers))
        for _ in range(_TASK_ATTEMPTS):
            task = self._attempt(rng, index, family, flaws, world)
            if task is None:
                continue
            # the same question in other words, or the same words about another shop: neither is a new task
            asked = {json.dumps([task.world, task.spec["parameters"]], sort_keys=True), task.prompt}
            if not asked & self._seen:
                self._seen |= asked
                return task
        raise UserError(
            f"split '{self._split}': no new task of family '{family}' after {index} tasks; ask for fewer tasks"
        )

    def _attempt(self, rng: random.Random, index: int, family: str, flaws: int, world: str) -> Task | None:
        ledger = self._ledgers[world]
        form = draft(family, rng, flaws=flaws)
        parts: list[Part] = []
        facts: list[list[Fact]] = []
        for blank in form.parts:
            filled = self._fill(blank, rng, ledger, parts)
            if filled is None:
                return None
            parts.append(filled[0])
            facts.append(filled[1])
        sections = _sections(parts)
        truth = {
            name: fact
            for names, found in zip(sections, facts, strict=True)
            for name, fact in zip(names, found, strict=True)
        }
        mail, recipient = _address(form, sections, truth, rng, ledger)
        spec = {
            "parameters": {"parts": [to_record(part) for part in parts], "mail": mail},
            "sections": sections,
            "facts": {name: fact.to_record() for name, fact in truth.items()},
            "recipient": recipient,
            "flaws": form.flaws(),
            "keys": [part_key(part) for part in parts],
        }
        prompt, used = _prompt(parts, sections, mail, wording.COMMON, rng)
        return _finish_task(self._split, index, family, world, form.steps(), prompt, {**spec, "wordings": used})

    def _fill(
        self, blank: Part, rng: random.Random, ledger: Ledger, others: Sequence[Part]
    ) -> tuple[Part, list[Fact]] | None:
        for _ in range(_PART_ATTEMPTS):
            part = redraw(blank, rng, ledger)
            if part in others or _bucket(part) != self._split:
                continue
            facts = true_facts(part, ledger)
            if facts is not None:
                return part, facts
        return None


def part_key(part: Part) -> str:
    """Return the canonical text of a part's parameters."""
    return json.dumps(to_record(part), sort_keys=True, ensure_ascii=False)


def _bucket(part: Part) -> str:
    return BUCKETS[int(_digest(part_key(part)), 16) % len(BUCKETS)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _sections(parts: Sequence[Part]) -> list[list[str]]:
    """Return section names per part; a letter tells the parts apart where there are several."""
    suffixes = [f" {letter}" for letter in _LETTERS] if len(parts) > 1 else [""]
    return [[name + suffix for name in sections(part)] for part, suffix in zip(parts, suffixes, strict=False)]


def _address(
    form: Draft, sections: Sequence[Sequence[str]], truth: Mapping[str, Fact], rng: random.Random, ledger: Ledger
) -> tuple[dict[str, str] | None, str | None]:
    """Return whom to mail, as parameters and as the true address."""
    if not form.mail:
        return None, None
    section = sections[-1][-1] if form.mail_about else ""
    people = [person.name for person in ledger.employees if person.manager is not None]
    named = rng.choice(sorted(ledger.rep_of)) if form.mail == "rep" else rng.choice(people)
    who = str(truth[section].label) if section else named
    person = {"rep": ledger.rep_of.get(who), "employee": who, "manager": None}[form.mail]
    if form.mail == "manager":
        person = ledger.manager_of(who)
    mail = {"to": form.mail, "who": "" if section else who, "section": section}
    return mail, ledger.email_of(str(person))


def _prompt(
    parts: Sequence[Part],
    sections: Sequence[Sequence[str]],
    mail: Mapping[str, str] | None,
    wordings: Mapping[str, Sequence[str]],
    rng: random.Random,
) -> tuple[str, list[str]]:
    """Return a prompt and the ids of the wordings it was made of."""
    sentences, used = [], []
    asked = [(part.kind, wording.fields(part, names)) for part, names in zip(parts, sections, strict=True)]
    if mail:
        asked.append(("mail", {"recipient": wording.recipient_text(mail["to"], mail["who"], mail["section"])}))
    label = "common" if wordings is wording.COMMON else "paraphrase"
    for kind, values in asked:
        number = rng.randrange(len(wordings[kind]))
        sentences.append(wordings[kind][number].format(**values))
        used.append(f"{label}/{kind}/{number}")
    return " ".join(sentences), used


def _reword(task: Task, seed: int) -> Task:
    """Return the same task asked in a wording that no other split uses."""

    parts = [from_record(record) for record in task.spec["parameters"]["parts"]]
    rng = random.Random(f"{seed}/paraphrase/{task.task_id}")  # noqa: S311 - not a secret
    prompt, used = _prompt(parts, task.spec["sections"], task.spec["parameters"]["mail"], wording.PARAPHRASED, rng)
    index = int(task.task_id.split("-")[1])
    spec = {**task.spec, "wordings": used, "source": task.task_id}
    return _finish_task("paraphrase", index, task.family, task.world, task.necessary_steps, prompt, spec)


def _finish_task(
    split: str, index: int, family: str, world: str, steps: int, prompt: str, spec: Mapping[str, Any]
) -> Task:
    identity = _digest(json.dumps([family, world, prompt], ensure_ascii=False))[:8]
    return Task(f"{split}-{index:04d}-{identity}", "analyst", family, split, prompt, world, steps, spec)
