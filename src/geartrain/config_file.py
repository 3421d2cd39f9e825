"""Reading `params.yaml`: strict YAML, one schema, what sections ask of one another, files that must be there."""

from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import yaml

from geartrain.config import Config, parse_config
from geartrain.errors import UserError
from geartrain.sources import named_files


class _StrictLoader(yaml.SafeLoader):
    """YAML in which no key is given twice: the last one would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in seen:
                    raise ValueError(f"key {key.value!r} is given twice, in lines {seen[key.value]} and {line}")
                seen[key.value] = line
        return super().construct_mapping(node, deep)


def read_yaml(text: str, *, source: str) -> Any:
    """Return what YAML text says. Raises UserError with the place: it is no YAML, or gives a key twice."""
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{source}: not YAML: {error}") from error


def load_config(path: Path) -> Config:
    """Read and check a `params.yaml`.

    Raises:
        UserError: the file is missing, is not YAML, or a key is unknown, given twice,
            of the wrong type or impossible; the message names key, reason and the
            nearest valid name.
    """
    return check_together(parse_config(read_record(path), source=str(path)), source=str(path))


def read_record(
    path: Path, *, hint: str = "Copy one from profiles/, or run from the project's root."
) -> dict[str, Any]:
    """Return what a file of sections says, unchecked. Raises UserError: no such file, no YAML, or no sections."""
    if not path.is_file():
        what = "not a file" if path.exists() else "no such file"
        raise UserError(f"{path}: {what}. {hint}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not YAML: {error}") from error
    record = read_yaml(text, source=str(path))
    if not isinstance(record, dict):
        raise UserError(f"{path}: expected sections such as `policy:`, found {type(record).__name__}")
    return record


def check_together(config: Config, *, source: str) -> Config:
    """Return `config` if its sections agree; a stage sees only its own, so this is checked on whole files."""
    pairs = {
        "collect.tasks": config.collect.tasks,
        "policy.tasks_per_iteration": config.policy.tasks_per_iteration,
    }
    limit = config.tasks.train
    problems = [f"  {key}: {value} exceeds tasks.train ({limit})" for key, value in pairs.items() if value > limit]
    if problems:
        raise UserError("\n".join([f"{source}: {len(problems)} problem(s)", *problems]))
    return config


def missing_files(config: Config, *, roots: Sequence[Path] = (Path(),), but: Container[str] = frozenset()) -> list[str]:
    """Return one line per file or folder that the configuration names and that lies under none of `roots`.

    The keys of `but` are not asked.
    """
    return [
        f"  {key}: no such {what}: {path}"
        for key, path, what in named_files(config)
        if key not in but and not any(_is(root / path, what) for root in roots)
    ]


def _is(path: Path, what: str) -> bool:
    try:
        if what == "file":
            return path.is_file()
        inside = {"folder of an encoder": "config.json", "folder of feature tables": "task_history.parquet"}
        return (path / inside[what]).is_file() if what in inside else path.exists()
    except OSError:  # a name that no file can have
        return False
