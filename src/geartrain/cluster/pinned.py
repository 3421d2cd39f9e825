"""Data that a run is pinned to: named once, when the run is sent, and fetched by content wherever a step reads it.

A pod has neither git nor DVC, and a tag can move. So whoever sends a run finds out what `NAME@REV` means (`pin`); the
answer goes along as the pipeline's parameter `data`, and each step that reads it has its own copy, held to the sha256
that was seen at the start (`furnished`).
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from geartrain import withdrawals
from geartrain.cluster.patience import Clock, StoppedError, until_terminated
from geartrain.cluster.section import parse_section
from geartrain.cluster.storage import Storage
from geartrain.config import Config
from geartrain.errors import GeartrainError, InfrastructureError, UserError
from geartrain.home import home
from geartrain.places import Place, locate
from geartrain.pointers import FOLDER, Import, identifier, md5, write_import
from geartrain.schema import Section
from geartrain.sources import content_digest, named_files, read_keys

_MD5 = re.compile(r"[0-9a-f]{32}")
_HINT = "Whoever has that version has to push it: `geartrain data push`, in that clone."


class Pin(Section):
    """One version of a file or folder, for good: no name in it can come to mean something else."""

    path: str
    """In its project."""
    revision: str = ""
    """What was asked for, such as a tag; what it meant then is the rest."""
    commit: str = ""
    """"" where the project is no git repository."""
    repository: str = ""
    """Web address, without names and keys; "" if the project has none."""
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}(\.dir)?$")]
    """DVC's identifier; of a folder it ends with `.dir`."""
    uri: str
    """The object in the remote; of a folder DVC's list of its files, which lie beside it."""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Of the bytes, or over those of a folder's files (`sources.content_digest`): what vouches for them."""

    @property
    def revisions(self) -> list[str]:
        """What the version may be called: tag and commit."""
        return [name for name in (self.revision, self.commit) if name]

    @property
    def told(self) -> str:
        """What a person calls it."""
        return " = ".join([f"{self.path} {self.revisions[0]}", *self.revisions[1:]] if self.revisions else [self.path])


def parse_pins(record: Mapping[str, Any]) -> dict[str, Pin]:
    """Return what the parameter `data` says: key of the configuration -> pin. Raises UserError: it is none."""
    return {key: parse_section(Pin, value, source=f"data[{key}]") for key, value in record.items()}


def require_named(pins: Mapping[str, Pin], config: Config) -> None:
    """Raise UserError unless the settings name a file or folder, below the project, for each pin."""
    named = {key: path for key, path, _ in named_files(config)}
    for key in pins:
        if key not in named:
            raise UserError(
                f"data: the settings name no file under {key!r}; they do under {', '.join(named) or 'no key'}. "
                f"A pin needs a path to take: --set {key}=PATH"
            )
        if named[key].is_absolute() or ".." in named[key].parts:
            raise UserError(f"{key}: {named[key]}: what is pinned takes a path below the project, such as data/raw/x")


def bring(pin: Pin, storage: Storage, kept: Path) -> Path:
    """Return a copy of what is pinned, in the folder `kept`, fetched unless it is there; it has the pin's sha256.

    Raises:
        UserError: the object is gone, or has other bytes.
        InfrastructureError: the store does not answer.
    """
    target = kept / pin.md5
    if target.exists() and content_digest(target) == pin.sha256:
        return target
    known, incoming = fetch(pin, storage, kept)
    if known.sha256 != pin.sha256:
        remove(incoming)
        raise UserError(f"{pin.uri}: sha256 {known.sha256}, not {pin.sha256} as when the run was sent: it was changed.")
    remove(target)  # a copy that was changed here
    incoming.rename(target)
    return target


def fetch(pin: Pin, storage: Storage, kept: Path) -> tuple[Pin, Path]:
    """Return the pin with the sha256 of what lies at its address now, and a copy that is the caller's to remove.

    Only DVC's md5 is checked. Raises as `bring`.
    """
    incoming = kept / f".{pin.md5}.{os.getpid()}"
    remove(incoming)
    place = locate(pin.uri)
    try:
        if pin.md5.endswith(FOLDER):
            incoming.mkdir(parents=True)
            for name, digest in _listed(pin, storage.read(place, gone=_HINT)).items():
                _fetch_object(digest, _beside(pin.uri, digest), incoming / name, storage)
        else:
            _fetch_object(pin.md5, place, incoming, storage)
    except GeartrainError:
        remove(incoming)
        raise
    return pin.model_copy(update={"sha256": content_digest(incoming)}), incoming


def require_there(pins: Mapping[str, Pin]) -> None:
    """Raise UserError where a remote has lost what is pinned; a folder's files are not counted."""
    with stoppable() as clock:
        for key, pin in pins.items():
            if not Storage(clock).is_there(locate(pin.uri)):
                raise UserError(f"{key}: {pin.uri}: is not there any more. {_HINT}")


def place(path: Path, pin: Pin, copy: Path, folder: Path) -> None:
    """Put a copy where the settings look for it, as seen from `folder`, and a pointer beside it for the lineage."""
    link = folder / path
    link.parent.mkdir(parents=True, exist_ok=True)
    remove(link)
    link.symlink_to(copy.absolute())
    write_import(link, Import(pin.md5, pin.repository, pin.path, pin.revision, pin.commit, pin.uri))


@contextmanager
def furnished(config: Config, keys: tuple[str, ...], pins: Mapping[str, Pin]) -> Iterator[None]:
    """Work in a folder where the paths that the settings name hold what is pinned; without pins, stay where we are.

    Args:
        config: of the step.
        keys: of the files that the step reads.
        pins: all of the run's.

    Raises:
        UserError, InfrastructureError: as `bring`.
    """
    named = {key: path for key, path, _ in named_files(config)}
    named = {key: named[key] for key in read_keys(keys, named)}
    mine = {key: pin for key, pin in pins.items() if key in named}
    if not mine:
        yield
        return
    require_named(mine, config)
    folder = home().absolute() / "furnished"
    fixed = {"GEARTRAIN_HOME": str(home().absolute()), withdrawals.PLACES: os.pathsep.join(_tombstones())}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with stoppable() as clock:
        copies = {key: bring(pin, Storage(clock), home().absolute() / "pinned") for key, pin in mine.items()}
    for key, path in named.items():
        if key in mine:
            place(path, mine[key], copies[key], folder)
        elif not path.is_absolute() and path.exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(path.absolute())
    with _at(folder, {name: value for name, value in fixed.items() if value}):
        yield


@contextmanager
def _at(folder: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Work in a folder, with these variables; at the end all is as before."""
    before, here = {name: os.environ.get(name) for name in variables}, Path.cwd()
    os.environ.update(variables)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@contextmanager
def stoppable() -> Iterator[Clock]:
    """Give a clock for work that SIGTERM ends as an InfrastructureError. Only in the main thread."""
    try:
        with until_terminated() as clock:
            yield clock
    except StoppedError as error:
        raise InfrastructureError("stopped by SIGTERM while data was fetched") from error


def _tombstones() -> list[str]:
    return [str(one.absolute()) for one in withdrawals.places() if one.is_dir()]


def _fetch_object(digest: str, place: Place, target: Path, storage: Storage) -> None:
    wrong = f"{place.uri}: has other bytes than its name says (md5 {digest}). It was changed in the remote. {_HINT}"
    storage.fetch_file(place, target, lambda path: identifier(path) == digest, wrong=wrong, gone=_HINT)


def _listed(pin: Pin, text: bytes) -> dict[str, str]:
    """Return path -> md5 of a folder's files. Raises UserError: it is not the list that the pin names."""
    if md5(text).hexdigest() + FOLDER != pin.md5:
        raise UserError(f"{pin.uri}: has other bytes than its name says. It was changed in the remote. {_HINT}")
    try:
        listed = {str(entry["relpath"]): str(entry["md5"]) for entry in json.loads(text)}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{pin.uri}: is no list of DVC's ({error!r})") from error
    for name, digest in listed.items():
        _ = locate("/folder") / name  # refuses what would lead out of the folder
        if not name or not _MD5.fullmatch(digest):
            raise UserError(f"{pin.uri}: is no list of DVC's: {name!r}, md5 {digest!r}")
    return listed


def _beside(uri: str, digest: str) -> Place:
    """Return the place of another object of the same remote: `<remote>/<2 digits>/<30 digits>`."""
    return locate(f"{uri.rsplit('/', 2)[0]}/{digest[:2]}/{digest[2:]}")


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder and all in it; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
