"""Environments by name. Importing this loads none of them."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from geartrain.config import EnvironmentSection
from geartrain.environments.environment import Environment
from geartrain.errors import UserError


def _analyst(settings: EnvironmentSection, worlds: Path) -> Environment:
    from geartrain.environments.analyst.environment import AnalystEnvironment

    return AnalystEnvironment(worlds, settings)


def _analyst_worlds(settings: EnvironmentSection, out_dir: Path, *, seed: int) -> list[Path]:
    from geartrain.environments.analyst.editions import build_worlds

    return build_worlds(settings.source, out_dir, seed=seed)


def _twophase(settings: EnvironmentSection, worlds: Path) -> Environment:
    from geartrain.environments.twophase.environment import TwoPhaseEnvironment

    return TwoPhaseEnvironment(worlds, settings)


def _twophase_worlds(settings: EnvironmentSection, out_dir: Path, *, seed: int) -> list[Path]:
    from geartrain.environments.twophase.towns import build_worlds

    return build_worlds(out_dir, seed=seed)


ENVIRONMENTS: Mapping[str, tuple[Callable[[EnvironmentSection, Path], Environment], Callable[..., list[Path]]]] = {
    # name: (load over built worlds, build the worlds)
    "analyst": (_analyst, _analyst_worlds),
    "twophase": (_twophase, _twophase_worlds),
}


def load_environment(settings: EnvironmentSection, worlds: Path) -> Environment:
    """Return the environment that `settings.name` names, over the worlds in a folder. Raises UserError."""
    return _find(settings.name)[0](settings, worlds)


def build_worlds(settings: EnvironmentSection, out_dir: Path, *, seed: int) -> list[Path]:
    """Build the worlds of the environment that `settings.name` names; return their files. Raises UserError."""
    return _find(settings.name)[1](settings, out_dir, seed=seed)


def _find(name: str) -> tuple[Callable[[EnvironmentSection, Path], Environment], Callable[..., list[Path]]]:
    if name not in ENVIRONMENTS:
        near = get_close_matches(name, ENVIRONMENTS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there is {', '.join(ENVIRONMENTS)}"
        raise UserError(f"no environment '{name}'; {hint}")
    return ENVIRONMENTS[name]
