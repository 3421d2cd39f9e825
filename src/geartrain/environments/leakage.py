"""Checks that nothing of the held-out splits was seen in training.

Works on any environment whose task specs carry `keys` (one string per parameter
combination), `wordings` (ids of the templates used) and, for a reworded task,
`source` (the id of the task it rewords).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations

from geartrain.environments.environment import Task

SHOWN = 3
"""Leaks of one kind between two splits that are listed; the rest are counted."""


def find_leaks(tasks_by_split: Mapping[str, Sequence[Task]]) -> list[str]:
    """Return one line per leak; none means that the splits are disjoint.

    `paraphrase` shares parameters and worlds with `test` by construction, and is
    checked against every other split as `test` is.
    """
    leaks = _repeated_ids(tasks_by_split)
    for one, other in combinations(sorted(tasks_by_split), 2):
        pair = (tasks_by_split[one], tasks_by_split[other])
        where = f"{one} and {other}"
        leaks += _shared(f"prompt in {where}", pair, lambda task: [_plain(task.prompt)])
        if {one, other} != {"test", "paraphrase"}:
            leaks += _shared(f"parameters in {where}", pair, lambda task: [f"{k}" for k in task.spec.get("keys", ())])
            leaks += _shared(f"world in {where}", pair, lambda task: [task.world])
        if "ood" in (one, other):
            leaks += _shared(f"family in {where}", pair, lambda task: [task.family])
        if "paraphrase" in (one, other):
            leaks += _shared(f"wording in {where}", pair, lambda task: task.spec.get("wordings", ()))
    return leaks + _foreign_sources(tasks_by_split)


def _shared(
    what: str, pair: tuple[Sequence[Task], Sequence[Task]], values: Callable[[Task], Iterable[str]]
) -> list[str]:
    one, other = ({value: task.task_id for task in tasks for value in values(task)} for tasks in pair)
    common = sorted(set(one) & set(other))
    lines = [f"same {what}: {one[value]} and {other[value]} ({value[:80]})" for value in common[:SHOWN]]
    return lines + ([f"same {what}: {len(common) - SHOWN} more"] if len(common) > SHOWN else [])


def _repeated_ids(tasks_by_split: Mapping[str, Sequence[Task]]) -> list[str]:
    seen: set[str] = set()
    leaks = []
    for split, tasks in tasks_by_split.items():
        for task in tasks:
            if task.task_id in seen:
                leaks.append(f"task id {task.task_id} is used twice")
            if task.split != split:
                leaks.append(f"task {task.task_id} of split '{task.split}' is listed under '{split}'")
            seen.add(task.task_id)
    return leaks


def _foreign_sources(tasks_by_split: Mapping[str, Sequence[Task]]) -> list[str]:
    tests = {task.task_id for task in tasks_by_split.get("test", ())}
    return [
        f"task {task.task_id} rewords {task.spec.get('source')}, which is not a test task"
        for task in tasks_by_split.get("paraphrase", ())
        if task.spec.get("source") not in tests
    ]


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
