"""Artifacts by URI: fetched whole or not at all, published under their digest, verified where they lie.

A published artifact is a folder `<prefix>/<digest>/` whose manifest is written last, so that one with a manifest is
whole. What is there already is not sent again, and never overwritten by other bytes; but for what is said of a promoted
model (signature, provenance, SBOM), which is no part of its digest and may be renewed.
"""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from geartrain import artifacts
from geartrain.artifacts import ATTESTATIONS, MANIFEST, Manifest
from geartrain.cluster.patience import Clock, Patience
from geartrain.errors import UserError
from geartrain.places import MissingError, Place, locate

ERRORS = 8
"""Failures in a row of one request that are borne: with pauses that double from 1 s, four minutes or so."""
PAUSE_SECONDS = 1.0


class Storage:
    """Reads and writes artifacts; trouble of the store is borne for minutes, then raised.

    Every method may raise InfrastructureError (the store does not answer as it should; again later), UserError (keys,
    rights, names), and `patience.StoppedError`.

    Args:
        clock: where pauses are spent.
    """

    def __init__(self, clock: Clock) -> None:
        self._patience = Patience(clock, errors=ERRORS, pause_seconds=PAUSE_SECONDS)

    def manifest(self, uri: str) -> Manifest:
        """Return an artifact's manifest. Raises UserError: there is none, or it is none of ours."""
        return self._manifest(locate(uri))[0]

    def bring(self, uri: str, cache: Path) -> Path:
        """Return a verified local folder of an artifact: its own if it is on this machine, else one below `cache`.

        A folder below `cache` is named by the digest of its contents, and fetched once, whoever asks.

        Raises:
            UserError: there is no artifact, or it does not match its manifest.
        """
        place = locate(uri)
        if place.folder is not None:
            artifacts.verify(place.folder)
            return place.folder
        return self.fetch(place, cache / self._manifest(place)[0].digest)

    def fetch(self, place: Place, target: Path) -> Path:
        """Copy an artifact to `target`, which appears whole and verified or not at all; return it.

        What an interrupted call has fetched is used, to the byte. Of several processes one fetches, others wait.

        Raises:
            UserError: as `bring`.
        """
        with _exclusive(target):
            manifest, text = self._manifest(place)
            if _is_whole(target, manifest):
                self._fetch_attestations(place, target, manifest)
                return target
            incoming = target.with_name(f".{target.name}.incoming")
            incoming.mkdir(parents=True, exist_ok=True)
            _remove_strangers(incoming, manifest)
            for name, digest in sorted(manifest.files.items()):
                self._fetch_file(place / name, incoming / name, digest)
            artifacts.write_atomically(incoming / MANIFEST, text)
            self._fetch_attestations(place, incoming, manifest)
            artifacts.verify(incoming)
            if target.exists():
                shutil.rmtree(target)
            incoming.rename(target)
        return target

    def publish(self, folder: Path, prefix: str) -> str:
        """Put a sealed artifact at `<prefix>/<digest>`; return that URI. If it is there and whole, nothing is sent.

        Raises:
            UserError: the folder does not match its manifest, or something else lies at that place.
        """
        manifest, text = artifacts.verify(folder), (folder / MANIFEST).read_bytes()
        place = locate(prefix) / manifest.digest
        there = self._patience.run(lambda: _read(place / MANIFEST))
        if there is not None and json.loads(there) != json.loads(text):
            raise UserError(
                f"{place.uri}: holds the same files with another {MANIFEST}: they were made from other parameters or "
                "inputs, or by other code. Publish to another prefix, or remove that one if nobody needs it"
            )
        for name, digest in sorted(manifest.files.items()):
            self._send(folder / name, place / name, digest)
        for name in sorted(ATTESTATIONS):
            if (folder / name).is_file():
                self._renew((folder / name).read_bytes(), place / name)
        if there is None:
            self._patience.run(lambda: (place / MANIFEST).write(text))
        return place.uri

    def inspect(self, uri: str) -> Manifest:
        """Verify a published artifact where it lies; return its manifest. From a bucket no weights are read.

        Raises:
            UserError: it is not whole: the message lists what is missing or changed.
        """
        place = locate(uri)
        manifest = self._manifest(place)[0]
        wrong = []
        for name, digest in sorted(manifest.files.items()):
            found = self._patience.run((place / name).find)
            if found is None:
                wrong.append(f"{name} is missing")
            elif found.sha256 != digest:
                wrong.append(f"{name} was changed" if found.sha256 else f"{name} was not written by geartrain")
        if wrong:
            raise UserError(f"{place.uri}: does not match its {MANIFEST}: {'; '.join(wrong)}. Publish it again.")
        return manifest

    def read_note(self, uri: str) -> dict[str, Any] | None:
        """Return a small JSON object, or None if there is none. Raises UserError: something else lies there."""
        place = locate(uri)
        text = self._patience.run(lambda: _read(place))
        if text is None:
            return None
        try:
            note = json.loads(text)
        except ValueError as error:
            raise UserError(f"{place.uri}: is no JSON ({error})") from error
        if not isinstance(note, dict):
            raise UserError(f"{place.uri}: is no JSON object")
        return note

    def write_note(self, uri: str, note: Mapping[str, Any]) -> None:
        """Write a small JSON object, over another one if need be."""
        text = json.dumps(note, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        self._patience.run(lambda: locate(uri).write(text.encode()))

    def read(self, place: Place, *, gone: str) -> bytes:
        """Return the bytes of a small file. Raises UserError: it is not there; `gone` says what to do."""
        try:
            return self._patience.run(place.read)
        except MissingError as error:
            raise MissingError(f"{error}. {gone}") from error

    def is_there(self, place: Place) -> bool:
        """Tell whether a file is there."""
        return self._patience.run(place.find) is not None

    def fetch_file(self, place: Place, path: Path, matches: Callable[[Path], bool], *, wrong: str, gone: str) -> None:
        """Copy a file to `path`, which appears whole and right or not at all; what was fetched before is used.

        Args:
            place: where it lies.
            path: where to put it; if it is right already, nothing is done.
            matches: tells whether a file is the right one.
            wrong: what to say of one that is not.
            gone: what to do if there is none.

        Raises:
            UserError: there is none, or it is another.
        """
        part = path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and matches(path):
            return
        for _ in range(2):  # what was left of an older file, or of a broken disk, is not worth a failure
            self._patience.run(lambda: _append(place, part, gone))
            if matches(part):
                part.replace(path)
                return
            part.unlink()
        raise UserError(wrong)

    def _fetch_file(self, place: Place, path: Path, digest: str) -> None:
        wrong = f"{place.uri}: does not match its {MANIFEST}: it was changed. Run its stage again."
        gone = f"It is in the {MANIFEST}. Run its stage again."
        self.fetch_file(place, path, lambda found: artifacts.file_sha256(found) == digest, wrong=wrong, gone=gone)

    def _manifest(self, place: Place) -> tuple[Manifest, str]:
        try:
            text = self._patience.run((place / MANIFEST).read).decode("utf-8", errors="replace")
        except MissingError as error:
            raise MissingError(
                f"{place.uri}: no {MANIFEST}, so this is not a finished artifact, or nobody may list it"
            ) from error
        return _parse(text, place), text

    def _fetch_attestations(self, place: Place, folder: Path, manifest: Manifest) -> None:
        """Bring what is said of a promoted model: as it is there now, since a model may be signed anew."""
        for name in sorted(ATTESTATIONS) if manifest.stage == artifacts.ATTESTED else ():
            found = self._patience.run(lambda name=name: _read(place / name))  # type: ignore[misc]
            if found is not None and not ((folder / name).is_file() and (folder / name).read_bytes() == found):
                artifacts.write_atomically(folder / name, found.decode("utf-8", errors="replace"))

    def _renew(self, text: bytes, place: Place) -> None:
        if self._patience.run(lambda: _read(place)) != text:
            self._patience.run(lambda: place.write(text))

    def _send(self, source: Path, place: Place, digest: str) -> None:
        found = self._patience.run(place.find)
        if found is None:
            self._patience.run(lambda: place.upload(source, digest))
            found = self._patience.run(place.find)
        if found is None or (found.sha256, found.size) != (digest, source.stat().st_size):
            raise UserError(
                f"{place.uri}: other bytes lie there than in {source.name}; they are not overwritten. Remove them if "
                "nobody needs them, or publish to another prefix"
            )


def _read(place: Place) -> bytes | None:
    try:
        return place.read()
    except MissingError:
        return None


def _parse(text: str, place: Place) -> Manifest:
    """Return a manifest that may come from anywhere. Raises UserError; a file name may not lead out of the folder."""
    try:
        record = json.loads(text)
        record.pop("digest", None)
        manifest = Manifest(**record)
        for name, digest in manifest.files.items():
            _ = place / name
            if not isinstance(digest, str):
                raise TypeError(f"{name} has no digest")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{place.uri}/{MANIFEST}: not a manifest ({error}). Run its stage again.") from error
    return manifest


def _append(place: Place, part: Path, gone: str) -> None:
    """Fetch what is not there yet."""
    with part.open("ab") as file:
        found = place.find()
        if found is None:
            raise MissingError(f"{place.uri}: is not there. {gone}")
        if file.tell() > found.size:
            file.truncate(0)
        for block in place.read_blocks(file.tell(), found.size):
            file.write(block)


def _is_whole(target: Path, manifest: Manifest) -> bool:
    try:
        return artifacts.verify(target) == manifest
    except UserError:
        return False


def _remove_strangers(incoming: Path, manifest: Manifest) -> None:
    """Remove what an earlier artifact has left; parts of this one stay."""
    parts = {(incoming / name).with_name(f".{Path(name).name}.part") for name in manifest.files}
    for path in sorted(incoming.rglob("*")):
        if path.is_file() and path not in parts and path.relative_to(incoming).as_posix() not in manifest.files:
            path.unlink()


@contextmanager
def _exclusive(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
