"""A schedule as it lies in git: one small YAML file in `schedules/`, checked before anything is asked of a server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from geartrain.cluster.cron import Cron, parse_cron
from geartrain.config_file import read_record
from geartrain.errors import UserError

NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")
KEYS: Mapping[str, type] = {
    "name": str,
    "description": str,
    "owner": str,
    "cron": str,
    "profile": str,
    "params": str,
    "settings": list,
    "dataset_rev": str,
    "data": list,
    "data_from": str,
    "cluster": str,
    "enabled": bool,
}
REQUIRED = ("name", "description", "owner", "cron")


@dataclass(frozen=True)
class Schedule:
    """When to train, on what, and who answers for it."""

    path: Path
    name: str
    """Also the file's name; at most 40 characters, for the server's name adds a hash."""
    description: str
    owner: str
    cron: Cron
    profile: str
    """A name from `profiles/`, or a configuration file as seen from the schedule's folder."""
    settings: tuple[str, ...] = ()
    """`section.key=value`, as `geartrain run --set` takes them."""
    dataset_rev: str | None = None
    """Git revision of the data, where the pipeline takes one."""
    data: tuple[str, ...] = ()
    """`KEY=NAME@REV`, as `geartrain submit --data` takes them; what they mean is asked at each `plan` and `apply`."""
    data_from: str | None = None
    """Project of `data`; None is the one that the schedule lies in."""
    cluster: Path | None = None
    """File that describes the training job, as seen from the schedule's folder; None trains in the step's own pod."""
    enabled: bool = True


def read_schedules(folder: Path) -> list[Schedule]:
    """Return the schedules of a folder, by name.

    Raises:
        UserError: there is no such folder, or a file of it is wrong.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder. Schedules lie in schedules/ of the project's root; see --schedules."
        )
    return [read_schedule(path) for path in sorted(folder.glob("*.yaml"))]


def read_schedule(path: Path) -> Schedule:
    """Read and check one file.

    Raises:
        UserError: a key is missing, unknown or of the wrong type, or the cron expression is wrong.
    """
    record = read_record(path, hint="See schedules/nightly.yaml for one.")
    problems = [*_unknown(record), *_wrong_types(record)]
    problems += [f"  {key}: missing" for key in REQUIRED if not record.get(key)]
    if ("profile" in record) == ("params" in record):
        problems.append("  profile, params: give one of them: a profile's name, or a file as seen from here")
    name = str(record.get("name", ""))
    if name and not NAME.fullmatch(name):
        problems.append(f"  name: {name!r}: expected small letters, digits and -, at most 40, a letter first")
    elif name and name != path.stem:
        problems.append(f"  name: {name!r}, but the file is {path.name}; a schedule is named after its file")
    if "\n" in str(record.get("owner", "")):
        problems.append("  owner: one line, such as a mail address")
    if problems:
        raise UserError("\n".join([f"{path}: {len(problems)} problem(s)", *problems]))
    profile = record.get("profile") or str(path.parent / record["params"])
    return Schedule(
        path=path,
        name=name,
        description=" ".join(record["description"].split()),
        owner=record["owner"],
        cron=parse_cron(record["cron"], source=f"{path}: cron"),
        profile=profile,
        settings=tuple(str(setting) for setting in record.get("settings", ())),
        dataset_rev=record.get("dataset_rev"),
        data=tuple(str(entry) for entry in record.get("data", ())),
        data_from=record.get("data_from"),
        cluster=path.parent / record["cluster"] if "cluster" in record else None,
        enabled=record.get("enabled", True),
    )


def _unknown(record: Mapping[str, Any]) -> list[str]:
    lines = []
    for key in sorted(set(map(str, record)) - set(KEYS)):
        near = get_close_matches(key, KEYS, n=1, cutoff=0.5)
        lines.append(
            f"  {key}: unknown key; " + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(KEYS)}")
        )
    return lines


def _wrong_types(record: Mapping[str, Any]) -> list[str]:
    return [
        f"  {key}: expected {KEYS[key].__name__}, found {type(value).__name__} {value!r}"
        for key, value in record.items()
        if key in KEYS and not isinstance(value, KEYS[key])
    ]
