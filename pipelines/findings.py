"""What the linter says: a finding, and the rule that it comes from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pipelines.compiled import Compiled


@dataclass(frozen=True)
class Finding:
    """One trap that a pipeline is in."""

    rule: str
    task: str
    """Name of the task; "pipeline" for all of it."""
    what: str
    issue: str
    mend: str


Found = Iterator[tuple[str, str]]
"""(task, what is wrong with it)."""
Check = Callable[[Compiled], Found]


@dataclass(frozen=True)
class Rule:
    """How a trap is seen, where it is known from, and the way out."""

    check: Check
    issue: str
    mend: str
    release: bool = False
    """Whether it matters for a release only."""

    @property
    def name(self) -> str:
        """The rule's name, for people and tests."""
        return self.check.__name__


def explain(findings: Sequence[Finding]) -> list[str]:
    """Return one line per problem; tasks that share one are named together."""
    shared: dict[tuple[str, str], list[Finding]] = {}
    for found in findings:
        shared.setdefault((found.rule, found.what), []).append(found)
    return [
        f"{', '.join(sorted({found.task for found in group}))}: {what} ({group[0].issue}). {group[0].mend} [{rule}]"
        for (rule, what), group in shared.items()
    ]
