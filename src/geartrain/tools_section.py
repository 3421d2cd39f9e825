"""The section `policy.tools` of `params.yaml`: which tools the reward asks, how much each weighs, who judges."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, model_validator

from geartrain.schema import NonNegative, Number, Positive, Section, Share

RULES = ("length", "repetition", "copying", "characters", "language", "format", "relevance", "prose", "address")
METRICS = ("exact", "bleu", "chrf", "rouge")
JUDGES = ("judge", "judge_pairs")
LEARNED = "learned"
NAMES = (*RULES, *METRICS, *JUDGES)
"""Tools that `policy.tools.weights` may name; `geartrain reward tools` says what each does."""
WeightTable = dict[str, NonNegative]


class PhaseSection(Section):
    """Weights from some time of the run on."""

    start: Share
    """Share of the run that is over when they begin to hold."""
    weights: WeightTable
    """By tool, or `learned` for the reward model; what is not named keeps its weight."""


class ExampleSection(Section):
    """A judged answer that shows the judge what a number means."""

    task: str
    answer: str
    score: Annotated[int, Field(ge=1, le=10), Number]
    why: str = ""


class JudgeSection(Section):
    """A language model that judges. Address and key: $GEARTRAIN_JUDGE_URL, $GEARTRAIN_JUDGE_KEY or …_KEY_FILE."""

    model: str = "default"
    """Model that the server is asked for."""
    rubric: str | None = None
    """What a good answer is; null takes the built-in one."""
    examples: tuple[ExampleSection, ...] = ()
    samples: Annotated[int, Field(ge=1, le=16), Number] = 1
    """Times that each answer is scored; high costs as many calls, and says how much the judge agrees with itself."""
    shows_reference: bool = True
    """Whether the judge is shown the right answer of a task that has one."""
    timeout: Positive = 60.0
    """Seconds for one call."""
    tries: Annotated[int, Field(ge=1, le=10), Number] = 3
    """Calls at most while failures are passing ones (busy, time-out, unreachable)."""
    price_in: NonNegative = 0.0
    """Of a million tokens that are sent, in your currency; for the audit log."""
    price_out: NonNegative = 0.0
    """Of a million tokens of answers."""


class ToolsSection(Section):
    """Tools of the reward beside the verdict and the reward model; none are asked by default."""

    weights: WeightTable = Field(default_factory=dict)
    """Spread of a tool's opinion within a group against that of the verdict, by tool; a tool that is named is asked,
    with 0 it only objects (rules do, where there is no verdict). However high, no failure overtakes a success."""
    families: dict[str, WeightTable] = Field(default_factory=dict)
    """Weights for a family of tasks, by family; they go before all others."""
    phases: tuple[PhaseSection, ...] = ()
    """Weights from a share of the run on, in the order of their start."""
    judge: JudgeSection = JudgeSection()
    seconds: Positive | None = None
    """Time that the tools may take for one batch of episodes, cheap ones first; what is not asked then is a failure of
    its tool. null is no limit; a limit makes results depend on the machine."""
    audit_megabytes: Annotated[int, Field(ge=0, le=10**6), Number] = 50
    """Room for the record of what every tool said; the oldest half goes first. 0 keeps none."""

    @model_validator(mode="after")
    def _names_are_known(self) -> "ToolsSection":
        _known(self.weights, "weights", NAMES)
        tables = [(f"families.{name}", table) for name, table in self.families.items()]
        tables += [(f"phases.{number}.weights", phase.weights) for number, phase in enumerate(self.phases)]
        for place, table in tables:
            _known(table, place, (*self.weights, LEARNED))
        starts = [phase.start for phase in self.phases]
        if starts != sorted(set(starts)):
            raise ValueError("phases: give them in the order of their start, each start once")
        return self

    @property
    def judges(self) -> tuple[str, ...]:
        """Tools that need a judge."""
        return tuple(name for name in self.weights if name in JUDGES)


def _known(names: Iterable[str], place: str, allowed: tuple[str, ...]) -> None:
    for name in names:
        if name not in allowed:
            hint = "name it in weights too" if name in NAMES else f"there are {', '.join(allowed) or 'none'}"
            raise ValueError(f"{place}: no tool {name!r}; {hint}")
