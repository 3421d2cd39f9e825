"""The schema of a study: variants x seeds x environments, what they share and what they are measured by.

Settings are written as `geartrain run --set` takes them: `section.key: value`.
All variants of one (environment, seed) stand on equal ground: a variant may
change the method, never the data, the model or how episodes are played. What
is equal is environment steps: a method that plays an iteration several times
(refills) is given fewer iterations, and results say where steps differ all the
same. Every variant looks at `val` as often as the control: its best of more
looks would be better by luck.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from geartrain.config import Config, EnvironmentSection, parse_config
from geartrain.config_file import read_record
from geartrain.errors import UserError
from geartrain.schema import Count, Section, Share
from geartrain.workspace import compose, find_profile

Settings = dict[str, Any]
BASE = "base"
"""Folder of what the variants of one (environment, seed) share."""
ENVIRONMENTS: tuple[str, ...] = get_args(EnvironmentSection.model_fields["name"].annotation)
EQUAL = ("tasks_per_iteration", "siblings", "sampling", "patience")
"""Settings of `policy` that make the ground: a variant that changed one would play, or be ended, by another rule."""


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]*", name) or name == BASE:
        raise ValueError(f"names a folder: letters, digits and . _ + -, and not {BASE!r}")
    return name


Name = Annotated[str, AfterValidator(_folder_name)]


class Study(Section):
    """A study file."""

    profile: str
    """demo, smoke, smollm2 or a YAML file: what every cell starts from."""
    settings: Settings = Field(default_factory=dict)
    """Settings of every cell; sizes belong here."""
    seeds: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
    """One run each; five are the fewest that say something about a method rather than about a run."""
    environments: Annotated[dict[str, Settings], Field(min_length=1)]
    """Name -> settings of its cells; a list of names where there are none."""
    variants: Annotated[dict[Name, Settings], Field(min_length=2)]
    """Name -> settings of `policy`, such as {policy.recipe: gear_b}."""
    control: str
    """The variant that the others are compared with."""
    reach: list[Share] = Field(default_factory=lambda: [0.5])
    """Levels of success whose first crossing is looked for."""
    curve: Literal["val_sampled", "val_greedy", "success"] = "val_sampled"
    """What the learning curve shows: success on `val`, sampled or greedy, or of the training episodes."""
    output: Path | None = None
    """Folder of the workspaces and results; None is runs/studies/NAME."""
    jobs: Count = 1
    """Cells at the same time; with `threads: 1` two of them use two cores better than one cell does."""

    @field_validator("environments", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {name: {} for name in value}
        return {name: {} if given is None else given for name, given in value.items()} if _is_map(value) else value

    @model_validator(mode="after")
    def _names_fit(self) -> "Study":
        problems = [_unknown("environment", name, ENVIRONMENTS) for name in self.environments]
        problems.append(_unknown("control: variant", self.control, tuple(self.variants)))
        problems += ["seeds: one comes twice"] * (len(set(self.seeds)) < len(self.seeds))
        problems += [
            f"variants.{name}.{key}: {reason}"
            for name, settings in self.variants.items()
            for key in settings
            if (reason := _off_ground(key))
        ]
        if any(problems):
            raise ValueError("; ".join(problem for problem in problems if problem))
        return self


@dataclass(frozen=True)
class Cell:
    """One (environment, seed, variant); the shared stages of an (environment, seed) have no variant."""

    environment: str
    seed: int
    variant: str = BASE

    @property
    def name(self) -> str:
        """How it is called in messages, and where it lies in the output folder."""
        return f"{self.environment}/seed-{self.seed}/{self.variant}"

    @property
    def base(self) -> "Cell":
        """What it shares with the other variants."""
        return Cell(self.environment, self.seed)


@dataclass(frozen=True)
class Plan:
    """A checked study and where it lies."""

    study: Study
    source: Path
    output: Path

    def bases(self) -> list[Cell]:
        """Return what is shared, seeds first: an early stop leaves whole comparisons."""
        return [Cell(environment, seed) for seed in self.study.seeds for environment in self.study.environments]

    def cells(self) -> Iterator[Cell]:
        """Yield the cells in the order in which they run; the control is the first of its ground."""
        others = [name for name in self.study.variants if name != self.study.control]
        for base in self.bases():
            for variant in (self.study.control, *others):
                yield Cell(base.environment, base.seed, variant)

    def folder(self, cell: Cell) -> Path:
        """Return a cell's workspace."""
        return self.output / cell.name

    def record(self, cell: Cell) -> dict[str, Any]:
        """Return a cell's `params.yaml`. Raises UserError: a setting is unknown or impossible."""
        study = self.study
        variant = {} if cell.variant == BASE else study.variants[cell.variant]
        named = {"environment.name": cell.environment, "seed": cell.seed}
        settings = {**study.settings, **study.environments[cell.environment], **variant, **named}
        try:
            return compose(find_profile(study.profile), [f"{key}={_text(value)}" for key, value in settings.items()])
        except UserError as error:
            raise UserError(f"{self.source}: cell {cell.name}: {error}") from error

    def config(self, cell: Cell) -> Config:
        """Return a cell's configuration. Raises UserError as `record`."""
        return parse_config(self.record(cell), source=cell.name)


def load_study(path: Path) -> Plan:
    """Read a study and check every cell's configuration, so that none is found wrong after hours.

    Raises:
        UserError: no such file, an unknown key or name, an impossible setting, or ground that is not equal.
    """
    record = read_record(path, hint="The project's own are in studies/.")
    try:
        study = Study.model_validate(record)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise UserError("\n".join([f"{path}: {len(lines)} problem(s)", *lines])) from error
    plan = Plan(study, path, study.output or Path("runs/studies") / path.stem)
    for environment in study.environments:
        cells = [Cell(environment, study.seeds[0], variant) for variant in (BASE, study.control, *study.variants)]
        _, control, *variants = [(cell, plan.config(cell)) for cell in cells]
        for variant in variants:
            _refuse_other_looks(path, control, variant)
    return plan


def _refuse_other_looks(source: Path, control: tuple[Cell, Config], variant: tuple[Cell, Config]) -> None:
    wanted, found = (math.ceil(c.policy.iterations / c.policy.validate_every) for _, c in (control, variant))
    if found != wanted:
        raise UserError(
            f"{source}: cell {variant[0].name}: policy.iterations / policy.validate_every: {found} looks at `val`, of "
            f"{control[0].variant} {wanted}. Set its policy.validate_every so that both look as often."
        )


def _off_ground(key: str) -> str | None:
    """Return why a variant must not set `key`, or None."""
    section, _, rest = key.partition(".")
    if section != "policy" or not rest:
        return "variants share everything but `policy`; put it under `settings` or `environments`"
    return "variants play by the same rules; put it under `settings`" if rest.split(".")[0] in EQUAL else None


def _unknown(kind: str, name: str, names: tuple[str, ...]) -> str | None:
    if name in names:
        return None
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"no {kind} {name!r}; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}")


def _explain(problem: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or "(whole file)"
    if problem["type"] == "extra_forbidden":
        return f"  {key}: unknown key; {(_unknown('key', key, tuple(Study.model_fields)) or '').partition('; ')[2]}"
    if problem["type"] == "missing":
        return f"  {key}: is missing"
    return f"  {key}: {problem['msg'].removeprefix('Value error, ')}"


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _text(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
