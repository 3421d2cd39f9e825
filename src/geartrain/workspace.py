"""A workspace: a folder with a `params.yaml`, the raw data, and one folder per finished stage.

The project's root is one; `geartrain run --dir runs/NAME` makes others, so
that several runs lie side by side.
"""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from geartrain import artifacts, logs
from geartrain.config import Config, parse_config
from geartrain.config_file import check_together, load_config, missing_files, read_record, read_yaml
from geartrain.errors import UserError
from geartrain.home import WORK, home
from geartrain.lineage import tombstones
from geartrain.sources import is_source, named_files, read_sources
from geartrain.stages.stage import FOLDERS, homes

PARAMS = "params.yaml"
MADE_BY = "# made by: geartrain run"


def project_root() -> Path | None:
    """Return the checkout that this package was installed from, if it was (`pip install -e`)."""
    root = artifacts.checkout()
    return root if (root / "profiles").is_dir() else None


def find_profile(name: str) -> Path:
    """Return the file of a profile: a path, or a name from `profiles/`.

    Raises:
        UserError: there is no such file; the message lists the names.
    """
    folders = [root / "profiles" for root in _roots()]
    for candidate in (Path(name), *(folder / f"{name}.yaml" for folder in folders)):
        if candidate.is_file():
            return candidate
    known = sorted({path.stem for folder in folders for path in folder.glob("*.yaml")})
    raise UserError(f"no profile {name!r}; give a path of a YAML file, or one of: {', '.join(known) or '(none here)'}")


def compose(profile: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Return a profile's record with `section.key=value` settings applied; values are YAML.

    Raises:
        UserError: a setting is not of that form, or the result does not fit the schema.
    """
    record = read_record(profile)
    parse_config(record, source=str(profile))
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or not all(key.split(".")):
            raise UserError(f"--set {setting}: expected section.key=value, such as --set policy.iterations=3")
        place = record
        *sections, last = key.split(".")
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise UserError(f"--set {setting}: {section!r} is a value, not a section")
        place[last] = read_yaml(text, source=f"--set {setting}")
    source = " ".join([str(profile), *(f"--set {setting}" for setting in settings)])
    check_together(parse_config(record, source=source), source=source)
    return record


def prepare(folder: Path, record: dict[str, Any], *, made_from: str) -> None:
    """Make `folder` a workspace of this configuration: write `params.yaml`, link the raw data.

    A `params.yaml` that says the same already is left as it is, comments and all.

    Raises:
        UserError: a file that the configuration names is nowhere, or the folder has a `params.yaml` of somebody's own.
    """
    config = parse_config(record, source=made_from)
    require_files(config, made_from, roots=(folder, *_roots()))
    params = folder / PARAMS
    if not (params.is_file() and read_record(params) == record):
        if params.exists() and not (params.is_file() and params.read_text("utf-8").startswith(MADE_BY)):
            raise UserError(f"{params}: is not one of ours to overwrite. Edit it, or give another --dir.")
        artifacts.write_atomically(params, f"{MADE_BY}, from {made_from}\n" + yaml.safe_dump(record, sort_keys=False))
    for _, path, _ in named_files(config):
        link = folder / path
        sources = [root / path for root in _roots() if (root / path).exists()]
        if sources and not path.is_absolute() and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(sources[0].absolute())


def check(params: Path) -> Config:
    """Read `params` and check everything that can be checked before work starts; paths are as seen from here.

    Raises:
        UserError: a key, a value or a named file is wrong.
    """
    config = load_config(params)
    require_files(config, str(params))
    return config


def is_current(folder: Path, stage: str, config: Config) -> bool:
    """Tell from the manifests alone whether a stage's output is whole and of this configuration, inputs and code."""
    try:
        manifest = artifacts.verify(folder / FOLDERS[stage])
        stages = [name for name in manifest.inputs if not is_source(name)]
        read = {name: artifacts.read_manifest(folder / FOLDERS[name]) for name in stages}
        inputs = {name: one.digest for name, one in read.items()}
        tombstones.require_allowed(
            homes(folder), [tombstones.used(stage, folder / FOLDERS[stage], manifest)], itself=False
        )
        if any(artifacts.origins(one).keys() - manifest.ancestors.keys() for one in read.values()):
            return False  # it leaves out what its inputs were made from
    except (UserError, KeyError):  # not whole, made from something that is no stage, or from what is withdrawn
        return False
    # a file from outside that is gone says nothing against what was made from it
    inputs |= {name: digest for name, digest in manifest.inputs.items() if name not in inputs}
    inputs |= {one.name: one.digest for one in read_sources(config, list(manifest.inputs), root=folder)}
    whole = config.model_dump(mode="json")
    parameters = {name: whole.get(name) for name in manifest.parameters}
    return (manifest.parameters, manifest.inputs, manifest.code) == (parameters, inputs, artifacts.code_digest())


@contextmanager
def exclusive(stage: str) -> Iterator[None]:
    """Hold a stage's output in the workspace that is the working directory; wait, and say so, while another does.

    An orphan of a killed orchestrator may be at work with other parameters; without this the last to finish would win.
    """
    path = home() / WORK / f"{stage}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logs.say(f"{stage}: another process is at work on it here; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _roots() -> list[Path]:
    """Where profiles and raw data are looked for: here, then the checkout."""
    return [root for root in (Path.cwd(), project_root()) if root is not None]


def require_files(config: Config, source: str, *, roots: Sequence[Path] = (Path(),)) -> None:
    """Raise UserError if a file that the configuration names lies under none of `roots`."""
    missing = missing_files(config, roots=roots)
    if missing:
        hint = "  `make setup` fetches the raw data, `make smollm2` the weights of its profile; others are yours"
        raise UserError("\n".join([f"{source}: {len(missing)} problem(s)", *missing, hint]))
