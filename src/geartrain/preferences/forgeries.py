"""Forged transcripts: what a policy might write to please a reward model without doing the task.

The best transcript of a task is set against a forgery of it. Forged pairs of
training tasks teach the reward model to resist; those of held-out tasks say
how well it does (RLAR-55 and RLAR-64 of methods.md; the construction is ours).
Every forged pair says so in its `origin`, and none counts as evidence of how
well the model ranks siblings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from geartrain.datasets.transcript import SEPARATOR, split
from geartrain.preferences.pairs import Pair
from geartrain.seeds import seed_of

Forge = Callable[[str, str], str]
"""From (the task's own transcript, that of another task of the family) to a forgery."""


def _off_topic(own: str, other: str) -> str:
    return other


def _nothing_delivered(own: str, other: str) -> str:
    return split(own)[0] + SEPARATOR + "finished"


def _nothing_looked_up(own: str, other: str) -> str:
    return SEPARATOR + split(own)[1]


def _padded(own: str, other: str) -> str:
    steps, answer = split(own)
    return f"{steps}; {steps}{SEPARATOR}{answer}"


KINDS: Mapping[str, Forge] = {
    "off_topic": _off_topic,  # the good work of another task
    "nothing_delivered": _nothing_delivered,  # the look-ups, and no report
    "nothing_looked_up": _nothing_looked_up,  # the report, and no look-up
    "padded": _padded,  # the same, with every look-up twice: longer is not better
}
"""Two are shorter than the honest transcript, one is longer: together they do not teach a length."""


def forge(pairs: Sequence[Pair], *, per_task: int) -> list[Pair]:
    """Return forged pairs: at most `per_task` kinds for each training task, every kind for each held-out task.

    Which kinds a training task gets depends on its id alone. Partners come
    from the same split, so no held-out text is trained on.
    """
    best: dict[str, Pair] = {}
    for pair in sorted(pairs, key=lambda pair: -pair.margin):
        best.setdefault(pair.task_id, pair)
    honest = [best[task_id] for task_id in sorted(best)]
    return [forged for pair in honest for forged in _forgeries(pair, _partner(pair, honest), per_task)]


def _forgeries(pair: Pair, partner: Pair | None, per_task: int) -> Iterator[Pair]:
    names = list(KINDS)
    if pair.split == "train":
        start = seed_of("forgeries", pair.task_id) % len(names)
        names = [*names, *names][start : start + min(per_task, len(names))]
    for name in names:
        text = KINDS[name](pair.chosen, "" if partner is None else partner.chosen)
        if text and text != pair.chosen:
            yield replace(pair, rejected=text, rejected_id=f"forged/{pair.chosen_id}", origin=name)


def _partner(pair: Pair, honest: Sequence[Pair]) -> Pair | None:
    """Return the next pair, in a circle, of the same family and split with another prompt and text."""
    position = honest.index(pair)
    for other in [*honest[position + 1 :], *honest[:position]]:
        alike = (other.family, other.split) == (pair.family, pair.split)
        if alike and other.prompt != pair.prompt and other.chosen != pair.chosen:
            return other
    return None
