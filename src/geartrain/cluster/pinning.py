"""Pinning a run to data: what `KEY=NAME@REV` means, found out once by whoever sends the run. Asks git, DVC, the remote.

The bytes are fetched here as well: so a pin carries a sha256 that somebody has seen, and what the remote lacks is found
out before a pod is waited for.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from geartrain import withdrawals
from geartrain.artifacts import known_origins
from geartrain.cluster.patience import Clock
from geartrain.cluster.pinned import Pin, fetch, parse_pins, remove, require_named, stoppable
from geartrain.cluster.storage import Storage
from geartrain.config import Config
from geartrain.config_file import missing_files
from geartrain.errors import UserError
from geartrain.home import home
from geartrain.places import locate, web_address
from geartrain.sources import named_files
from geartrain.versions import fetching
from geartrain.versions.tracked import project_of

UNSEEN = "0" * 64
"""sha256 of a pin before its bytes were seen."""


def pin(config: Config, wanted: Sequence[str], *, project: str | None, for_pods: bool) -> dict[str, Pin]:
    """Return what a run is pinned to, by key of the configuration. Only in the main thread.

    Args:
        config: the run's.
        wanted: `KEY=NAME@REV` each, such as `environment.source=raw/chinook.json@v3`; or `@FILE` with pins as JSON.
        project: whose data it is: a folder or git URL; None: the one that we are in.
        for_pods: refuse data that only this machine has.

    Raises:
        UserError: the settings name no file under a key, there is no such version, the remote lacks it or holds other
            bytes, it is not what the key asks for, or it is withdrawn.
        InfrastructureError: a host does not answer.
    """
    found: dict[str, Pin] = {}
    for text in wanted:
        pins = _read_pins(Path(text[1:])) if text.startswith("@") else _find(text, config, project, for_pods)
        twice = sorted(pins.keys() & found.keys())
        if twice:
            raise UserError(f"--data: {twice[0]} is given twice")
        found |= pins
    require_named(found, config)
    return found


def _read_pins(path: Path) -> dict[str, Pin]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--data @{path}: no pins ({error})") from error
    if not isinstance(record, dict):
        raise UserError(f"--data @{path}: expected pins by key, found {type(record).__name__}")
    return parse_pins(record)


def _find(text: str, config: Config, project: str | None, for_pods: bool) -> dict[str, Pin]:
    key, separator, name = text.partition("=")
    if not separator or not key or not name:
        raise UserError(f"--data {text}: expected KEY=NAME@REV, such as environment.source=raw/chinook.json@v3")
    here = project_of(Path()) if project is None else Path()
    source = fetching.parse_source(name, project=project or str(here))
    with stoppable() as clock:
        return {key: _pin(key, source, config, here, clock, for_pods)}


def _pin(key: str, source: fetching.Source, config: Config, folder: Path, clock: Clock, for_pods: bool) -> Pin:
    version = fetching.resolve(source, folder=folder)
    made = Pin(
        path=version.path,
        revision=source.revision,
        commit=version.commit,
        repository=web_address(fetching.remote_of(source)),
        md5=version.md5,
        uri=version.uri,
        sha256=UNSEEN,
    )
    require_named({key: made}, config)
    if for_pods and locate(made.uri).folder is not None:
        raise UserError(
            f"{source}: lies in {made.uri}, a folder of this machine, which no pod can read. Push it to a remote that "
            "they can: `dvc remote add --default team s3://BUCKET/geartrain`, then `geartrain data push`."
        )
    kept = home().absolute() / "pinned"
    made, copy = fetch(made, Storage(clock), kept)
    place, what = next((path, what) for name, path, what in named_files(config) if name == key)
    looked = kept / f"{copy.name}.seen"
    try:
        (looked / place).parent.mkdir(parents=True)
        copy.rename(looked / place)
        others = [name for name, _, _ in named_files(config) if name != key]
        if missing_files(config, roots=(looked,), but=others):
            raise UserError(f"{source}: is no {what}, which {key} needs")
        withdrawals.require_allowed({key: made.sha256}, {key: known_origins(looked / place)})
    finally:
        shutil.rmtree(looked, ignore_errors=True)
        remove(copy)
    return made
