"""The forms of preference data that people have, by name: how each is told, and how a record of it is read.

A form of groups (`key` is not None) has one answer a row: rows that follow one another with one key are one record.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from geartrain.errors import UserError
from geartrain.preferences import ranked, scored, stepwise, told
from geartrain.preferences.records import Draft

Record = dict[str, Any]
TRAJECTORIES = "trajectories"
"""The one form whose prompts lie elsewhere, in the task sets."""


@dataclass(frozen=True)
class Form:
    """One form."""

    name: str
    says: str
    """What a record of it looks like, for people."""
    fits: Callable[[Record], bool]
    """Whether a record looks like this form."""
    read: Callable[[Sequence[Record]], Draft]
    """From one record (of a form of groups: all of a group) to a draft. Raises DefectError."""
    key: Callable[[Record], Any] | None = None


def _one(read: Callable[[Record], Draft]) -> Callable[[Sequence[Record]], Draft]:
    return lambda records: read(records[0])


FORMS: Mapping[str, Form] = {
    form.name: form
    for form in (
        Form("records", "what `preferences build` wrote", told.is_record, _one(told.read_record)),
        Form(
            TRAJECTORIES,
            "our own rollouts: task_id, sibling, turns, success, progress; siblings follow one another",
            told.is_trajectory,
            told.read_trajectories,
            key=lambda record: record.get("task_id"),
        ),
        Form(
            "nectar",
            "prompt, and answers: a list of answer and rank (1 is the best)",
            ranked.is_nectar,
            _one(ranked.read_nectar),
        ),
        Form(
            "ultrafeedback",
            "instruction, and completions: a list of response and annotations (Rating per aspect)",
            scored.is_ultrafeedback,
            _one(scored.read_ultrafeedback),
        ),
        Form(
            "steps",
            "PRM800K (question, label.steps with rated completions), or prompt, completions and labels",
            stepwise.is_stepwise,
            _one(stepwise.read_stepwise),
        ),
        Form(
            "helpsteer2",
            "prompt, response and helpfulness, correctness, coherence, complexity, verbosity from 0 to 4, a row an "
            "answer; the answers to one prompt follow one another",
            scored.is_helpsteer2,
            scored.read_helpsteer2,
            key=lambda record: record.get("prompt"),
        ),
        Form(
            "hh",
            'HH-RLHF: chosen and rejected, transcripts with "\\n\\nHuman:" and "\\n\\nAssistant:"',
            ranked.is_hh,
            _one(ranked.read_hh),
        ),
        Form(
            "ab",
            "prompt, two answers (response_a, response_b or conversation_a, conversation_b …) and which is better",
            ranked.is_ab,
            _one(ranked.read_ab),
        ),
        Form(
            "pairs",
            "chosen and rejected, texts or lists of messages; prompt, where they do not begin with it",
            ranked.is_pairs,
            _one(ranked.read_pairs),
        ),
    )
}
"""In the order in which they are tried: the most particular first."""
TRIED = 200
"""Records that a form is told by."""


def detect(records: Sequence[Any], source: str) -> Form:
    """Return the form that most of the first records have; of two the more particular.

    Raises:
        UserError: no form fits half of them.
    """
    found = [record for record in records[:TRIED] if isinstance(record, dict)]
    fitting = {name: sum(form.fits(record) for record in found) for name, form in FORMS.items()}
    best = max(fitting, key=lambda name: fitting[name])
    if found and fitting[best] * 2 >= len(found):
        return FORMS[best]
    keys = ", ".join(sorted(map(str, found[0]))[:12]) if found else "none"
    known = "\n".join(f"  {name:<14}{form.says}" for name, form in FORMS.items())
    raise UserError(
        f"{source}: no form of preference data that is known here (keys of the first record: {keys}). "
        f"Rename its columns to one of these, or name the form with --form:\n{known}"
    )


def form_named(name: str) -> Form:
    """Return a form. Raises UserError: there is none of that name."""
    if name not in FORMS:
        near = get_close_matches(name, FORMS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"the forms are {', '.join(FORMS)}"
        raise UserError(f"no form {name!r}; {hint}")
    return FORMS[name]
